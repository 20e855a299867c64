"""What is seen from outside: what stands on disks, what was sent, what people were told. Checkers know nothing else.

`place` is where work is done: a member's hash, or `own:<tx>` for the publisher's own resources."""

from __future__ import annotations

import msgspec

from tutti.control.transaction.messages import CommitAnswer
from tutti.model.messages import Message
from tutti.model.transaction import Consumed, Decision, Member, Outcome, ParticipantRecord, TransactionRecord


class Fact(msgspec.Struct, frozen=True):
    tx: str


# The publisher, and what it asked for


class Ordered(Fact, frozen=True):
    """A transaction was begun; `members` are those of its group."""

    members: tuple[Member, ...]
    minimum: int
    maximum: int | None = None


class Demanded(Fact, frozen=True):
    """No commit before this is met: an event, a child, a condition, the publisher's own resources."""

    name: str


class Fulfilled(Fact, frozen=True):
    name: str


class Asked(Fact, frozen=True):
    """`commit()` or `abort()`."""

    request: int
    wish: Outcome


class Answered(Fact, frozen=True):
    request: int
    answer: CommitAnswer


class NeverBegan(Fact, frozen=True):
    """The publisher was told that there is no transaction."""


# The journal: what is durable


class Registered(Fact, frozen=True):
    record: TransactionRecord


class Proposed(Fact, frozen=True):
    """A manager asks the journal for this row."""

    decision: Decision


class Decided(Fact, frozen=True):
    """A row was written."""

    decision: Decision


class TakenOver(Fact, frozen=True):
    epoch: int


class FencedOff(Fact, frozen=True):
    """A manager of this epoch was told that there is a newer one."""

    site: str
    epoch: int


class EndRecorded(Fact, frozen=True):
    member: str
    outcome: Outcome


class Finished(Fact, frozen=True):
    """The manager need not think of it any more."""


# Wires


class Joined(Fact, frozen=True):
    """An honest subscriber takes part under this hash and key."""

    place: str
    key: str
    site: str
    handles: tuple[str, ...]
    compensatable: bool


class Sent(Fact, frozen=True):
    """By an honest process; `signer` as it signs."""

    site: str
    message: Message
    signer: str


class Stirred(Fact, frozen=True):
    """A machine did something, or changed, because of a message that a stranger had made up."""

    site: str
    message: str
    signer: str
    effects: tuple[str, ...]


class Carried(Fact, frozen=True):
    """An event takes this along, signed by the manager."""

    message: Message


class Stored(Fact, frozen=True):
    """The bus keeps the event."""

    event: Consumed


# Members, and the publisher's own resources


class Prepared(Fact, frozen=True):
    place: str
    round: int


class RolledBack(Fact, frozen=True):
    """A prepared branch is gone."""

    place: str
    round: int


class Applied(Fact, frozen=True):
    """The work of an event is visible to others. `prepared`: by committing a branch that was prepared."""

    place: str
    event: Consumed
    prepared: bool


class Committed(Fact, frozen=True):
    """A prepared branch was committed; its events follow as `Applied`."""

    place: str
    round: int


class Undone(Fact, frozen=True):
    """A compensator had an effect."""

    place: str
    event: Consumed


class Logged(Fact, frozen=True):
    """The member's own log is durable."""

    place: str
    record: ParticipantRecord


class OperatorResolved(Fact, frozen=True):
    place: str
    outcome: Outcome


class HeuristicShown(Fact, frozen=True):
    place: str
    finished: Outcome
    decided: Outcome | None
