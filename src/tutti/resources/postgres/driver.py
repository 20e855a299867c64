"""What a PostgreSQL driver must offer for its connections to take part, and how its errors are read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, Protocol, TypeVar

import msgspec

from tutti.errors import (
    BranchUnknown,
    CannotPrepare,
    OutcomeNotYours,
    ResourceBusy,
    ResourceError,
    ResourceUnfit,
    ResourceUnreachable,
)

ConnectionT = TypeVar("ConnectionT")

RESET: Final = ("SELECT pg_advisory_unlock_all()", "CLOSE ALL", "UNLISTEN *", "RESET ALL")

HOW_TO_PREPARE: Final = (
    "ALTER SYSTEM SET max_prepared_transactions = 100 (at least max_connections is advised), then restart the server; "
    "managed services have it among the instance's parameters"
)

UNDEFINED_OBJECT: Final = "42704"
NOT_IN_PREREQUISITE_STATE: Final = "55000"
FEATURE_NOT_SUPPORTED: Final = "0A000"
INSUFFICIENT_PRIVILEGE: Final = "42501"
TOO_MANY_CONNECTIONS: Final = "53300"
# lock time-out, deadlock, serialization failure, statement cancelled
_CONTENTION: Final = frozenset({"55P03", "40P01", "40001", "57014"})
_NO_TRANSACTION: Final = frozenset({"25P01", "3B001"})  # and no such savepoint
_LOST: Final = frozenset({"57P01", "57P02", "57P03", "57P05", "25P03", "25P04"})


class Fault(msgspec.Struct, frozen=True):
    """An error of a driver. `lost`: the connection is gone, and what was under way may have happened."""

    sqlstate: str
    message: str
    lost: bool = False


class Driver(Protocol[ConnectionT]):
    """A pool of one driver's connections. Statements here are ours: the refusals are for the user's."""

    async def start(self) -> None: ...
    async def close(self) -> None: ...

    async def acquire(self, *, urgent: bool) -> ConnectionT:
        """A connection of one's own. `urgent`: to finish a branch, which must not wait for branches at work. Raises
        what `fault` can read, or TimeoutError."""
        ...

    async def release(self, connection: ConnectionT) -> None:
        """Reset and pooled; from now on it is dead for whoever holds it. Never raises: if in doubt, it is discarded."""
        ...

    async def discard(self, connection: ConnectionT) -> None:
        """Closed at once, without a word to the server, which rolls back. Never raises."""
        ...

    async def begin(self, connection: ConnectionT, statements: Sequence[str]) -> None:
        """Run the statements that open a transaction; from now on the user's are refused to end it."""
        ...

    async def flush(self, connection: ConnectionT) -> None:
        """Send what the user's code left unsent."""
        ...

    async def end(self, connection: ConnectionT, statement: str) -> None:
        """Run the statement that ends the transaction."""
        ...

    async def run(self, connection: ConnectionT, statement: str) -> int:
        """How many rows were affected."""
        ...

    async def rows(self, connection: ConnectionT, statement: str) -> Sequence[Sequence[Any]]: ...

    def changed(self, connection: ConnectionT) -> bool:
        """Whether the user sent something that changes data, as far as one can see here, and `end` takes several
        statements at once. Then the server is not asked whether anything has changed."""
        ...

    def notified(self, connection: ConnectionT) -> bool:
        """Whether the user's statements may have left a notification."""
        ...

    def fault(self, error: BaseException) -> Fault | None:
        """None: not an error of the driver, the server or the way to it."""
        ...


# What a server says when it does not let us in: libpq passes on the sentence but not the code.
_REFUSALS: Final = (
    (re.compile(r"authentication failed|no pg_hba\.conf entry|(role|database) \".*\" does not exist"), "28000"),
    (re.compile(r"too many clients|remaining connection slots"), TOO_MANY_CONNECTIONS),
)


def fault_of(sqlstate: str | None, message: str, *, lost: bool) -> Fault:
    state = sqlstate or next((code for said, code in _REFUSALS if said.search(message)), "")
    return Fault(state, message.strip(), lost or state in _LOST or state.startswith("08"))


