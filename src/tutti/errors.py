"""What can go wrong, and whose fault it is.

TuttiError
├── DeclarationError          yours: what the code declares cannot work; nothing was sent
│   ├── FilterError           the text of a filter; points at the character
│   │   └── FilterTooComplex  it passes a named limit
│   ├── TypeNotAdvertised     publish before advertise
│   ├── TypeConflict          an advertised type was changed incompatibly; names the fields
│   └── UnknownType           no advertisement of that name
├── InvalidEvent              the value does not fit its type; it did not leave, or was not handed to a handler
│   └── EventTooLarge         it passes the bus's limit in bytes
├── InvalidMessage            a protocol message cannot be read; it was ignored
├── BusError                  the servers', or the way to them
│   ├── Unreachable           no server answered within the time-out
│   ├── Denied                the server refuses us: credentials, permissions, TLS
│   ├── NotDurable            the server does not sync its writes, or is too old to be trusted
│   ├── Refused               this event is not stored
│   ├── OutcomeUnknown        this event may be stored; the same event id may be published again
│   ├── NoReply               nobody answered a request in time
│   │   └── RequestFailed     its handler gave up on it
│   ├── Gone                  what should be read is no longer in the log
│   ├── Unreadable            a record of Tutti's own state was spoilt
│   └── Conflict              somebody else changed that record first
├── ResourceError             a database that takes part in a transaction, or the way to it
│   ├── ResourceUnfit         it cannot take part as it is set up; says what to set
│   ├── ResourceUnreachable   it does not answer; nothing was decided, try again
│   ├── ResourceBusy          locks, full tables of prepared transactions, no free connection: the branch votes no
│   ├── CannotPrepare         the work holds what no database can prepare; it was rolled back
│   ├── BranchUnknown         the way broke in the middle: the step may have happened; says how to find out
│   ├── NoSuchBranch          there is no such prepared branch, and no known decision explains why
│   └── OutcomeNotYours       yours: commit and rollback belong to the transaction, not to the handler
├── JournalError              the journal, which decides, or the way to it
│   ├── JournalUnreachable    it does not answer; nothing was written
│   ├── JournalUnfit          it cannot keep a promise: read-only, full, damaged, not synced, or newer than we are
│   ├── AnswerLost            the write may stand; the same call again finds out, and changes nothing if it does
│   ├── Fenced                a successor has taken the transaction over: stop
│   ├── LeaseHeld             its manager lives; it cannot be taken over yet
│   ├── UnknownTransaction    never registered, or long forgotten: that says nothing about its outcome
│   ├── AlreadyRegistered     another transaction has this id
│   ├── AlreadyClaimed        another transaction has committed with this unique key
│   └── Delegated             its outcome stands in a resource: ask there first
├── TransactionError          a transaction that did not, or could not, commit
│   ├── CensusFailed          too few took part, or not the right ones; carries who did
│   ├── GroupUnfit            the standing group cannot act now: says which members, and why
│   ├── TransactionAborted    it was decided: nothing of it stays; says why
│   ├── UncheckedTransaction  commit could not finish in time; names what it waits for, and the choice is yours
│   └── TransactionClosed     yours: publishing or enlisting after commit began
├── EmbeddedError             the embedded server could not be started or kept
└── InvariantViolated         ours: a bug in Tutti; please report it
"""

from __future__ import annotations

from typing import Any


class TuttiError(Exception):
    """Every error of Tutti: `what` happened and where, and a `hint` that says what to do."""

    def __init__(self, what: str, *, hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.what}\n  hint: {self.hint}" if self.hint else self.what


class DeclarationError(TuttiError):
    """What the code declares cannot work. Nothing was sent."""


class FilterError(DeclarationError):
    """The text of a filter is wrong. `position` is the offset of the character at fault."""

    def __init__(self, what: str, *, text: str = "", position: int = 0, hint: str = "") -> None:
        self.text = text
        self.position = position
        super().__init__(what + _pointer(text, position), hint=hint)


class FilterTooComplex(FilterError):
    """The filter passes a named limit: its length, its depth, its number of nodes."""


class TypeNotAdvertised(DeclarationError):
    """An event was published before its type was advertised."""


class TypeConflict(DeclarationError):
    """An advertised type was changed so that old and new sides no longer understand each other."""

    def __init__(self, what: str, *, clashes: tuple[str, ...] = (), hint: str = "") -> None:
        super().__init__(what, hint=hint)
        self.clashes = clashes


class UnknownType(DeclarationError):
    """Nobody advertised a type of that name."""


class InvalidEvent(TuttiError):
    """The value does not fit its type."""


class EventTooLarge(InvalidEvent):
    """The event passes the bus's limit in bytes."""


class InvalidMessage(TuttiError):
    """A protocol message cannot be read. It was ignored."""


class BusError(TuttiError):
    """The servers', or the way to them."""


class Unreachable(BusError):
    """No server answered within the time-out."""


class Denied(BusError):
    """The server refuses us: credentials, permissions, TLS."""


class NotDurable(BusError):
    """The server does not sync its writes before it acknowledges them, or its version is known to lose some."""


class Refused(BusError):
    """This event is not stored, and will not be."""


