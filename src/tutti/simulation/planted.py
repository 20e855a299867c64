"""Bugs on purpose: each breaks one rule of the protocol, and a checker must notice. So do mutants: every guard of every
transition table is left out in turn.

While a bug is planted the machines do not check themselves: what is proven is that the facts give it away."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, NamedTuple

import msgspec

from tutti.control import census, closing, commitment, compensation, doubt
from tutti.control.participation import finishing
from tutti.control.participation import life as membership
from tutti.control.participation import messages as p
from tutti.control.participation.machine import Participation
from tutti.control.participation.receipt import Receipt
from tutti.control.participation.work import Work
from tutti.control.table import Row, weakened
from tutti.control.transaction import life as management
from tutti.control.transaction import messages as t
from tutti.control.transaction.machine import Transaction
from tutti.model import messages as wire
from tutti.model.transaction import Consumed, Outcome
from tutti.simulation.database import Database
from tutti.simulation.facts import Undone
from tutti.simulation.journal import Journal
from tutti.simulation.run import Failure, play
from tutti.simulation.scenario import Scenario, draw

Plant = Callable[[], AbstractContextManager[None]]

TABLES: Final[dict[str, dict[Any, dict[Any, Row[Any, Any]]]]] = {
    "census": census.TRANSITIONS,
    "closing": closing.TRANSITIONS,
    "commitment": commitment.TRANSITIONS,
    "compensation": compensation.TRANSITIONS,
    "doubt": doubt.TRANSITIONS,
    "finishing": finishing.TRANSITIONS,
    "participation": membership.TRANSITIONS,
    "transaction": management.TRANSITIONS,
}


class Bug(NamedTuple):
    """`noticed_by`: the invariants of which one must object first."""

    name: str
    noticed_by: tuple[str, ...]
    plant: Plant


class Catch(NamedTuple):
    """`seeds`: how many were needed; `failure` is None if none of them noticed."""

    name: str
    seeds: int
    failure: Failure | None


def catch(name: str, plant: Plant, seeds: Iterable[int]) -> Catch:
    """Plays until somebody objects."""
    number = 0
    with plant():
        for number, seed in enumerate(seeds, 1):
            failure = play(unchecked(seed))[0].failure
            if failure is not None:
                return Catch(name, number, failure)
    return Catch(name, number, None)


def unchecked(seed: int) -> Scenario:
    return msgspec.structs.replace(draw(seed), self_checks=False)


def mutants() -> Iterator[tuple[str, Plant]]:
    """One for each guard of each table."""
    for name, table in TABLES.items():
        for state, cause, guard, row in list(weakened(table)):
            yield f"{name}: {state}, {cause}, without “{guard}”", _row(table, state, cause, row)


# How to plant


def _row(table: dict[Any, dict[Any, Row[Any, Any]]], state: object, cause: object, row: Row[Any, Any]) -> Plant:
    @contextmanager
    def plant() -> Iterator[None]:
        before = table[state].get(cause)
        table[state][cause] = row
        try:
            yield
        finally:
            if before is None:
                del table[state][cause]
            else:
                table[state][cause] = before

    return plant


def _instead(owner: type, name: str, make: Callable[[Any], Any]) -> Plant:
    """`make` gets the honest method and gives another."""

    @contextmanager
    def plant() -> Iterator[None]:
        honest = getattr(owner, name)
        setattr(owner, name, make(honest))
        try:
            yield
        finally:
            setattr(owner, name, honest)

    return plant


def _without(stage: commitment.Stage, cause: commitment.Cause, *guards: commitment.Guard) -> Plant:
    row = commitment.TRANSITIONS[stage][cause]
    rest = tuple(guard for guard in row.guards if guard not in guards)
    return _row(TABLES["commitment"], stage, cause, Row(row.to, rest))


def _true(_: Callable[..., bool]) -> object:
    return lambda *_: True


def _false(_: Callable[..., bool]) -> object:
    return lambda *_: False


def _nothing(_: Callable[..., list[Any]]) -> object:
    """Another list each time: effects are added to it."""
    return lambda *_: []


# The bugs


def _to_all(_: Callable[..., Outcome]) -> object:
    """Who is left out hears what the others hear."""

    def outcome_for(self: wire.Decide, _: str) -> Outcome:
        return self.outcome

    return outcome_for


def _hasty_decision(honest: Callable[..., list[commitment.Effect]]) -> object:
    def propose(self: commitment.Commitment, outcome: Outcome, reason: str) -> list[commitment.Effect]:
        said = wire.Decide(self._tx, self._epoch, outcome, reason=reason, excluded=tuple(self._excluded))
        return [*honest(self, outcome, reason), wire.Send(said, wire.To.MEMBERS)]

    return propose


def _presumed_end(honest: Callable[..., list[commitment.Effect]]) -> object:
    def announce(self: commitment.Commitment) -> list[commitment.Effect]:
        return [*honest(self), *(t.RecordEnded(member, "commit") for member in self._members)]

    return announce


def _hasty_answer(honest: Callable[..., list[t.Effect]]) -> object:
    def commit(self: Transaction, given: commitment.Input) -> list[t.Effect]:
        effects = honest(self, given)
        proposed = any(isinstance(e, t.DecideInJournal) and e.decision.outcome == "commit" for e in effects)
        return [*effects, *(self._answer_all(t.Committed()) if proposed else ())]

    return commit


def _hasty_yes(honest: Callable[..., list[p.Effect]]) -> object:
    def prepared(self: Participation, given: p.Prepared) -> list[p.Effect]:
        effects = honest(self, given)
        if self.stage is membership.Stage.LOGGING:
            self.stage = membership.Stage.VOTED
            effects += self._voted()
        return effects

    return prepared


def _hasty_commit(honest: Callable[..., list[p.Effect]]) -> object:
    def voted(self: Participation) -> list[p.Effect]:
        branches = () if self._part.compensatable else self._work.branches
        return [*honest(self), p.CommitResources(branches)]

    return voted


def _hasty_end(honest: Callable[..., list[p.Effect]]) -> object:
    def start(self: Participation, outcome: Outcome) -> list[p.Effect]:
        ended = wire.Ended(self._part.tx, self.member, outcome)
        return [wire.Send(ended, wire.To.MANAGER), *honest(self, outcome)]

    return start


def _impatient(honest: Callable[..., list[p.Effect]]) -> object:
    """Who voted yes gives up at the deadline."""

    def tick(self: Participation, given: wire.Ticked) -> list[p.Effect]:
        if self.stage is membership.Stage.VOTED:
            self.stage = membership.Stage.WORKING
            return self._refuse("nobody says anything")
        return honest(self, given)

    return tick


def _other_vote(honest: Callable[..., list[p.Effect]]) -> object:
    """Asked again, who has voted yes says no."""

    def again(self: Participation, given: wire.Received, asked: wire.Close | wire.Prepare) -> list[p.Effect]:
        said = honest(self, given, asked)
        return [self._no("on second thoughts")] if said and self.stage is membership.Stage.VOTED else said

    return again


def _no_comparison(honest: Callable[..., list[p.Effect]]) -> object:
    def end(self: Participation) -> list[p.Effect]:
        return [effect for effect in honest(self) if not isinstance(effect, p.RecordHeuristic)]

    return end


def _invented(honest: Callable[..., list[p.Effect]]) -> object:
    """A crash is passed off as an operator's decision."""

    def recover(self: Participation, given: p.Recovered) -> list[p.Effect]:
        return [p.RecordHeuristic("abort", None), *honest(self, given)]

    return recover


