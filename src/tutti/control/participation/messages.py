"""What a participant is told, and what it asks for. `Received`, `Ticked`, `Send` and `WakeAt` are those of all
machines.

Effects on resources and on the log are carried out one after another, in the order in which they came; each is answered
before the next is begun. Rolling back ends what is still running first, and that is answered too. `round` numbers the
branches in which this participant works: 1, and one more for each vote that the manager took back."""

from __future__ import annotations

from typing import Any

import msgspec

from tutti.model.messages import Begin, Close, Prepare, Received, Send, Ticked, WakeAt
from tutti.model.transaction import Consumed, Outcome, ParticipantRecord


class Part(msgspec.Struct, frozen=True):
    """How this subscriber takes part. `patience`: so many seconds without news it waits before it asks or, not having
    voted, gives up. `early_commit`: a compensatable one commits at each event instead of at the vote."""

    tx: str
    pseudonym: str
    key: str
    inbox: str
    deadline: float
    handles: tuple[str, ...] = ()
    compensatable: bool = False
    early_commit: bool = False
    group: str = ""
    epoch: int = 1  # of the manager, as the first event of a group's transaction says; a begin says it anew
    patience: float = 5.0


# Inputs


class Accepted(msgspec.Struct, frozen=True):
    """The callback wants to take part (with a census: the first input)."""

    now: float
    offer: Any = None
    name: str = ""
    instance: str = ""
    wrap: str = ""


class Enrolled(msgspec.Struct, frozen=True):
    """An event or a prepare names a group of ours (without a census: the first input)."""

    now: float


class Recovered(msgspec.Struct, frozen=True):
    """The first input after `Participation.recovered`. `resolved`: an operator had decided so for this branch, as the
    recorded heuristic says (`RecordHeuristic`)."""

    now: float
    resolved: Outcome | None = None


class Arrived(msgspec.Struct, frozen=True):
    """An event of the transaction, from the bus or fetched. `deferred`: it is handled only after the work has ended."""

    event: Consumed
    now: float
    deferred: bool = False


class EventGone(msgspec.Struct, frozen=True):
    """An event that we asked for is not in the log."""

    publisher: str
    type: str
    number: int
    now: float


class Handled(msgspec.Struct, frozen=True):
    """Every handler of the event returned, and what they published is on the bus."""

    event: Consumed
    now: float


class HandlerFailed(msgspec.Struct, frozen=True):
    """A handler raised, or the event does not fit its type."""

    event: Consumed
    reason: str
    now: float


class Publishing(msgspec.Struct, frozen=True):
    """A handler wants to publish in the transaction; only while `Participation.may_publish`."""

    event: str
    type: str


class AbortSet(msgspec.Struct, frozen=True):
    """`tx.set_abort(reason)`."""

    reason: str
    now: float


class WorkEnded(msgspec.Struct, frozen=True):
    """The status `work_ended` was read from the log."""

    now: float


class Prepared(msgspec.Struct, frozen=True):
    """The answer to `PrepareResources` or `CommitWork`."""

    round: int
    now: float


class PrepareFailed(msgspec.Struct, frozen=True):
    """The same: it is certain that nothing was prepared (or committed)."""

    round: int
    reason: str
    now: float


class LogWritten(msgspec.Struct, frozen=True):
    """The record is durable."""

    round: int
    now: float


class LogFailed(msgspec.Struct, frozen=True):
    """The record is not durable, or nobody can tell."""

    round: int
    reason: str
    now: float


class ResourcesFinished(msgspec.Struct, frozen=True):
    """The answer to `CommitResources` or `RollbackResources`: done."""

    outcome: Outcome
    now: float


class FinishFailed(msgspec.Struct, frozen=True):
    """The same: not done, or nobody can tell. It will be asked for again."""

    outcome: Outcome
    reason: str
    now: float


class Compensated(msgspec.Struct, frozen=True):
    """The compensator returned, or the barrier says that there is nothing (more) to undo."""

    event: Consumed
    now: float


class CompensationFailed(msgspec.Struct, frozen=True):
    event: Consumed
    reason: str
    now: float


class CompensationResumed(msgspec.Struct, frozen=True):
    """The operator wants what is parked tried again or, with `skip`, let be."""

    now: float
    skip: bool = False


