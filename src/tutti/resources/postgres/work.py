"""One branch at work on a pinned connection.

1. Before PREPARE, one question tells two things: whether the transaction is still the one that was begun (the user may
   have ended it behind our back), and whether it has changed anything. PREPARE itself would not tell: in a failed
   transaction, or in none, it rolls back and reports no error. Where the driver knows that data were changed, only the
   first is open; then a statement that fails unless the transaction is ours goes to the server together with PREPARE,
   which is not run after an error.
2. A branch that has changed nothing is rolled back and votes read-only, unless it may have left notifications, which
   PostgreSQL does not count as changes and does not prepare: then PREPARE refuses with the reason.
3. An error of ours, or an interruption, ends the work: the connection is closed, and the server rolls back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Generic, Protocol

from tutti.errors import OutcomeNotYours, ResourceError
from tutti.resources import barrier
from tutti.resources.barrier import Dialect
from tutti.resources.gid import BranchId
from tutti.resources.port import Admission, Outcome, Vote
from tutti.resources.postgres.driver import (
    ConnectionT,
    Driver,
    Fault,
    committing_failed,
    ended_inside,
    preparing_failed,
    working_failed,
)
from tutti.resources.postgres.options import PostgresOptions

_STATE: Final = "SELECT current_setting('tutti.branch', true), pg_current_xact_id_if_assigned() IS NULL"


_ENDED: Final = "tutti: ended inside"
# Fails unless the transaction is ours. `concat` is not constant to the planner: the cast waits until it is wanted.
_OURS: Final = (
    "SELECT CASE WHEN current_setting('tutti.branch', true) IS DISTINCT FROM '{gid}'"
    " THEN concat('tutti: ended inside')::int END"
)


class Home(Protocol):
    """What a work needs of the resource that it belongs to."""

    @property
    def name(self) -> str: ...
    @property
    def options(self) -> PostgresOptions: ...
    @property
    def dialect(self) -> Dialect: ...

    def ended(self, work: Any) -> None: ...
    def give_back(self, returning: Coroutine[Any, Any, None]) -> None: ...


class PostgresWork(Generic[ConnectionT]):
    """See `tutti.resources.port.Work`."""

    def __init__(
        self,
        home: Home,
        driver: Driver[ConnectionT],
        connection: ConnectionT,
        branch: BranchId,
        gid: str,
    ) -> None:
        self.branch = branch
        self._home = home
        self._driver = driver
        self._connection: ConnectionT | None = connection
        self._gid = gid
        self._savepoints = 0

    @property
    def connection(self) -> ConnectionT:
        if self._connection is None:
            raise OutcomeNotYours(
                f"{self._where}: the work has ended, its connection is given back",
                hint="do all of the work before the handler returns",
            )
        return self._connection

    @property
    def _where(self) -> str:
        return f"resource {self._home.name!r}, branch {self._gid}"

    def attempt(self) -> AbstractAsyncContextManager[None]:
        return self._attempt()

    @asynccontextmanager
    async def _attempt(self) -> AsyncIterator[None]:
        self._savepoints += 1
        name = f"tutti_{self._savepoints}"
        await self.run(f"SAVEPOINT {name}")
        try:
            yield
        except BaseException:
            if self._connection is not None:
                await self.run(f"ROLLBACK TO SAVEPOINT {name}")
            raise
        await self.run(f"RELEASE SAVEPOINT {name}")

    async def enter(self, step: int, entry: bytes = b"") -> Admission:
        dialect = self._home.dialect
        inserted = await self.run(barrier.insert(dialect, self.branch, step, "work", word="done", entry=entry)) == 1
        rows = [] if inserted else await self.rows(barrier.select_word(dialect, self.branch, step, "work"))
        return barrier.admitted_work(inserted=inserted, word=rows[0][0] if rows else None)

    async def undo(self, step: int) -> Admission:
        dialect = self._home.dialect
        voided = await self.run(barrier.insert(dialect, self.branch, step, "work", word="void")) == 1
        if voided:
            return barrier.admitted_undo(voided=True, inserted=False)
        [[word]] = await self.rows(barrier.select_word(dialect, self.branch, step, "work"))
        if word == "void":  # an empty compensation, repeated
            return Admission.REPEATED
        inserted = await self.run(barrier.insert(dialect, self.branch, step, "undo", word="done")) == 1
        return barrier.admitted_undo(voided=False, inserted=inserted)

    async def prepare(self) -> Vote:
        connection = self.connection
        try:
            async with asyncio.timeout(self._home.options.statement_timeout):
                await self._driver.flush(connection)
                changed = self._driver.changed(connection)
                read_only = not changed and await self._unchanged(connection)
                end = "ROLLBACK" if read_only else f"PREPARE TRANSACTION '{self._gid}'"
                await self._driver.end(connection, f"{_OURS.format(gid=self._gid)}; {end}" if changed else end)
        except BaseException as error:
            await self._drop()
            fault = read_fault(self._driver, error)
            if fault is None:
                raise
            if _ENDED in fault.message:
                raise ended_inside(self._where) from error
            raise preparing_failed(self._home.name, self._gid, fault) from error
        self._give_back()
        return Vote.READ_ONLY if read_only else Vote.PREPARED

    async def _unchanged(self, connection: ConnectionT) -> bool:
        [[begun, unchanged]] = await self._driver.rows(connection, _STATE)
        self._check_still_ours(begun)
        return bool(unchanged) and not self._driver.notified(connection)

    def _check_still_ours(self, begun: object) -> None:
        if begun != self._gid:
            raise ended_inside(self._where)

    async def commit(self) -> None:
        connection = self.connection
        try:
            async with asyncio.timeout(self._home.options.statement_timeout):
                await self._driver.flush(connection)
                # COMMIT of a failed transaction rolls back and reports no error; this question does.
                [[begun, _]] = await self._driver.rows(connection, _STATE)
                self._check_still_ours(begun)
        except BaseException as error:
            await self._failed(error)
            raise
        try:
            async with asyncio.timeout(self._home.options.statement_timeout):
                await self._driver.end(connection, "COMMIT")
        except BaseException as error:
            await self._drop()
            fault = read_fault(self._driver, error)
            if fault is None:
                raise
            raise committing_failed(self._where, fault) from error
        self._give_back()

    async def commit_last(self) -> Outcome:
        dialect = self._home.dialect
        if await self.run(barrier.insert(dialect, self.branch, 0, "outcome", word="commit")) == 1:
            await self.commit()
            return "commit"
        [[word]] = await self.rows(barrier.select_word(dialect, self.branch, 0, "outcome"))
        await self.rollback()
        return barrier.outcome_of(word)

    async def rollback(self) -> None:
        if self._connection is None:
            return
        try:
            async with asyncio.timeout(self._home.options.statement_timeout):
                await self._driver.end(self._connection, "ROLLBACK")
        except BaseException as error:
            await self._drop()
            if read_fault(self._driver, error) is None:
                raise
        else:
            self._give_back()

    async def run(self, statement: str) -> int:
        """One statement of ours inside the work. An error ends the work."""
        connection = self.connection
        try:
            async with asyncio.timeout(self._home.options.statement_timeout):
                return await self._driver.run(connection, statement)
        except BaseException as error:
            await self._failed(error)
            raise

    async def rows(self, statement: str) -> Sequence[Sequence[Any]]:
        connection = self.connection
        try:
            async with asyncio.timeout(self._home.options.statement_timeout):
                return await self._driver.rows(connection, statement)
        except BaseException as error:
            await self._failed(error)
            raise

    async def _failed(self, error: BaseException) -> None:
        await self._drop()
        fault = read_fault(self._driver, error)
        if fault is not None:
            raise working_failed(self._where, fault) from error

    def _give_back(self) -> None:
        connection, self._connection = self.connection, None
        self._home.ended(self)
        self._home.give_back(self._driver.release(connection))

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        self._home.ended(self)
        if connection is not None:
            await self._driver.discard(connection)


def read_fault(driver: Driver[Any], error: BaseException) -> Fault | None:
    """Our own time-out means that the connection is lost: the answer may still come, and nobody reads it."""
    if isinstance(error, TimeoutError):
        return Fault("", "no answer in time", lost=True)
    return None if isinstance(error, ResourceError) else driver.fault(error)
