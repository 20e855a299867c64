"""What everybody in a transaction did, in the log: one record for each step, in one form.

    j1-7f3a-4: rooms votes yes

Logger `tutti.transactions`, level info. Each record has the fields `tx`, `step` (a word of the lists below), `role`
("manager", or the subscriber's name) and `member` (the hash under which the others know it; of a manager's record, whom
it is about), and what else there is to say of the step. `tutti run --log json` writes them out; put the records of all
processes in the order of their time, and you read what happened.

manager  invited, begun, published, asked, heard, lost, proposed, decided, announced, finished, ended, over, succeeded
member   joined, handling, handled, prepared, committed, voted, doubted, told, learned, undoing, undone, finished,
         recovered, forgotten
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from tutti.control.participation import messages as p
from tutti.control.participation.life import Stage
from tutti.control.participation.machine import Participation
from tutti.control.transaction import messages as told
from tutti.model import messages as wire
from tutti.model.transaction import Consumed, Outcome

log = logging.getLogger("tutti.transactions")

_DONE = {"commit": "has committed", "abort": "has rolled back"}


class Step(NamedTuple):
    word: str
    sentence: str  # what follows the name of who did it
    said: dict[str, Any]


def wanted() -> bool:
    """Whether anybody reads it: then it is worth being put into words."""
    return log.isEnabledFor(logging.INFO)


def write(tx: str, role: str, member: str, steps: Iterable[Step]) -> None:
    for step in steps:
        said = {"tx": tx, "step": step.word, "role": role, "member": member} | step.said
        log.info("%s: %s %s", tx, role, step.sentence, extra=said)


def short(member: str) -> str:
    return member[:8] or "somebody"


# Members


def member_steps(
    machine: Participation, was: Stage, given: p.Input, effects: Sequence[p.Effect], *, compensatable: bool
) -> Iterator[Step]:
    """What one step of the machine means. `was`: its stage before."""
    undoes = any(isinstance(effect, p.RunCompensator) for effect in effects)
    if not (undoes and isinstance(given, p.ResourcesFinished)):  # nothing was left to roll back
        yield from _member_took(machine, was, given, compensatable=compensatable)
    for effect in effects:
        yield from _member_does(given, effect)


def _member_took(machine: Participation, was: Stage, given: p.Input, *, compensatable: bool) -> Iterator[Step]:
    match given:
        case wire.Received(message=wire.Decide() as decide) if machine.stage is not was:
            source = f"its peer {short(given.relayed_by)}" if given.relayed_by else "the manager"
            outcome = decide.outcome_for(machine.member)
            said = {"outcome": outcome, "peer": given.relayed_by, "reason": decide.reason, "epoch": decide.epoch}
            yield Step("learned", f"learns from {source}: {outcome}", said)
        case wire.Received(message=wire.Begin()) if machine.stage is Stage.FORGOTTEN and was is not machine.stage:
            yield Step("forgotten", "is not on the list: as if it had never joined", {})
        case p.Handled():
            yield Step("handled", f"has handled {_name(given.event)}", _event(given.event))
        case p.Prepared() if was is Stage.PREPARING and compensatable:
            yield Step("committed", "has committed its work at once, and can undo it", {"outcome": "commit"})
        case p.Prepared() if was is Stage.PREPARING:
            yield Step("prepared", "is prepared: its work is on disk, and locked", {})
        case p.Compensated():
            yield Step("undone", f"has undone {_name(given.event)}", _event(given.event))
        case p.CompensationFailed():
            said = _event(given.event) | {"reason": given.reason}
            yield Step("undone", f"could not undo {_name(given.event)} yet: {given.reason}", said)
        case p.ResourcesFinished(outcome=outcome):
            yield Step("finished", _DONE[outcome], {"outcome": outcome})
        case p.Recovered():
            yield Step("recovered", f"goes on from its own log: {was}", {"state": str(was)})
        case _:
            pass


def _member_does(given: p.Input, effect: p.Effect) -> Iterator[Step]:
    match effect:
        case wire.Send(message=wire.Join()):
            yield Step("joined", "takes part", {})
        case wire.Send(message=wire.Vote(value=value, reason=reason) as vote):
            words = "is still open" if value == "open" else f"votes {value}" + (f": {reason}" if reason else "")
            yield Step("voted", words, {"vote": value, "reason": reason, "round": vote.round})
        case wire.Send(message=wire.Inquiry(state=state), to=to):
            whom = "the journal" if to is wire.To.RECOVERY else "its peers"
            yield Step("doubted", f"is in doubt ({state}), and asks {whom}", {"state": state, "asked": whom})
        case wire.Send(message=wire.Relay()) if isinstance(given, wire.Received):
            asker = getattr(given.message, "member", "")
            yield Step("told", f"tells its peer {short(asker)} what the manager had signed", {"peer": asker})
        case p.Handle():
            yield Step("handling", f"handles {_name(effect.event)}", _event(effect.event))
        case p.RunCompensator():
            said = _event(effect.event) | {"attempt": effect.attempt}
            yield Step("undoing", f"undoes {_name(effect.event)}", said)
        case _:
            pass


def _name(event: Consumed) -> str:
    return f"{event.type.rpartition('.')[2]} {event.number}"


def _event(event: Consumed) -> dict[str, Any]:
    return {"event_type": event.type, "number": event.number}


# Managers


def manager_steps(given: told.Input, effects: Sequence[told.Effect]) -> Iterator[tuple[str, Step]]:
    """Each with the member that it is about, or with nothing."""
    if effects or not isinstance(given, told.MemberLost):  # a loss is told again and again; once it matters
        yield from _manager_took(given)
    for effect in effects:
        yield from _manager_does(effect)


def _manager_took(given: told.Input) -> Iterator[tuple[str, Step]]:
    match given:
        case wire.Received(message=wire.Vote(value=value, member=member, reason=reason)):
            yield member, Step("heard", f"hears {value} from {short(member)}", {"vote": value, "reason": reason})
        case told.MemberLost(member=member):
            yield member, Step("lost", f"has lost {short(member)}: no sign of life", {})
        case told.PublisherLost():
            yield "", Step("lost", "has lost the publisher: no sign of life", {})
        case told.JournalDecided(decision=decision):
            why = f" ({decision.reason})" if decision.reason else ""
            said = {"outcome": decision.outcome, "reason": decision.reason, "epoch": decision.epoch}
            yield "", Step("decided", f"has decided: {decision.outcome}{why}; the row is durable", said)
        case told.OwnFinished():
            yield "", Step("finished", "has finished the publisher's own work", {})
        case _:
            pass


def _manager_does(effect: told.Effect) -> Iterator[tuple[str, Step]]:
    match effect:
        case wire.Send(message=wire.Invite(type=kind)):
            yield "", Step("invited", f"asks who takes part in {kind.rpartition('.')[2]}", {"type": kind})
        case told.Opened(members=members):
            yield "", Step("begun", f"begins with {len(members)} members", {"members": [one.hash for one in members]})
        case told.Publish():
            kind = effect.type.rpartition(".")[2]
            said = {"event_type": effect.type, "number": effect.number}
            asks = ", and with it asks for votes" if effect.prepare is not None else ""
            yield "", Step("published", f"publishes {kind} {effect.number}{asks}", said)
        case wire.Send(message=wire.Prepare(round=number)):
            yield "", Step("asked", "asks everybody for a vote", {"round": number})
        case told.DecideInJournal(decision=decision):
            yield "", Step("proposed", f"proposes to the journal: {decision.outcome}", _outcome(decision.outcome))
        case wire.Send(message=wire.Decide(outcome=outcome), to=wire.To.MEMBERS):
            yield "", Step("announced", f"tells everybody: {outcome}", _outcome(outcome))
        case told.RecordEnded(member=member, outcome=outcome):
            yield member, Step("ended", f"hears that {short(member)} has finished: {outcome}", _outcome(outcome))
        case told.Finished(outcome=outcome):
            yield "", Step("over", f"has heard from everybody: {outcome}", _outcome(outcome))
        case _:
            pass


def _outcome(outcome: Outcome) -> dict[str, Any]:
    return {"outcome": outcome}
