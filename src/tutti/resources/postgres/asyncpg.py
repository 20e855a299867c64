"""PostgreSQL through asyncpg. The user works with an `asyncpg.Connection`; `transaction()` blocks are savepoints.

calendar = AsyncpgResource("calendar", "postgresql://…")
await calendar.start()
work = await calendar.begin(branch)
await work.connection.execute("insert into appointment values ($1, $2)", room, when)
vote = await work.prepare()
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import asyncpg

from tutti.resources.postgres import lent
from tutti.resources.postgres.driver import Fault, fault_of
from tutti.resources.postgres.lent import Lent
from tutti.resources.postgres.options import PostgresOptions
from tutti.resources.postgres.resource import PostgresResource
from tutti.resources.postgres.statements import changes, not_yours, notifies, refuse_ending

_RETURN_SECONDS: Final = 5.0  # for the reset of a connection; one that does not answer is closed


class AsyncpgResource(PostgresResource[asyncpg.Connection]):
    """`settings` go to asyncpg.create_pool: ssl, password, command_timeout, init, …"""

    def __init__(self, name: str, url: str, options: PostgresOptions | None = None, **settings: Any) -> None:
        chosen = options or PostgresOptions()
        super().__init__(name, AsyncpgDriver(url, chosen, settings), chosen)


class BranchConnection(asyncpg.Connection):  # type: ignore[misc]  # asyncpg is published without type hints
    """A connection whose user works in a transaction of ours. It is lent behind a `LentConnection`."""

    in_branch = False
    used = False  # by a user, who may have left settings, locks and cursors behind
    notified = False
    changed = False
    lent: LentConnection | None = None

    async def open_branch(self, statements: Sequence[str]) -> None:
        await asyncpg.Connection.execute(self, "; ".join(statements))
        # Without an outermost transaction of its own, asyncpg refuses `transaction()` in one that it did not begin.
        self._top_xact = asyncpg.Connection.transaction(self)
        self.in_branch, self.used, self.notified, self.changed = True, True, False, False

    async def end_branch(self, statement: str) -> None:
        self.in_branch = False
        await asyncpg.Connection.execute(self, statement)
        self._top_xact = None

    async def run_ours(self, statement: str) -> str:
        return str(await asyncpg.Connection.execute(self, statement))

    async def rows_ours(self, statement: str) -> Sequence[Sequence[Any]]:
        return [tuple(row) for row in await asyncpg.Connection.fetch(self, statement)]

    def get_reset_query(self) -> str:
        return str(super().get_reset_query()) if self.used else ""

    def _unwrap(self) -> Any:
        """What asyncpg hands to listeners."""
        return self.lent or super()._unwrap()

    # What the user may call; the rest of asyncpg's methods end nothing.

    def _check(self, statement: str) -> None:
        if self.in_branch:
            refuse_ending(statement)
            self.notified = self.notified or notifies(statement)
            self.changed = self.changed or changes(statement)

    async def execute(self, query: str, *args: Any, **options: Any) -> Any:
        self._check(query)
        return await super().execute(query, *args, **options)

    async def executemany(self, command: str, args: Any, **options: Any) -> Any:
        self._check(command)
        return await super().executemany(command, args, **options)

    async def fetch(self, query: str, *args: Any, **options: Any) -> Any:
        self._check(query)
        return await super().fetch(query, *args, **options)

    async def fetchmany(self, query: str, args: Any, **options: Any) -> Any:
        self._check(query)
        return await super().fetchmany(query, args, **options)

    async def fetchrow(self, query: str, *args: Any, **options: Any) -> Any:
        self._check(query)
        return await super().fetchrow(query, *args, **options)

    async def fetchval(self, query: str, *args: Any, **options: Any) -> Any:
        self._check(query)
        return await super().fetchval(query, *args, **options)

    async def prepare(self, query: str, **options: Any) -> Any:
        self._check(query)
        return await super().prepare(query, **options)

    def cursor(self, query: str, *args: Any, **options: Any) -> Any:
        self._check(query)
        return super().cursor(query, *args, **options)

    async def add_listener(self, channel: str, callback: Any) -> Any:
        self.notified = True
        return await super().add_listener(channel, callback)

    async def close(self, **options: Any) -> None:
        if self.in_branch:
            raise not_yours("close()")
        await super().close(**options)

    async def reset(self, **options: Any) -> None:
        if self.in_branch:
            raise not_yours("reset()")
        await super().reset(**options)
        self.used = False


class LentConnection(Lent, asyncpg.connection._ConnectionProxy):  # type: ignore[misc]  # no type hints, as above
    """By its second base it is an `asyncpg.Connection` to isinstance()."""

    __slots__ = ()

    def _maybe_gc_stmt(self, statement: Any) -> None:
        """Called when prepared statements and cursors are deleted, and they may outlive their work."""
        lent.behind(self)._maybe_gc_stmt(statement)


class _Lending(NamedTuple):
    pool: Any
    proxy: Any  # asyncpg's own, which the pool wants back


class AsyncpgDriver:
    """Two pools: one for branches at work, a small one to finish others when the first is used up.

    A pool hands out proxies, which live until the connection has been reset. That is too long: in their last moment
    the connection is in nobody's transaction. So the user has a `LentConnection`, and the proxies are for the pool."""

    def __init__(self, url: str, options: PostgresOptions, settings: dict[str, Any]) -> None:
        self._options = options
        self._settings = settings | {"dsn": url, "connection_class": BranchConnection}
        self._settings.setdefault("timeout", options.connect_timeout)
        self._pool: Any = None
        self._spare: Any = None
        self._opening = asyncio.Lock()
        self._lendings: dict[int, _Lending] = {}  # by the id of what was lent

    async def start(self) -> None:
        async with self._opening:
            if self._pool is None:
                options, settings = self._options, self._settings
                self._spare = await asyncpg.create_pool(min_size=0, max_size=options.spare_connections, **settings)
                self._pool = await asyncpg.create_pool(min_size=1, max_size=options.connections, **settings)

    async def close(self) -> None:
        pools, self._pool, self._spare = (self._pool, self._spare), None, None
        for pool in pools:
            if pool is not None:
                await pool.close()

    async def acquire(self, *, urgent: bool) -> asyncpg.Connection:
        if self._pool is None:
            await self.start()
        pool = self._pool
        if urgent and pool.get_idle_size() == 0 and pool.get_size() >= pool.get_max_size():
            pool = self._spare
        proxy = await pool.acquire(timeout=self._options.connect_timeout)
        behind = proxy._con
        behind.lent = LentConnection(behind)
        self._lendings[id(behind.lent)] = _Lending(pool, proxy)
        return behind.lent

    async def release(self, connection: asyncpg.Connection) -> None:
        pool, proxy = self._returning(connection)
        with suppress(Exception):  # the pool closes a connection that it cannot reset
            await pool.release(proxy, timeout=_RETURN_SECONDS)

    async def discard(self, connection: asyncpg.Connection) -> None:
        pool, proxy = self._returning(connection)
        behind = _behind(connection)
        behind.in_branch = False
        behind.terminate()
        with suppress(Exception):
            await pool.release(proxy)

    def _returning(self, connection: asyncpg.Connection) -> _Lending:
        lent.end(connection)
        _behind(connection).lent = None
        return self._lendings.pop(id(connection))

    async def begin(self, connection: asyncpg.Connection, statements: Sequence[str]) -> None:
        await _behind(connection).open_branch(statements)

    async def flush(self, connection: asyncpg.Connection) -> None: ...

    async def end(self, connection: asyncpg.Connection, statement: str) -> None:
        lent.end(connection)
        await _behind(connection).end_branch(statement)

    async def run(self, connection: asyncpg.Connection, statement: str) -> int:
        count = (await _behind(connection).run_ours(statement)).rpartition(" ")[2]
        return int(count) if count.isdigit() else 0

    async def rows(self, connection: asyncpg.Connection, statement: str) -> Sequence[Sequence[Any]]:
        return await _behind(connection).rows_ours(statement)

    def changed(self, connection: asyncpg.Connection) -> bool:
        return _behind(connection).changed

    def notified(self, connection: asyncpg.Connection) -> bool:
        return _behind(connection).notified

    def fault(self, error: BaseException) -> Fault | None:
        match error:
            case asyncpg.PostgresError():
                return fault_of(error.sqlstate, str(error), lost=isinstance(error, asyncpg.PostgresConnectionError))
            # InternalClientError: the last words of a dying backend were read when a statement was about to be sent.
            case asyncpg.InterfaceError() | asyncpg.InternalClientError() | OSError():
                return fault_of(None, str(error) or type(error).__name__, lost=True)
            case _:
                return None


def _behind(connection: asyncpg.Connection) -> BranchConnection:
    behind: BranchConnection = lent.behind(connection)
    return behind