class OutcomeUnknown(BusError):
    """This event may be stored. Publishing it again with the same id, under the same name, is safe within the
    duplicate window."""


class NoReply(BusError):
    """Nobody answered a request in time."""


class RequestFailed(NoReply):
    """The handler of a request gave up on it."""


class Gone(BusError):
    """What should be read is no longer in the log."""


class Unreadable(BusError):
    """A record of Tutti's own state was spoilt by somebody else."""


class Conflict(BusError):
    """Somebody else changed that record first: read it again."""


class ResourceError(TuttiError):
    """A database that takes part in a transaction, or the way to it."""


class ResourceUnfit(ResourceError):
    """It cannot take part in transactions as it is set up."""


class ResourceUnreachable(ResourceError):
    """It does not answer. Nothing was decided; the same call may be made again."""


class ResourceBusy(ResourceError):
    """Others hold what is needed: locks, connections, places for prepared transactions. The branch votes no."""


class CannotPrepare(ResourceError):
    """The work holds what cannot be prepared. It was rolled back, so the branch votes no."""


class BranchUnknown(ResourceError):
    """The way to the database broke in the middle of a step, which may have happened."""


class NoSuchBranch(ResourceError):
    """There is no such prepared branch, and no known decision explains its absence."""


class OutcomeNotYours(ResourceError):
    """Commit and rollback belong to the transaction, not to the code that works in it."""


class JournalError(TuttiError):
    """The journal, or the way to it."""


class JournalUnreachable(JournalError):
    """The journal does not answer. Nothing was written; the same call may be made again."""


class JournalUnfit(JournalError):
    """The journal cannot keep what it should promise. Nothing was written."""


class AnswerLost(JournalError):
    """The write may stand. Making the same call again is safe, and answers what stands."""


class Fenced(JournalError):
    """A successor has taken the transaction over, in `epoch`. Whoever is told this stops acting for it."""

    def __init__(self, what: str, *, epoch: int, hint: str = "") -> None:
        super().__init__(what, hint=hint)
        self.epoch = epoch


class LeaseHeld(JournalError):
    """The manager of the transaction lives for at least `seconds` more, by the journal's clock."""

    def __init__(self, what: str, *, manager: str, seconds: float, hint: str = "") -> None:
        super().__init__(what, hint=hint)
        self.manager = manager
        self.seconds = seconds


class UnknownTransaction(JournalError):
    """The journal does not know it, or knows it no more. That says nothing about its outcome."""


class AlreadyRegistered(JournalError):
    """Another transaction has this id."""


class AlreadyClaimed(JournalError):
    """The unique key belongs to `tx`, which has committed. Nothing was decided for the one that asked."""

    def __init__(self, what: str, *, key: str, tx: str, hint: str = "") -> None:
        super().__init__(what, hint=hint)
        self.key = key
        self.tx = tx


class Delegated(JournalError):
    """The outcome stands, or will stand, in `resource`: only what was read there may be recorded."""

    def __init__(self, what: str, *, resource: str, hint: str = "") -> None:
        super().__init__(what, hint=hint)
        self.resource = resource


class TransactionError(TuttiError):
    """A transaction that did not, or could not, commit. `tx` is its id, as `tutti tx show` takes it."""

    def __init__(self, what: str, *, tx: str = "", hint: str = "") -> None:
        super().__init__(what, hint=hint)
        self.tx = tx


class CensusFailed(TransactionError):
    """There was no transaction. `replies` are the offers of those who joined."""

    def __init__(self, what: str, *, tx: str = "", replies: tuple[Any, ...] = (), hint: str = "") -> None:
        super().__init__(what, tx=tx, hint=hint)
        self.replies = replies


class GroupUnfit(TransactionError):
    """The standing group cannot act now. Nothing was begun."""


class TransactionAborted(TransactionError):
    """The decision is abort, and durable. `reason` says why."""

    def __init__(self, what: str, *, tx: str = "", reason: str = "", hint: str = "") -> None:
        super().__init__(what, tx=tx, hint=hint)
        self.reason = reason


class UncheckedTransaction(TransactionError):
    """Not decided within the time-out; `waiting_for` names what is missing. Commit again, wait, or abort."""

    def __init__(self, what: str, *, tx: str = "", waiting_for: tuple[str, ...] = (), hint: str = "") -> None:
        super().__init__(what, tx=tx, hint=hint)
        self.waiting_for = waiting_for


class TransactionClosed(TransactionError):
    """Its work is over: nothing can be added."""


class EmbeddedError(TuttiError):
    """The embedded server could not be started or kept."""


class InvariantViolated(TuttiError):
    """A bug in Tutti. Raised also under `python -O`."""


def invariant(condition: object, message: str) -> None:
    """Stop before a broken promise spreads; never removed by optimisation."""
    if not condition:
        raise InvariantViolated(message, hint="this is a bug in Tutti: please report it with this message")


def _pointer(text: str, position: int) -> str:
    """The line of the filter that holds the fault, with a caret under the character."""
    if not text:
        return ""
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    line = text[start : end if end >= 0 else len(text)]
    column = position - start
    first = max(0, column - 60)
    shown = line[first : column + 60].replace("\t", " ")
    return f"\n  {shown}\n  {' ' * (column - first)}^"
