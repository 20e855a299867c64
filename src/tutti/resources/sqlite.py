"""SQLite as a resource. It cannot prepare, so it takes part in one of two ways.

* *Compensatable*: work, barrier row, log of consumed events and yes vote commit in one local transaction (`enter`, then
  `commit`), and are undone if the transaction aborts after all (`undo`, then `commit`).
* *Last resource*: its own commit decides the whole transaction (`commit_last`), and recovery reads the outcome from it,
  or makes it abort (`settle_last`).

 1. SQLite has one writer. A work takes the write lock when it begins (BEGIN IMMEDIATE), so it never finds out in the
    middle that it cannot go on. Works in one process take turns; who waits longer than `lock_timeout` is told.
 2. All calls run in one thread of the resource's own. Nobody waits in it for another work of this process, so a work
    can always be ended.
 3. Writes are synced (`synchronous=FULL`, write-ahead log): a vote that was given survives a loss of power.
 4. The database itself refuses COMMIT and ROLLBACK to the user, by its authorizer.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from tutti.errors import (
    CannotPrepare,
    DeclarationError,
    NoSuchBranch,
    OutcomeNotYours,
    ResourceBusy,
    ResourceError,
    ResourceUnfit,
    invariant,
)
from tutti.limits import RESOURCE_LOCK_SECONDS
from tutti.resources import barrier
from tutti.resources.gid import PREFIX, BranchId, gid_of
from tutti.resources.port import Admission, CompletedStep, InDoubt, Outcome, Preflight, Vote

Result = TypeVar("Result")
Parameters = Sequence[Any] | Mapping[str, Any]

# The comment keeps our statements apart from the user's in the driver's cache, behind which nobody asks the authorizer.
_COMMIT: Final = "COMMIT /* tutti */"
_ROLLBACK: Final = "ROLLBACK /* tutti */"
_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_DIALECT: Final = barrier.Dialect(
    barrier.TABLE,
    *barrier.SQLITE_BLOB,
    now="(julianday('now') - 2440587.5) * 86400.0",
    age="min(rowid)",  # SQLite's clock counts milliseconds, and two commits may share one
)


class SqliteResult(NamedTuple):
    """What a statement gave: its rows, all of them, and how many it changed."""

    rows: list[tuple[Any, ...]]
    changed: int
    last_row_id: int | None


class SqliteSession:
    """What the user works with: statements that run in the resource's thread."""

    def __init__(self, work: SqliteWork) -> None:
        self._work = work

    async def execute(self, statement: str, parameters: Parameters = ()) -> SqliteResult:
        def run(connection: sqlite3.Connection) -> SqliteResult:
            cursor = connection.execute(statement, parameters)
            return SqliteResult(cursor.fetchall(), cursor.rowcount, cursor.lastrowid)

        return await self.run(run)

    async def executemany(self, statement: str, parameters: Iterable[Parameters]) -> int:
        return await self.run(lambda connection: connection.executemany(statement, parameters).rowcount)

    async def run(self, function: Callable[[sqlite3.Connection], Result]) -> Result:
        """Call `function` with the `sqlite3.Connection`, in its thread. Keep neither of them."""
        return await self._work.user_runs(function)