class Resolved(msgspec.Struct, frozen=True):
    """The operator decides for a branch in doubt: a heuristic outcome."""

    outcome: Outcome
    now: float


Input = (
    Accepted
    | Enrolled
    | Recovered
    | Received
    | Ticked
    | Arrived
    | EventGone
    | Handled
    | HandlerFailed
    | Publishing
    | AbortSet
    | WorkEnded
    | Prepared
    | PrepareFailed
    | LogWritten
    | LogFailed
    | ResourcesFinished
    | FinishFailed
    | Compensated
    | CompensationFailed
    | CompensationResumed
    | Resolved
)


def asked_round(given: Input | None) -> tuple[int, int]:
    """Epoch and round of a question of the manager; (0, 0) for anything else."""
    match given:
        case Received(message=Close(epoch=epoch, round=number) | Prepare(epoch=epoch, round=number)):
            return epoch, number
        case _:
            return 0, 0


def lists(given: Input | None, member: str) -> bool:
    """Whether it is a begin with this member on its list."""
    return isinstance(given, Received) and isinstance(given.message, Begin) and member in given.message.members


# Effects


class Handle(msgspec.Struct, frozen=True):
    """Run the handlers of this event inside the branch `round`; answer with `Handled` or `HandlerFailed`. With
    `commit` (early), its work, the barrier row and the log of this event are committed before `Handled` is said."""

    event: Consumed
    round: int
    commit: bool = False


class Fetch(msgspec.Struct, frozen=True):
    """These events were counted and did not come: look into the log; answer with `Arrived` or `EventGone` for each."""

    publisher: str
    type: str
    numbers: tuple[int, ...]


class Publish(msgspec.Struct, frozen=True):
    """Put the event on the bus with this number (of our events of this type in the transaction)."""

    event: str
    type: str
    number: int


class PrepareResources(msgspec.Struct, frozen=True):
    """Prepare the work of branch `round`, all resources of it; answer with `Prepared` or `PrepareFailed`."""

    round: int


class CommitWork(msgspec.Struct, frozen=True):
    """Compensatable: commit the work of branch `round`, the barrier rows, and this record, in one local transaction;
    answer with `Prepared` or `PrepareFailed`."""

    round: int
    record: ParticipantRecord


class WriteLog(msgspec.Struct, frozen=True):
    """Make the record durable; answer with `LogWritten` or `LogFailed`."""

    record: ParticipantRecord


class CommitResources(msgspec.Struct, frozen=True):
    """Commit what was prepared in these branches; answer with `ResourcesFinished` or `FinishFailed`."""

    rounds: tuple[int, ...]


class RollbackResources(msgspec.Struct, frozen=True):
    """Roll back these branches, whether at work or prepared; answer as above."""

    rounds: tuple[int, ...]


class RunCompensator(msgspec.Struct, frozen=True):
    """Undo this event behind its barrier row; answer with `Compensated` or `CompensationFailed`."""

    event: Consumed
    attempt: int


class Park(msgspec.Struct, frozen=True):
    """Every attempt failed: into the operator's queue. The answer is `CompensationResumed`, some day."""

    event: Consumed
    reason: str


class CloseLog(msgspec.Struct, frozen=True):
    """The record need not be found by a recovery any more. It may be written late, and may be lost: then recovery asks
    again, and finishing again is harmless. No answer."""

    record: ParticipantRecord


class RecordHeuristic(msgspec.Struct, frozen=True):
    """Make durable, before what follows is begun, and show until the operator forgets it: the branch was finished one
    way, the transaction decided (None: not yet known) the other. No answer."""

    finished: Outcome
    decided: Outcome | None


class Stuck(msgspec.Struct, frozen=True):
    """Voted yes, and the journal does not know the transaction: only an operator can help. No answer."""

    reason: str


class Forget(msgspec.Struct, frozen=True):
    """The machine may be dropped; it will do nothing more but answer what it knows. No answer."""


Effect = (
    Send
    | WakeAt
    | Handle
    | Fetch
    | Publish
    | PrepareResources
    | CommitWork
    | WriteLog
    | CommitResources
    | RollbackResources
    | RunCompensator
    | Park
    | CloseLog
    | RecordHeuristic
    | Stuck
    | Forget
)
