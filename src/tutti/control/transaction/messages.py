"""What the manager of one transaction is told, and what it asks for. `Received`, `Ticked`, `Send` and `WakeAt` are
those of all machines. What has a tag may come from, or go to, a publisher in another process (`sides.py`)."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from tutti.model.messages import Join, Prepare, Received, Send, Ticked, WakeAt
from tutti.model.transaction import CensusRule, Decision, Member, Outcome, Scope, TransactionRecord


class Plan(msgspec.Struct, frozen=True):
    """What the publisher wants. Either `census`, or `group` with its `members` of now; `minimum` members must stay for
    a commit (with a census: its `at_least`, if that is more). `deadline` is on the clock of the inputs."""

    tx: str
    type: str
    deadline: float
    manager: str
    epoch: int = 1
    data: Any = None
    scope: Scope = "private"
    events: tuple[str, ...] = ()
    census: CensusRule | None = None
    group: str = ""
    members: tuple[Member, ...] = ()
    minimum: int = 0

    def record(self, members: tuple[Member, ...]) -> TransactionRecord:
        """What the journal is told."""
        least = self.census.at_least if self.census else 0
        return TransactionRecord(
            tx=self.tx,
            type=self.type,
            deadline=self.deadline,
            manager=self.manager,
            epoch=self.epoch,
            members=tuple(member.hash for member in members),
            vital=tuple(member.hash for member in members if member.vital),
            keys=tuple(member.key for member in members),
            scope=self.scope,
            group=self.group,
            minimum=max(self.minimum, least),
            instances=tuple(member.instance for member in members),
        )

    @classmethod
    def inherited(cls, record: TransactionRecord, epoch: int) -> Plan:
        """What a successor knows of it: enough to finish."""
        instances = record.instances or ("",) * len(record.members)
        return cls(
            tx=record.tx,
            type=record.type,
            deadline=record.deadline,
            manager=record.manager,
            epoch=epoch,
            scope=record.scope,
            group=record.group or "(a census)",
            members=tuple(
                Member(h, key, h in record.vital, instance=instance)
                for h, key, instance in zip(record.members, record.keys, instances, strict=True)
            ),
            minimum=record.minimum,
        )


# Inputs


class Started(msgspec.Struct, frozen=True, tag_field="kind", tag=True):
    """The first input, always: also after `Transaction.recovered`."""

    now: float


class Registered(msgspec.Struct, frozen=True):
    """The journal holds the record. `keys`: the payload key of a private transaction, wrapped for each member."""

    now: float
    keys: dict[str, bytes] = {}


class Enlisted(msgspec.Struct, frozen=True, tag_field="kind", tag=True):
    """The publisher uses a resource of its own in the transaction, and the journal knows it."""

    resource: str


class Publishing(msgspec.Struct, frozen=True, tag_field="kind", tag=True):
    """The publisher wants to publish; `event` is the driver's name for it. Only while `Transaction.open`. `last`: it
    will publish nothing more, so the event may carry the prepare."""

    event: str
    type: str
    now: float
    last: bool = False


class Stored(msgspec.Struct, frozen=True, tag_field="kind", tag=True):
    """The bus has acknowledged the event, and this is its place in the log."""

    event: str
    now: float
    stream: str = ""
    sequence: int = 0


class NotStored(msgspec.Struct, frozen=True, tag_field="kind", tag=True):
    """The bus will not acknowledge the event: it refused it, or nobody can tell any more."""

    event: str
    reason: str
    now: float


class ChildBegan(msgspec.Struct, frozen=True):
    """Something works for the transaction: no commit before it is done."""

    child: str


class ChildDone(msgspec.Struct, frozen=True):
    """The child has finished here; from elsewhere comes a `Done` message."""

    child: str
    now: float


class Required(msgspec.Struct, frozen=True):
    """A further requirement on a commit (a bolt, a condition): none before it is met."""

    name: str


class Met(msgspec.Struct, frozen=True):
    name: str
    now: float


class Broken(msgspec.Struct, frozen=True):
    """The requirement will never be met: abort."""

    name: str
    reason: str
    now: float


class CommitRequested(msgspec.Struct, frozen=True, tag_field="kind", tag=True):
    """`commit()`. Answered once, with the `request`'s number; after `timeout` seconds with `Unchecked`. It may be said
    again."""

    request: int
    timeout: float
    now: float


class AbortRequested(msgspec.Struct, frozen=True, tag_field="kind", tag=True):
    """`abort()`, or the operator's. The answer says what stands: it may be too late."""

    request: int
    reason: str
    now: float


class OwnPrepared(msgspec.Struct, frozen=True, tag_field="kind", tag=True):
    """All resources that the publisher enlisted are prepared."""

    now: float


