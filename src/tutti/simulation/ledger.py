"""What the checkers know: kept from facts alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tutti.model.messages import MANAGER, Close, Ended, Prepare, Vote
from tutti.model.transaction import Consumed, Counts, Decision, Outcome, ParticipantRecord, TransactionRecord
from tutti.simulation import facts as f

Round = tuple[int, int]  # epoch and round


class Ledger:
    """A fact is shown to the checkers first, then entered here: they see it beside what stood before."""

    def __init__(self) -> None:
        self.ordered: dict[str, f.Ordered] = {}
        self.never_began: set[str] = set()
        self.records: dict[str, TransactionRecord] = {}
        self.epochs: dict[str, int] = {}
        self.rows: dict[str, Decision] = {}
        self.proposed: set[tuple[str, int]] = set()
        self.finished: set[str] = set()
        self.fenced: set[tuple[str, str, int]] = set()  # transaction, site, epoch
        self.joined: dict[str, f.Joined] = {}  # by place
        self.votes: dict[tuple[str, Round], str] = {}  # by place
        self.last_vote: dict[str, tuple[Round, str]] = {}
        self.asked: dict[str, Round] = {}  # the last that a manager asked for
        self.prepares: dict[tuple[str, Round], Prepare] = {}
        self.ends: dict[str, Outcome] = {}  # said by the place itself
        self.end_rows: dict[tuple[str, str], Outcome] = {}
        self.demands: dict[str, set[str]] = {}  # not fulfilled
        self.waiting: dict[str, set[int]] = {}  # requests for a commit that are not answered
        self.answers: dict[tuple[str, int], object] = {}
        self.stored: dict[str, Counts] = {}  # of each transaction: publisher, type, how many
        self.prepared: dict[str, set[int]] = {}
        self.applied: dict[str, list[Consumed]] = {}  # by place, in this order; what was undone is out
        self.undone: dict[str, list[Consumed]] = {}
        self.committed: dict[str, set[int]] = {}
        self.logs: dict[str, ParticipantRecord] = {}
        self.resolved: dict[str, Outcome] = {}  # as the operator wished
        self.heuristics: dict[str, list[f.HeuristicShown]] = {}
        self._enter: dict[type, Callable[[Any], None]] = {
            f.Ordered: self._ordered,
            f.NeverBegan: lambda fact: self.never_began.add(fact.tx),
            f.Demanded: lambda fact: self.demands.setdefault(fact.tx, set()).add(fact.name),
            f.Fulfilled: lambda fact: self.demands.setdefault(fact.tx, set()).discard(fact.name),
            f.Asked: self._asked,
            f.Answered: self._answered,
            f.Registered: self._registered,
            f.TakenOver: lambda fact: self.epochs.__setitem__(fact.tx, fact.epoch),
            f.Proposed: lambda fact: self.proposed.add((fact.tx, fact.decision.epoch)),
            f.Decided: self._decided,
            f.FencedOff: lambda fact: self.fenced.add((fact.tx, fact.site, fact.epoch)),
            f.EndRecorded: lambda fact: self.end_rows.__setitem__((fact.tx, fact.member), fact.outcome),
            f.Finished: lambda fact: self.finished.add(fact.tx),
            f.Joined: self._joined,
            f.Sent: self._sent,
            f.Stirred: lambda _: None,
            f.Carried: lambda fact: self._ask_round(fact.tx, fact.message),
            f.Stored: self._stored,
            f.Prepared: lambda fact: self.prepared.setdefault(fact.place, set()).add(fact.round),
            f.RolledBack: lambda fact: self.prepared.setdefault(fact.place, set()).discard(fact.round),
            f.Applied: self._applied,
            f.Committed: self._committed,
            f.Undone: self._undone,
            f.Logged: lambda fact: self.logs.__setitem__(fact.place, fact.record),
            f.OperatorResolved: lambda fact: self.resolved.__setitem__(fact.place, fact.outcome),
            f.HeuristicShown: lambda fact: self.heuristics.setdefault(fact.place, []).append(fact),
        }

    def enter(self, fact: f.Fact) -> None:
        self._enter[type(fact)](fact)

    # Questions

    def outcome_for(self, tx: str, place: str) -> Outcome | None:
        """What the row says for this place; None: there is no row."""
        row = self.rows.get(tx)
        return row.outcome_for(place) if row is not None else None

    def bound(self, tx: str, place: str) -> bool:
        """Whether its last word is a yes that the manager has not taken back."""
        said = self.last_vote.get(place)
        return said is not None and said[1] == "yes" and said[0] >= self.asked.get(tx, (0, 0))

    def excused(self, place: str) -> bool:
        """Whether an operator ended it on his own, and that is shown."""
        return place in self.heuristics

    def who(self, place: str) -> str:
        joined = self.joined.get(place)
        return joined.site if joined is not None else place

    # Entries

    def _ordered(self, fact: f.Ordered) -> None:
        self.ordered[fact.tx] = fact
        self.epochs[fact.tx] = 1

    def _asked(self, fact: f.Asked) -> None:
        if fact.wish == "commit":
            self.waiting.setdefault(fact.tx, set()).add(fact.request)

    def _answered(self, fact: f.Answered) -> None:
        self.answers[fact.tx, fact.request] = fact.answer
        self.waiting.setdefault(fact.tx, set()).discard(fact.request)

    def _registered(self, fact: f.Registered) -> None:
        self.records[fact.tx] = fact.record

    def _decided(self, fact: f.Decided) -> None:
        self.rows.setdefault(fact.tx, fact.decision)

    def _joined(self, fact: f.Joined) -> None:
        self.joined.setdefault(fact.place, fact)

    def _sent(self, fact: f.Sent) -> None:
        match fact.message:
            case Close() | Prepare() if fact.signer == MANAGER:
                self._ask_round(fact.tx, fact.message)
            case Vote(value="yes" | "no") as vote:
                said = (vote.epoch, vote.round)
                self.votes[vote.member, said] = vote.value
                self.last_vote[vote.member] = (said, vote.value)
            case Ended(state="ended" | "heuristic") as ended:
                self.ends[ended.member] = ended.outcome
            case _:
                pass

    def _ask_round(self, tx: str, asked: Close | Prepare) -> None:
        number = (asked.epoch, asked.round)
        self.asked[tx] = max(number, self.asked.get(tx, (0, 0)))
        if isinstance(asked, Prepare):
            self.prepares[tx, number] = asked

    def _stored(self, fact: f.Stored) -> None:
        types = self.stored.setdefault(fact.tx, {}).setdefault(fact.event.publisher, {})
        types[fact.event.type] = types.get(fact.event.type, 0) + 1

    def _applied(self, fact: f.Applied) -> None:
        self.applied.setdefault(fact.place, []).append(fact.event)

    def _committed(self, fact: f.Committed) -> None:
        self.committed.setdefault(fact.place, set()).add(fact.round)
        self.prepared.setdefault(fact.place, set()).discard(fact.round)

    def _undone(self, fact: f.Undone) -> None:
        rows = self.applied.setdefault(fact.place, [])
        if fact.event in rows:
            rows.remove(fact.event)
        self.undone.setdefault(fact.place, []).append(fact.event)