def _first_first(honest: Callable[..., None]) -> object:
    def plan(self: compensation.Compensation, completed: Any) -> None:
        honest(self, reversed(list(completed)))

    return plan


def _unguarded(honest: Callable[..., None]) -> object:
    """A compensator that does not look whether there is anything to undo."""

    def compensate(self: Database, tx: str, place: str, event: Consumed) -> None:
        there = (place, event) in self._rows
        honest(self, tx, place, event)
        if not there:
            self._ground.see(self._name, Undone(tx, place, event))

    return compensate


def _uncounted(honest: Callable[..., list[closing.Effect]]) -> object:
    def step(self: closing.Closure, given: closing.Input) -> list[closing.Effect]:
        return [] if isinstance(given, closing.Published) else honest(self, given)

    return step


_STAGE, _CAUSE, _GUARD = commitment.Stage, commitment.Cause, commitment.Guard

BUGS: Final = (
    Bug(
        "commit before all votes",
        ("validity",),
        _without(_STAGE.VOTING, _CAUSE.COMPLETE, _GUARD.VITAL_YES, _GUARD.SETTLED),
    ),
    Bug("commit though nobody waits for it", ("validity",), _without(_STAGE.VOTING, _CAUSE.COMPLETE, _GUARD.WANTED)),
    Bug(
        "commit with open requirements",
        ("validity",),
        _without(_STAGE.VOTING, _CAUSE.COMPLETE, _GUARD.REQUIREMENTS),
    ),
    Bug("a decision before its row", ("write-ahead",), _instead(commitment.Commitment, "_propose", _hasty_decision)),
    Bug("a yes before the own log", ("write-ahead",), _instead(Participation, "_prepared", _hasty_yes)),
    Bug("committed is said before the row", ("answers",), _instead(Transaction, "_commit", _hasty_answer)),
    Bug("a member commits when it votes", ("agreement",), _instead(Participation, "_voted", _hasty_commit)),
    Bug(
        "who is left out commits",
        ("agreement", "heuristics"),
        _instead(wire.Decide, "outcome_for", _to_all),
    ),
    Bug("abort after a yes vote", ("stability",), _instead(Participation, "_tick", _impatient)),
    Bug("yes, and then no", ("stability",), _instead(Participation, "_answer_again", _other_vote)),
    Bug("forgotten duplicate check", ("exactly once",), _instead(Receipt, "is_new", _true)),
    Bug("events that did not come are not missed", ("exactly once",), _instead(Work, "agrees", _true)),
    Bug(
        "what was not counted is no surplus",
        ("exactly once",),
        _instead(Work, "_consider", _nothing),
    ),
    Bug(
        "compensation in the order of the work",
        ("compensation",),
        _instead(compensation.Compensation, "__init__", _first_first),
    ),
    Bug("the publisher's events are not counted", ("counting",), _instead(closing.Closure, "step", _uncounted)),
    Bug(
        "no barrier row",
        ("compensation",),
        _instead(Database, "compensate", _unguarded),
    ),
    Bug(
        "member check left out",
        ("strangers", "membership"),
        _without(_STAGE.DECIDED, _CAUSE.ENDING, _GUARD.MEMBER),
    ),
    Bug("key check left out", ("strangers", "membership"), _without(_STAGE.DECIDED, _CAUSE.ENDING, _GUARD.KEY)),
    Bug(
        "anybody may say abort",
        ("strangers",),
        _row(
            TABLES["participation"],
            membership.Stage.WORKING,
            membership.Cause.ABORT,
            Row(membership.Stage.UNDOING),
        ),
    ),
    Bug(
        "no epoch check in the journal",
        ("fencing",),
        _instead(Journal, "fenced", _false),
    ),
    Bug("the end before the work is finished", ("ending",), _instead(Participation, "_start_finishing", _hasty_end)),
    Bug("silence is taken for an end", ("membership",), _instead(commitment.Commitment, "_announce", _presumed_end)),
    Bug("a heuristic outcome is not compared", ("heuristics",), _instead(Participation, "_end", _no_comparison)),
    Bug("a heuristic outcome is invented", ("heuristics",), _instead(Participation, "_recover", _invented)),
    Bug("a successor does nothing", ("liveness",), _instead(Transaction, "_succeed", _nothing)),
    Bug("who is in doubt asks nobody", ("liveness", "heuristics"), _instead(doubt.Doubt, "step", _nothing)),
)