class SqliteResource:
    """See `tutti.resources.port.Resource`. `setup` is called with each new `sqlite3.Connection`: pragmas, functions."""

    prepares: Final = False

    def __init__(
        self,
        name: str,
        path: Path | str,
        *,
        lock_timeout: float = RESOURCE_LOCK_SECONDS,
        prefix: str = PREFIX,
        setup: Callable[[sqlite3.Connection], object] | None = None,
    ) -> None:
        gid_of(prefix, BranchId("x", "x", name))
        if str(path) in {"", ":memory:"}:
            raise DeclarationError(f"resource {name!r}: a database in memory keeps no vote", hint="name a file")
        self.name = name
        self.path = Path(path).absolute()
        self.lock_timeout = lock_timeout
        self._prefix = prefix
        self._setup = setup
        self._turn = asyncio.Lock()
        self._work: SqliteWork | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._closed = False
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._ours = False  # read by the authorizer, in the thread

    async def start(self) -> bool:
        if self._thread is not None:
            return False
        self._thread, self._closed = ThreadPoolExecutor(1, thread_name_prefix=f"tutti-{self.name}"), False
        await self.in_thread(self._open, "open")
        return True

    def _open(self) -> None:
        self._writer, self._reader = self._connect(), self._connect()
        self._writer.set_authorizer(self._authorize)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=self.lock_timeout, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        if self._setup:
            self._setup(connection)
        return connection

    def _authorize(self, action: int, *_: object) -> int:
        return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_TRANSACTION and not self._ours else sqlite3.SQLITE_OK

    async def close(self) -> None:
        self._closed = True
        if self._thread is None:
            return
        if self._work is not None:
            await self._work.rollback()
        thread, self._thread = self._thread, None
        await asyncio.get_running_loop().run_in_executor(thread, self._shut)
        thread.shutdown()

    def _shut(self) -> None:
        for connection in (self._writer, self._reader):
            if connection is not None:
                connection.close()

    async def preflight(self, *, barrier: bool = False) -> Preflight:
        def look(connection: sqlite3.Connection) -> Sequence[tuple[str, str]]:
            pragmas = ("journal_mode", "synchronous")
            return [(pragma, str(connection.execute(f"PRAGMA {pragma}").fetchone()[0])) for pragma in pragmas]

        for pragma, found in await self.read(look):
            wanted = {"journal_mode": ("wal", "delete", "truncate", "persist"), "synchronous": ("2", "3")}[pragma]
            if found not in wanted:
                raise ResourceUnfit(
                    f"resource {self.name!r}: PRAGMA {pragma} is {found}, so a vote could be lost",
                    hint="leave journal_mode and synchronous as the resource sets them",
                )
        if barrier:
            await self._write(create_barrier)
        return Preflight(f"SQLite {sqlite3.sqlite_version}")

    async def begin(self, branch: BranchId) -> SqliteWork:
        gid_of(self._prefix, branch)
        try:
            async with asyncio.timeout(self.lock_timeout):
                await self._turn.acquire()
        except TimeoutError as error:
            raise ResourceBusy(
                f"resource {self.name!r}: another branch writes, and SQLite has one writer",
                hint="keep works short, or use PostgreSQL",
            ) from error
        try:
            await self.write(lambda connection: connection.execute("BEGIN IMMEDIATE"), ours=True)
        except BaseException:
            # Cancelled on the way, it may have begun all the same.
            await self.write(_roll_back, ours=True)
            self._turn.release()
            raise
        self._work = SqliteWork(self, branch)
        return self._work

    def ended(self) -> None:
        self._work = None
        self._turn.release()

    # Prepared branches: there are none

    async def commit(self, branch: BranchId, *, decided: bool) -> None:
        self._nothing_prepared(branch, decided=decided)

    async def rollback(self, branch: BranchId, *, decided: bool) -> None:
        self._nothing_prepared(branch, decided=decided)

    def _nothing_prepared(self, branch: BranchId, *, decided: bool) -> None:
        if not decided:
            raise NoSuchBranch(f"resource {self.name!r}: SQLite holds no prepared branch {branch}")

    async def recover(self, owner: str = "") -> Sequence[InDoubt]:  # noqa: ARG002  whoever asks
        return []

    # The barrier

    async def completed(self, branch: BranchId) -> Sequence[CompletedStep]:
        gid_of(self._prefix, branch)
        rows = await self.read(lambda c: c.execute(barrier.select_completed(_DIALECT, branch)).fetchall())
        return [CompletedStep(step, entry) for step, entry in rows]

    async def unsettled(self, owner: str) -> Sequence[BranchId]:
        gid_of(self._prefix, BranchId(owner, "x", "x"))
        rows = await self.read(lambda c: c.execute(barrier.select_unsettled(_DIALECT, owner)).fetchall())
        return [BranchId(owner, tx, branch) for tx, branch in rows]

    async def settle_last(self, branch: BranchId) -> Outcome:
        work = await self.begin(branch)
        try:
            word = await work.marked("abort")
            await work.commit()
        finally:
            await work.rollback()
        return barrier.outcome_of(word)

    async def forget(self, branch: BranchId) -> None:
        gid_of(self._prefix, branch)
        await self._write(lambda connection: connection.execute(barrier.delete(_DIALECT, branch)))

    async def _write(self, function: Callable[[sqlite3.Connection], object]) -> None:
        """A transaction of its own."""
        work = await self.begin(BranchId("tutti", "x", "x"))
        try:
            await self.write(function)
            await work.commit()
        finally:
            await work.rollback()

    # The thread

    async def write(self, function: Callable[[sqlite3.Connection], Result], *, ours: bool = False) -> Result:
        def call() -> Result:
            invariant(self._writer, "the resource was not started")
            self._ours = ours
            try:
                return function(self._writer)  # type: ignore[arg-type]  # the line above
            finally:
                self._ours = False

        return await self.in_thread(call, "write")

    async def read(self, function: Callable[[sqlite3.Connection], Result]) -> Result:
        def call() -> Result:
            invariant(self._reader, "the resource was not started")
            return function(self._reader)  # type: ignore[arg-type]  # the line above

        return await self.in_thread(call, "read")

    async def in_thread(self, call: Callable[[], Result], what: str) -> Result:
        if self._thread is None and not self._closed:
            await self.start()
        invariant(self._thread, "the resource is closed")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, call)
        except sqlite3.Error as error:
            raise self._failed(what, error) from error

    def _failed(self, what: str, error: sqlite3.Error) -> ResourceError:
        where = f"resource {self.name!r} ({self.path})"
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the rest of the code says which kind of that kind
        if code in _BUSY:
            return ResourceBusy(f"{where}: {error}", hint="another process writes; keep works short, or use PostgreSQL")
        if code == sqlite3.SQLITE_CANTOPEN:
            return ResourceUnfit(f"{where}: {error}", hint="its folder must exist and be writable")
        return ResourceError(f"{where}: could not {what}: {error}", hint="the work was rolled back")