class OwnPrepareFailed(msgspec.Struct, frozen=True, tag_field="kind", tag=True):
    reason: str
    now: float


class OwnFinished(msgspec.Struct, frozen=True, tag_field="kind", tag=True):
    """The publisher's own resources are committed, or rolled back."""

    now: float


class JournalDecided(msgspec.Struct, frozen=True):
    """This row stands, durably. It need not be the one that we asked for."""

    decision: Decision
    now: float


class JournalFailed(msgspec.Struct, frozen=True):
    """The journal could not be asked, or nobody can tell whether it wrote. It will be asked again."""

    reason: str
    now: float


class Fenced(msgspec.Struct, frozen=True):
    """The journal knows a newer epoch: another manager has taken over. This one falls silent."""

    now: float


class MemberLost(msgspec.Struct, frozen=True):
    """No heartbeat of the member's instance for too long."""

    member: str
    now: float


class PublisherLost(msgspec.Struct, frozen=True):
    """No heartbeat of the publisher for too long."""

    now: float


Input = (
    Started
    | Received
    | Ticked
    | Registered
    | Enlisted
    | Publishing
    | Stored
    | NotStored
    | ChildBegan
    | ChildDone
    | Required
    | Met
    | Broken
    | CommitRequested
    | AbortRequested
    | OwnPrepared
    | OwnPrepareFailed
    | OwnFinished
    | JournalDecided
    | JournalFailed
    | Fenced
    | MemberLost
    | PublisherLost
)


# Effects


class Register(msgspec.Struct, frozen=True):
    """Write the record into the journal; answer with `Registered`, `JournalFailed` or `Fenced`. `wraps`: the members'
    keys for wrapping a payload key, by hash."""

    record: TransactionRecord
    wraps: dict[str, str]


class Opened(msgspec.Struct, frozen=True, tag_field="kind", tag=True):
    """The work may begin: these are the members. No answer."""

    members: tuple[Member, ...]


class CensusFailed(msgspec.Struct, frozen=True, tag_field="kind", tag=True):
    """There is no transaction; this machine has ended. `replies`: whoever joined. No answer."""

    reason: str
    replies: tuple[Join, ...]


class Publish(msgspec.Struct, frozen=True, tag_field="kind", tag=True):
    """Put the event on the bus, with this number (of the publisher's events of this type); answer with `Stored` or
    `NotStored`. With `prepare`, the event carries it, and every member must get it, whatever types it handles."""

    event: str
    type: str
    number: int
    prepare: Prepare | None = None


class PrepareOwn(msgspec.Struct, frozen=True, tag_field="kind", tag=True):
    """Prepare what the publisher enlisted; answer with `OwnPrepared` or `OwnPrepareFailed`."""


class FinishOwn(msgspec.Struct, frozen=True, tag_field="kind", tag=True):
    """Commit or roll back what the publisher enlisted, prepared or not; repeat until done, then say `OwnFinished`."""

    outcome: Outcome


class DecideInJournal(msgspec.Struct, frozen=True):
    """Insert the row by compare-and-set, with the status for the outbox and a row (tx, hash) → abort for each excluded
    member, in one database transaction. Answer with `JournalDecided` (what stands now), `JournalFailed` or `Fenced`."""

    decision: Decision


class QueueStatus(msgspec.Struct, frozen=True):
    """Put the status into the journal's outbox. No answer. (Outcomes are queued with the decision.)"""

    status: Literal["work_ended"]


class Committed(msgspec.Struct, frozen=True, tag_field="kind", tag=True):
    """The row is durable."""


class Aborted(msgspec.Struct, frozen=True, tag_field="kind", tag=True):
    reason: str


class Unchecked(msgspec.Struct, frozen=True, tag_field="kind", tag=True):
    """Not decided within the time-out: these are waited for. Commit again, wait, or abort."""

    names: tuple[str, ...]


CommitAnswer = Committed | Aborted | Unchecked


class Answer(msgspec.Struct, frozen=True, tag_field="kind", tag=True):
    """To `CommitRequested` or `AbortRequested`: each is answered exactly once."""

    request: int
    answer: CommitAnswer


class RecordEnded(msgspec.Struct, frozen=True):
    """Write into the journal, some time, that this member's branch has ended, or that it compensates. No answer."""

    member: str
    outcome: Outcome
    state: Literal["ended", "compensating", "heuristic"] = "ended"


class Finished(msgspec.Struct, frozen=True):
    """Every branch has ended: the machine can be forgotten, and the journal's record shrunk. No answer."""

    outcome: Outcome


Effect = (
    Send
    | WakeAt
    | Register
    | Opened
    | CensusFailed
    | Publish
    | PrepareOwn
    | FinishOwn
    | DecideInJournal
    | QueueStatus
    | Answer
    | RecordEnded
    | Finished
)