def connecting_failed(name: str, fault: Fault) -> ResourceError:
    if fault.sqlstate == TOO_MANY_CONNECTIONS:
        return ResourceBusy(
            f"resource {name!r}: the server has no connection left ({fault.message})",
            hint="raise max_connections, or lower `connections` of the resources that share the server",
        )
    if fault.sqlstate[:2] in {"28", "3D"} or fault.sqlstate == INSUFFICIENT_PRIVILEGE:
        return ResourceUnfit(
            f"resource {name!r}: the server does not let us in ({fault.message})",
            hint="check the URL's user, password and database",
        )
    return ResourceUnreachable(
        f"resource {name!r}: no connection ({fault.message})",
        hint="check that the server runs and that its address is right",
    )


def preparing_failed(name: str, gid: str, fault: Fault) -> ResourceError:
    """The error for a branch that could not be prepared. The transaction is over, except after BranchUnknown."""
    where = f"resource {name!r}, branch {gid}"
    match fault.sqlstate:
        case _ if fault.lost:
            return _unknown(where, "PREPARE TRANSACTION", fault, "vote no and roll the branch back by its id")
        case "0A000":
            return CannotPrepare(f"{where}: {fault.message}", hint=_how_to_avoid(fault.message))
        case "55000":
            return ResourceUnfit(f"{where}: {fault.message}", hint=HOW_TO_PREPARE)
        case "53200":
            return ResourceBusy(
                f"{where}: {fault.message}",
                hint="raise max_prepared_transactions, or finish old ones: `tutti doctor` lists them",
            )
        case "42710":
            return ResourceBusy(
                f"{where}: a branch of that name is prepared already ({fault.message})",
                hint="finish it first: an earlier attempt at the same work left it",
            )
        case "25P02":
            return CannotPrepare(
                f"{where}: a statement failed before, so nothing of the work can be kept",
                hint="let the exception leave the handler, or put that statement into a savepoint (a nested one)",
            )
        case _:
            return working_failed(where, fault)


def working_failed(where: str, fault: Fault) -> ResourceError:
    """The error for a statement inside the transaction, which is broken by it."""
    if fault.lost:
        return ResourceUnreachable(
            f"{where}: the connection was lost ({fault.message})", hint="the work was rolled back"
        )
    if fault.sqlstate in _NO_TRANSACTION:
        return ended_inside(where)
    if fault.sqlstate in _CONTENTION:
        return ResourceBusy(f"{where}: {fault.message}", hint="the branch votes no; the transaction may be tried again")
    return ResourceError(
        f"{where}: {fault.message} (SQLSTATE {fault.sqlstate or 'unknown'})", hint="the work was rolled back"
    )


def ended_inside(where: str) -> OutcomeNotYours:
    return OutcomeNotYours(
        f"{where}: the database transaction was ended inside the work: its outcome is out of our hands",
        hint="never send COMMIT, ROLLBACK or RESET ALL on this connection, nor behind a semicolon",
    )


def committing_failed(where: str, fault: Fault) -> ResourceError:
    if fault.lost:
        return _unknown(where, "COMMIT", fault, "begin again and enter the same step: the barrier tells")
    return working_failed(where, fault)


def _unknown(where: str, statement: str, fault: Fault, hint: str) -> BranchUnknown:
    return BranchUnknown(
        f"{where}: the connection was lost during {statement} ({fault.message}); it may have happened", hint=hint
    )


def _how_to_avoid(message: str) -> str:
    said = message.lower()
    for words, hint in _UNPREPARABLE:
        if any(word in said for word in words):
            return hint
    return "leave that out of the work, or declare the participant compensatable"


_UNPREPARABLE: Final = (
    (("temporary",), "temporary tables cannot be prepared: use an ordinary table, a CTE or an array parameter"),
    (("listen", "notify"), "notifications cannot be prepared: publish an event in the transaction instead"),
    (("with hold",), "close the cursor WITH HOLD before the work ends, or declare it without HOLD"),
    (("snapshot",), "a transaction that exported a snapshot cannot be prepared: export it elsewhere"),
    (("lock",), "do not take the same advisory lock for the session and for the transaction"),
)
