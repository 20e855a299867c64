"""Is the work over, and has everything that was published arrived?

One machine for each transaction, at its manager. It ends with the final counts: per publisher and type, how many events
were published in the transaction.

1. Closing waits for the children.
2. As far as the manager knows, only the publisher has published: its own counts are final (round 1), and cost no
   message. Who knows better answers the prepare with `open`.
3. Then members are asked (`Close`, the next round) and report what they sent and received whenever they are idle; the
   report with the highest turn counts. They agree when everybody has reported in this round and has received, of each
   type that it handles, exactly what each publisher has sent. A member that is idle starts to send again only after it
   received something; so what agrees stays so, and one round is enough.
4. If somebody holds deferred events when the counts agree, the work has ended (status `work_ended`, once), deferred
   events are released, and a further round follows.
5. A report counts from a member of the list, signed with its key, for this epoch and round.
6. A member that was dropped is not waited for. If anybody received something of it, what it did cannot be taken out of
   the transaction any more: closing fails.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, assert_never

import msgspec

from tutti.control.table import Row, Table, follow
from tutti.errors import invariant
from tutti.limits import CLOSE_REPEAT_SECONDS
from tutti.model.messages import Close, Done, Received, Send, Tally, Ticked, To
from tutti.model.transaction import PUBLISHER, Counts, Member, lacking

# Inputs


class Published(msgspec.Struct, frozen=True):
    """The publisher has published an event of this type."""

    type: str


class ChildBegan(msgspec.Struct, frozen=True):
    child: str


class ChildDone(msgspec.Struct, frozen=True):
    child: str
    now: float


class Closing(msgspec.Struct, frozen=True):
    """The publisher will publish nothing more."""

    now: float


class StillOpen(msgspec.Struct, frozen=True):
    """A member answered the prepare of the last round with `open`."""

    now: float


class Dropped(msgspec.Struct, frozen=True):
    """The member is not part of the transaction any more."""

    member: str
    now: float


Input = Published | ChildBegan | ChildDone | Closing | StillOpen | Dropped | Received | Ticked


# Effects


class WorkEnded(msgspec.Struct, frozen=True):
    """Publish the status `work_ended`."""


class Closed(msgspec.Struct, frozen=True):
    """The counts of this round are final, unless somebody knows better."""

    round: int
    counts: Counts
    work_ended: bool


class Unclosable(msgspec.Struct, frozen=True):
    """Nothing can be closed here any more: abort."""

    reason: str


Effect = Send | WorkEnded | Closed | Unclosable


# States


class Stage(StrEnum):
    OPEN = "open"
    WAITING = "waiting"  # for children
    COUNTING = "counting"
    CLOSED = "closed"
    FAILED = "failed"


class Cause(StrEnum):
    CLOSE = "close"
    CHILDREN_DONE = "children done"
    STILL_OPEN = "still open"
    TALLY = "tally"
    RELEASE = "release"
    AGREEMENT = "agreement"
    FAILURE = "failure"


class Guard(StrEnum):
    CHILDLESS = "no child is at work"
    MEMBER = "from a member"
    KEY = "signed with its key"
    EPOCH = "for this epoch"
    ROUND = "for this round"
    NEWER = "a later turn than the last"
    AGREED = "everybody has reported, and the counts agree"
    DEFERRED = "somebody holds deferred events, and the work has not been ended"
    NONE_DEFERRED = "nobody holds deferred events"


TRANSITIONS: Final[Table[Stage, Cause, Guard]] = {
    Stage.OPEN: {Cause.CLOSE: Row(Stage.WAITING), Cause.FAILURE: Row(Stage.FAILED)},
    Stage.WAITING: {Cause.CHILDREN_DONE: Row(Stage.CLOSED, (Guard.CHILDLESS,)), Cause.FAILURE: Row(Stage.FAILED)},
    Stage.CLOSED: {Cause.STILL_OPEN: Row(Stage.COUNTING), Cause.FAILURE: Row(Stage.FAILED)},
    Stage.COUNTING: {
        Cause.TALLY: Row(Stage.COUNTING, (Guard.MEMBER, Guard.KEY, Guard.EPOCH, Guard.ROUND, Guard.NEWER)),
        Cause.RELEASE: Row(Stage.COUNTING, (Guard.AGREED, Guard.CHILDLESS, Guard.DEFERRED)),
        Cause.AGREEMENT: Row(Stage.CLOSED, (Guard.AGREED, Guard.CHILDLESS, Guard.NONE_DEFERRED)),
        Cause.FAILURE: Row(Stage.FAILED),
    },
    Stage.FAILED: {},
}


class Closure:
    """`wake_at` is the time of the next `Ticked`, or None. `round`, `work_ended` as in the last `Closed` or `Close`."""

    __slots__ = (
        "_children",
        "_dropped",
        "_epoch",
        "_members",
        "_sent",
        "_tallies",
        "_tx",
        "round",
        "stage",
        "wake_at",
        "work_ended",
    )

    def __init__(self, tx: str, epoch: int, members: Iterable[Member]) -> None:
        self._tx, self._epoch = tx, epoch
        self._members = {member.hash: member for member in members}
        self._dropped: set[str] = set()
        self._children: dict[str, None] = {}
        self._sent: dict[str, int] = {}
        self._tallies: dict[str, Tally] = {}
        self.round = 0
        self.work_ended = False
        self.stage = Stage.OPEN
        self.wake_at: float | None = None

    # Queries

    def number_of(self, event_type: str) -> int:
        """How many events of this type the publisher has published."""
        return self._sent.get(event_type, 0)

    def waiting_for(self) -> tuple[str, ...]:
        """Children at work and, while counting, members whose report is missing or does not agree."""
        children = tuple(f"child {child}" for child in self._children)
        if self.stage is not Stage.COUNTING:
            return children
        sent = self._all_sent()
        late = (h for h in self._living() if h not in self._tallies or self._differs(self._tallies[h], sent))
        return (*children, *(f"counts of {self._members[h].name or h}" for h in late))

    # Step

    def step(self, given: Input) -> list[Effect]:
        match given:
            case Published():
                invariant(self.stage is Stage.OPEN, "published after closing")
                self._sent[given.type] = self._sent.get(given.type, 0) + 1
                return []
            case ChildBegan():
                invariant(self.stage is not Stage.CLOSED, "a child began after closing")
                self._children[given.child] = None
                return []
            case ChildDone():
                return self._child_done(given.child, given.now)
            case Closing():
                return self._go_on(given.now) if self._moves(Cause.CLOSE) else []
            case StillOpen():
                return self._ask(given.now) if self._moves(Cause.STILL_OPEN) else []
            case Dropped():
                self._dropped.add(given.member)
                return self._go_on(given.now)
            case Received(message=Tally() as tally):
                return self._report(tally, given)
            case Received(message=Done() as done):
                known = self._members.get(done.member)
                signed = known is not None and known.key == given.signer and done.epoch == self._epoch
                return self._child_done(done.child, given.now) if signed else []
            case Received():
                return []
            case Ticked():
                return self._repeat(given.now)
            case _:
                assert_never(given)

    def _moves(self, cause: Cause, given: Received | None = None, tally: Tally | None = None) -> bool:
        after = follow(TRANSITIONS, self.stage, cause, lambda guard: self._holds(guard, given, tally))
        if after is None:
            return False
        self.stage = after
        if after is not Stage.COUNTING:
            self.wake_at = None
        return True

    def _holds(self, guard: Guard, given: Received | None, tally: Tally | None) -> bool:
        match guard:
            case Guard.CHILDLESS:
                return not self._children
            case Guard.MEMBER:
                return tally is not None and tally.member in self._members and tally.member not in self._dropped
            case Guard.KEY:
                known = self._members.get(tally.member) if tally is not None else None
                return given is not None and known is not None and known.key == given.signer != ""
            case Guard.EPOCH:
                return tally is not None and tally.epoch == self._epoch
            case Guard.ROUND:
                return tally is not None and tally.round == self.round
            case Guard.NEWER:
                last = self._tallies.get(tally.member) if tally is not None else None
                return tally is not None and (last is None or tally.turn > last.turn)
            case Guard.AGREED:
                return self._agreed()
            case Guard.DEFERRED:
                return self._deferred()
            case Guard.NONE_DEFERRED:
                return not self._deferred()
            case _:
                assert_never(guard)

    def _child_done(self, child: str, now: float) -> list[Effect]:
        if child not in self._children:
            return []
        del self._children[child]
        return self._go_on(now)

    def _report(self, tally: Tally, given: Received) -> list[Effect]:
        if not self._moves(Cause.TALLY, given, tally):
            return []
        self._tallies[tally.member] = tally
        return self._go_on(given.now)

    def _go_on(self, now: float) -> list[Effect]:
        """After anything that closing may have waited for."""
        if orphan := self._orphan():
            moved = self._moves(Cause.FAILURE)
            return [Unclosable(f"{orphan} left the transaction after others had received its events")] if moved else []
        if self.stage is Stage.WAITING and self._moves(Cause.CHILDREN_DONE):
            self.round += 1
            return [Closed(self.round, self._all_sent(), self.work_ended)]
        if self.stage is Stage.COUNTING:
            if self._moves(Cause.RELEASE):
                self.work_ended = True
                return [WorkEnded(), *self._ask(now)]
            if self._moves(Cause.AGREEMENT):
                return [Closed(self.round, self._all_sent(), self.work_ended)]
        return []

    def _ask(self, now: float) -> list[Effect]:
        self.round += 1
        self._tallies.clear()
        self.wake_at = now + CLOSE_REPEAT_SECONDS
        return [Send(Close(self._tx, self._epoch, self.round, self.work_ended), To.MEMBERS), *self._alone(now)]

    def _alone(self, now: float) -> list[Effect]:
        """With every member dropped there is nobody to wait for."""
        return [] if any(True for _ in self._living()) else self._go_on(now)

    def _repeat(self, now: float) -> list[Effect]:
        if self.wake_at is None or now < self.wake_at:
            return []
        self.wake_at = now + CLOSE_REPEAT_SECONDS
        return [Send(Close(self._tx, self._epoch, self.round, self.work_ended), To.MEMBERS)]

    # Leaves

    def _living(self) -> Iterable[str]:
        return (h for h in self._members if h not in self._dropped)

    def _all_sent(self) -> Counts:
        reported = {h: dict(self._tallies[h].sent) for h in self._living() if h in self._tallies}
        return {PUBLISHER: dict(self._sent)} | {h: sent for h, sent in reported.items() if sent}

    def _differs(self, tally: Tally, sent: Counts) -> bool:
        return any(True for _ in lacking(sent, tally.received, tally.handles))

    def _agreed(self) -> bool:
        sent = self._all_sent()
        return all(h in self._tallies and not self._differs(self._tallies[h], sent) for h in self._living())

    def _deferred(self) -> bool:
        return not self.work_ended and any(self._tallies[h].deferred for h in self._living() if h in self._tallies)

    def _orphan(self) -> str:
        """A dropped member of which somebody has received events, or ""."""
        received = (tally.received for h, tally in self._tallies.items() if h not in self._dropped)
        return next((p for counts in received for p in counts if p in self._dropped and any(counts[p].values())), "")

    # Check

    def check(self) -> None:
        """Raises `InvariantViolated` if the state contradicts itself. For tests."""
        invariant((self.wake_at is not None) == (self.stage is Stage.COUNTING), "a timer without counting")
        invariant(set(self._tallies) <= set(self._members), "a report of a stranger")
        invariant(all(t.round <= self.round for t in self._tallies.values()), "a report of a round to come")
