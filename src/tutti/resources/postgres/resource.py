"""PostgreSQL as a resource, whatever the driver.

1. A connection is pinned by `begin` and given back, reset, once the branch is prepared or has ended. From PREPARE on
   the branch belongs to the database, not to the connection.
2. COMMIT PREPARED and ROLLBACK PREPARED run on any connection to the database, from any process. "Does not exist" is
   success only if the outcome is decided; a lost connection is tried again, because repeating is harmless.
3. An operation that was interrupted (cancelled, timed out) leaves a connection in an unknown state: it is closed, and
   the server rolls back whatever was not prepared.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Generic, Literal, TypeVar

from tutti.errors import (
    BranchUnknown,
    InvariantViolated,
    NoSuchBranch,
    ResourceBusy,
    ResourceError,
    ResourceUnfit,
    ResourceUnreachable,
)
from tutti.limits import RESOURCE_FINISH_ATTEMPTS_COUNT, RESOURCE_FINISH_PAUSE_SECONDS
from tutti.resources import barrier
from tutti.resources.gid import BranchId, branch_of, gid_of, gid_start
from tutti.resources.port import CompletedStep, InDoubt, Outcome, Preflight
from tutti.resources.postgres import preflight
from tutti.resources.postgres.driver import (
    FEATURE_NOT_SUPPORTED,
    INSUFFICIENT_PRIVILEGE,
    NOT_IN_PREREQUISITE_STATE,
    UNDEFINED_OBJECT,
    ConnectionT,
    Driver,
    Fault,
    connecting_failed,
    working_failed,
)
from tutti.resources.postgres.options import PostgresOptions
from tutti.resources.postgres.work import PostgresWork, read_fault

Answer = TypeVar("Answer")

_PREPARED: Final = (
    "SELECT gid, extract(epoch from prepared)::float8 FROM pg_prepared_xacts WHERE database = current_database()"
)
_ATTEMPTS: Final = 3  # a pooled connection may have died unseen; a fresh one has not


class PostgresResource(Generic[ConnectionT]):
    """See `tutti.resources.port.Resource`."""

    prepares: Final = True

    def __init__(self, name: str, driver: Driver[ConnectionT], options: PostgresOptions) -> None:
        gid_of(options.prefix, BranchId("x", "x", name))
        self.name = name
        self.options = options
        self.dialect = options.dialect
        self._driver = driver
        self._started = False
        self._works: set[PostgresWork[ConnectionT]] = set()
        self._returning: set[asyncio.Task[None]] = set()  # connections on their way back to the pool

    async def start(self) -> bool:
        if self._started:
            return False
        async with self._connecting():
            await self._driver.start()
        self._started = True
        return True

    async def close(self) -> None:
        self._started = False
        for work in tuple(self._works):
            await work.rollback()
        while self._returning:
            await asyncio.wait(self._returning)
        await self._driver.close()

    # Whether it is fit

    async def preflight(self, *, barrier: bool = False) -> Preflight:
        [row] = await self._rows(preflight.FACTS)
        found = preflight.checked(self.name, preflight.facts_of(row), barrier=barrier, durable=self.options.durable)
        if barrier:
            await self._ask(self._create_barrier)
        return found

    async def _create_barrier(self, connection: ConnectionT) -> None:
        """Several processes may come at once. CREATE … IF NOT EXISTS is no help there: the loser gets a duplicate."""
        lock = "SELECT pg_advisory_xact_lock(hashtext('tutti'), hashtext('barrier'))"
        table = self.dialect.table
        [[missing]] = await self._driver.rows(connection, f"SELECT to_regclass('{table}') IS NULL")
        try:
            if missing:
                await self._driver.begin(connection, ["BEGIN", lock, barrier.create_table(self.dialect)])
                await self._driver.end(connection, "COMMIT")
            [[allowed]] = await self._driver.rows(
                connection, f"SELECT has_table_privilege('{table}', 'select, insert, delete')"
            )
        except Exception as error:
            fault = self._driver.fault(error)
            if fault is None or fault.sqlstate not in {INSUFFICIENT_PRIVILEGE, "3F000"}:
                raise
            raise self._no_barrier(fault.message) from error
        if not allowed:
            raise self._no_barrier("no right to select, insert and delete in it")

    def _no_barrier(self, why: str) -> ResourceUnfit:
        return ResourceUnfit(
            f"resource {self.name!r}: the table {self.dialect.table} cannot be used ({why})",
            hint=f"let an administrator run: {barrier.create_table(self.dialect)}; GRANT SELECT, INSERT, DELETE ON "
            f"{self.dialect.table} TO this role; or name another schema in the options",
        )

    # Branches at work

    async def begin(self, branch: BranchId) -> PostgresWork[ConnectionT]:
        gid = gid_of(self.options.prefix, branch)
        isolation = f" ISOLATION LEVEL {self.options.isolation.upper()}" if self.options.isolation else ""
        statements = [
            f"BEGIN{isolation}",
            f"SET LOCAL lock_timeout = {max(1, round(self.options.lock_timeout * 1000))}",
            f"SET LOCAL tutti.branch = '{gid}'",
        ]
        for attempt in range(1, _ATTEMPTS + 1):
            connection = await self.acquire(urgent=False)
            try:
                async with asyncio.timeout(self.options.statement_timeout):
                    await self._driver.begin(connection, statements)
            except BaseException as error:
                await self._driver.discard(connection)
                fault = self._read(error)
                if fault is None:
                    raise
                if not fault.lost or attempt == _ATTEMPTS:
                    raise working_failed(f"resource {self.name!r}, branch {gid}", fault) from error
            else:
                work = PostgresWork(self, self._driver, connection, branch, gid)
                self._works.add(work)
                return work
        raise InvariantViolated("unreachable: the last attempt returns or raises")

    def ended(self, work: PostgresWork[ConnectionT]) -> None:
        self._works.discard(work)

    def give_back(self, returning: Coroutine[Any, Any, None]) -> None:
        """Resetting takes a round trip that no vote has to wait for."""
        task = asyncio.ensure_future(returning)
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)

    # Prepared branches

    async def commit(self, branch: BranchId, *, decided: bool) -> None:
        await self._finish(branch, "COMMIT", decided=decided)

    async def rollback(self, branch: BranchId, *, decided: bool) -> None:
        await self._finish(branch, "ROLLBACK", decided=decided)

    async def _finish(self, branch: BranchId, verb: Literal["COMMIT", "ROLLBACK"], *, decided: bool) -> None:
        gid = gid_of(self.options.prefix, branch)
        last: Exception | None = None
        for attempt in range(RESOURCE_FINISH_ATTEMPTS_COUNT):
            if attempt:
                await asyncio.sleep(RESOURCE_FINISH_PAUSE_SECONDS)
            try:
                return await self._finish_once(gid, verb)
            except NoSuchBranch:
                if decided or isinstance(last, BranchUnknown):  # an attempt of ours that broke has done it
                    return None
                raise
            except (BranchUnknown, ResourceBusy, ResourceUnreachable) as error:
                last = error
        raise ResourceUnreachable(
            f"resource {self.name!r}, branch {gid}: not finished ({last})",
            hint="nothing is lost: it stays prepared, and the same call may be made again",
        ) from last

    async def _finish_once(self, gid: str, verb: str) -> None:
        connection = await self.acquire(urgent=True)
        try:
            async with asyncio.timeout(self.options.statement_timeout):
                await self._driver.run(connection, f"{verb} PREPARED '{gid}'")
        except BaseException as error:
            fault = self._read(error)
            if fault is None or fault.lost:
                await self._driver.discard(connection)
            else:
                self.give_back(self._driver.release(connection))
            if fault is None:
                raise
            raise self._finishing_failed(gid, verb, fault) from error
        self.give_back(self._driver.release(connection))

    def _finishing_failed(self, gid: str, verb: str, fault: Fault) -> ResourceError:
        where = f"resource {self.name!r}, branch {gid}"
        if fault.lost:
            return BranchUnknown(f"{where}: the connection was lost during {verb} PREPARED ({fault.message})")
        match fault.sqlstate:
            case state if state == UNDEFINED_OBJECT:
                return NoSuchBranch(
                    f"{where}: {fault.message}",
                    hint="it was finished before, or never prepared; ask for the outcome first",
                )
            case state if state == NOT_IN_PREREQUISITE_STATE:
                return ResourceBusy(f"{where}: somebody else is finishing it ({fault.message})")
            case state if state in {INSUFFICIENT_PRIVILEGE, FEATURE_NOT_SUPPORTED}:
                return ResourceUnfit(
                    f"{where}: {fault.message}",
                    hint="only the role that prepared it, or a superuser, may finish it, in the same database",
                )
            case _:
                return working_failed(where, fault)

    async def recover(self, owner: str = "") -> Sequence[InDoubt]:
        start = gid_start(self.options.prefix, owner)
        statement = f"{_PREPARED} AND starts_with(gid, '{start}') ORDER BY prepared, gid"
        rows = await self._rows(statement)
        found = ((branch_of(self.options.prefix, owner, gid), prepared_at) for gid, prepared_at in rows)
        return [InDoubt(branch, prepared_at) for branch, prepared_at in found if branch is not None]

    # The barrier

    async def completed(self, branch: BranchId) -> Sequence[CompletedStep]:
        gid_of(self.options.prefix, branch)
        rows = await self._rows(barrier.select_completed(self.dialect, branch))
        return [CompletedStep(step, bytes(entry)) for step, entry in rows]

    async def unsettled(self, owner: str) -> Sequence[BranchId]:
        gid_start(self.options.prefix, owner)
        rows = await self._rows(barrier.select_unsettled(self.dialect, owner))
        return [BranchId(owner, tx, branch) for tx, branch in rows]

    async def settle_last(self, branch: BranchId) -> Outcome:
        work = await self.begin(branch)
        try:
            await work.run(barrier.insert(self.dialect, branch, 0, "outcome", word="abort"))
            [[word]] = await work.rows(barrier.select_word(self.dialect, branch, 0, "outcome"))
            await work.commit()
        finally:
            await work.rollback()
        return barrier.outcome_of(word)

    async def forget(self, branch: BranchId) -> None:
        gid_of(self.options.prefix, branch)
        await self._ask(lambda connection: self._driver.run(connection, barrier.delete(self.dialect, branch)))

    # Connections

    async def acquire(self, *, urgent: bool) -> ConnectionT:
        async with self._connecting():
            return await self._driver.acquire(urgent=urgent)

    @asynccontextmanager
    async def _connecting(self) -> AsyncIterator[None]:
        try:
            yield
        except TimeoutError as error:
            raise ResourceBusy(
                f"resource {self.name!r}: no connection was free, nor made, within {self.options.connect_timeout} s",
                hint="raise `connections` in the resource's options; each branch at work holds one",
            ) from error
        except Exception as error:
            fault = self._read(error)
            if fault is None:
                raise
            raise connecting_failed(self.name, fault) from error

    async def _ask(self, question: Callable[[ConnectionT], Awaitable[Answer]]) -> Answer:
        """Statements outside of branches, which may be repeated: on a connection that turns out dead they are."""
        for attempt in range(1, _ATTEMPTS + 1):
            connection = await self.acquire(urgent=True)
            try:
                async with asyncio.timeout(self.options.statement_timeout):
                    answer = await question(connection)
            except BaseException as error:
                await self._driver.discard(connection)
                fault = self._read(error)
                if fault is None:
                    raise
                if not fault.lost or attempt == _ATTEMPTS:
                    raise working_failed(f"resource {self.name!r}", fault) from error
            else:
                self.give_back(self._driver.release(connection))
                return answer
        raise InvariantViolated("unreachable: the last attempt returns or raises")

    async def _rows(self, statement: str) -> Sequence[Sequence[Any]]:
        return await self._ask(lambda connection: self._driver.rows(connection, statement))

    def _read(self, error: BaseException) -> Fault | None:
        return read_fault(self._driver, error)