class SqliteWork:
    """See `tutti.resources.port.Work`."""

    def __init__(self, resource: SqliteResource, branch: BranchId) -> None:
        self.branch = branch
        self._resource = resource
        self._open = True
        self._savepoints = 0

    @property
    def connection(self) -> SqliteSession:
        self._check_open()
        return SqliteSession(self)

    async def user_runs(self, function: Callable[[sqlite3.Connection], Result]) -> Result:
        self._check_open()

        def call(connection: sqlite3.Connection) -> Result:
            self._check_still_ours(connection)
            return function(connection)

        try:
            return await self._resource.write(call)
        except ResourceError as error:
            match error.__cause__:
                case sqlite3.Error(sqlite_errorcode=sqlite3.SQLITE_AUTH) as refused:
                    raise _not_yours() from refused
                case sqlite3.Error() as users:  # the user's own error, as sqlite3 raises it
                    raise users from None
                case _:
                    raise

    def attempt(self) -> AbstractAsyncContextManager[None]:
        return self._attempt()

    @asynccontextmanager
    async def _attempt(self) -> AsyncIterator[None]:
        self._savepoints += 1
        name = f"tutti_{self._savepoints}"
        await self._run(f"SAVEPOINT {name}")
        try:
            yield
        except BaseException:
            if self._open:
                await self._run(f"ROLLBACK TO {name}")
            raise
        await self._run(f"RELEASE {name}")

    async def enter(self, step: int, entry: bytes = b"") -> Admission:
        inserted = await self._run(barrier.insert(_DIALECT, self.branch, step, "work", word="done", entry=entry)) == 1
        word = None if inserted else await self._word(step, "work")
        return barrier.admitted_work(inserted=inserted, word=word)

    async def undo(self, step: int) -> Admission:
        if await self._run(barrier.insert(_DIALECT, self.branch, step, "work", word="void")) == 1:
            return barrier.admitted_undo(voided=True, inserted=False)
        if await self._word(step, "work") == "void":  # an empty compensation, repeated
            return Admission.REPEATED
        inserted = await self._run(barrier.insert(_DIALECT, self.branch, step, "undo", word="done")) == 1
        return barrier.admitted_undo(voided=False, inserted=inserted)

    async def marked(self, word: Outcome) -> str | None:
        """The outcome marker that is there now: this one, or an earlier one."""
        await self._run(barrier.insert(_DIALECT, self.branch, 0, "outcome", word=word))
        return await self._word(0, "outcome")

    async def prepare(self) -> Vote:
        self._check_open()
        await self.rollback()
        raise CannotPrepare(
            f"resource {self._resource.name!r}: SQLite cannot prepare",
            hint="declare the participant compensatable, or make this the last resource of the manager's process",
        )

    async def commit(self) -> None:
        self._check_open()

        def call(connection: sqlite3.Connection) -> None:
            self._check_still_ours(connection)
            connection.execute(_COMMIT)

        try:
            await self._resource.write(call, ours=True)
        except BaseException:
            await self.rollback()
            raise
        self._end()

    async def commit_last(self) -> Outcome:
        outcome = barrier.outcome_of(await self.marked("commit"))
        if outcome == "commit":
            await self.commit()
        else:
            await self.rollback()
        return outcome

    async def rollback(self) -> None:
        if self._open:
            await self._resource.write(_roll_back, ours=True)
            self._end()

    async def _run(self, statement: str) -> int:
        self._check_open()
        return await self._resource.write(lambda connection: connection.execute(statement).rowcount)

    async def _word(self, step: int, op: barrier.Op) -> str | None:
        statement = barrier.select_word(_DIALECT, self.branch, step, op)
        row = await self._resource.write(lambda connection: connection.execute(statement).fetchone())
        return None if row is None else str(row[0])

    def _check_still_ours(self, connection: sqlite3.Connection) -> None:
        if not connection.in_transaction:
            raise OutcomeNotYours(
                f"resource {self._resource.name!r}: the database rolled the work back in the middle",
                hint="ON CONFLICT ROLLBACK and RAISE(ROLLBACK) end the transaction; so does a full disk",
            )

    def _end(self) -> None:
        if self._open:
            self._open = False
            self._resource.ended()

    def _check_open(self) -> None:
        if not self._open:
            raise OutcomeNotYours(
                "the work has ended, its connection is given back", hint="do all of the work before the handler returns"
            )


def create_barrier(connection: sqlite3.Connection) -> None:
    connection.execute(barrier.create_table(_DIALECT))


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute(_ROLLBACK)


def _not_yours() -> OutcomeNotYours:
    return OutcomeNotYours(
        "COMMIT, ROLLBACK and BEGIN belong to the transaction: its outcome is not decided here",
        hint="raise an exception or call tx.set_abort(reason) to abort; return to agree; use a savepoint for a part",
    )
