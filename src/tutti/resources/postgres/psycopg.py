"""PostgreSQL through psycopg 3. The user works with a `psycopg.AsyncConnection`; `transaction()` blocks are savepoints.

calendar = PsycopgResource("calendar", "postgresql://…")
await calendar.start()
work = await calendar.begin(branch)
await work.connection.execute("insert into appointment values (%s, %s)", (room, when))
vote = await work.prepare()
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, cast

import psycopg
from psycopg.sql import Composable

from tutti.resources.pool import Pool
from tutti.resources.postgres import lent
from tutti.resources.postgres.driver import RESET, Fault, fault_of
from tutti.resources.postgres.lent import Lent
from tutti.resources.postgres.options import PostgresOptions
from tutti.resources.postgres.resource import PostgresResource
from tutti.resources.postgres.statements import not_yours, notifies, refuse_ending

Query = Any  # psycopg's own union: texts, bytes, composed texts, templates

_USERS_CHOICES: Final = ("row_factory", "cursor_factory", "server_cursor_factory", "prepare_threshold")


class PsycopgResource(PostgresResource[psycopg.AsyncConnection[Any]]):
    """`settings` go to psycopg.AsyncConnection.connect: sslmode, password, row_factory, prepare_threshold, …"""

    def __init__(self, name: str, url: str, options: PostgresOptions | None = None, **settings: Any) -> None:
        chosen = options or PostgresOptions()
        super().__init__(name, PsycopgDriver(url, chosen, settings), chosen)


class BranchConnection(psycopg.AsyncConnection[Any]):
    """A connection whose user works in a transaction of ours. It is lent behind a `LentConnection`."""

    in_branch = False
    used = False
    notified = False
    choices: dict[str, Any]

    def look_at(self, query: Query) -> None:
        if self.in_branch:
            text = _text(query, self)
            refuse_ending(text)
            self.notified = self.notified or notifies(text)

    async def commit(self) -> None:
        if self.in_branch:
            raise not_yours("commit()")
        await super().commit()

    async def rollback(self) -> None:
        if self.in_branch:
            raise not_yours("rollback()")
        await super().rollback()

    async def close(self) -> None:
        if self.in_branch:
            raise not_yours("close()")
        await super().close()

    async def run_ours(self, statement: str) -> psycopg.AsyncCursor[tuple[Any, ...]]:
        """Through psycopg's own cursor: that of the class looks at what it sends."""
        cursor = psycopg.AsyncCursor(self, row_factory=psycopg.rows.tuple_row)
        return await cursor.execute(statement.encode(), prepare=False)


class BranchCursor(psycopg.AsyncCursor[Any]):
    """Looks at the user's statements. What it calls its connection is the lent one."""

    _conn: BranchConnection

    async def execute(self, query: Query, params: Any = None, **options: Any) -> BranchCursor:
        self._conn.look_at(query)
        return await super().execute(query, params, **options)

    async def executemany(self, query: Query, params_seq: Iterable[Any], **options: Any) -> None:
        self._conn.look_at(query)
        await super().executemany(query, params_seq, **options)

    def stream(self, query: Query, params: Any = None, **options: Any) -> AsyncIterator[Any]:
        self._conn.look_at(query)
        return super().stream(query, params, **options)

    def copy(self, statement: Query, params: Any = None, **options: Any) -> Any:
        self._conn.look_at(statement)
        return super().copy(statement, params, **options)


class LentConnection(Lent):
    __slots__ = ()

    async def __aenter__(self) -> None:
        raise not_yours("leaving `async with connection:`, which commits or rolls back,")

    async def __aexit__(self, *_: object) -> None: ...


class PsycopgDriver:
    def __init__(self, url: str, options: PostgresOptions, settings: dict[str, Any]) -> None:
        self._url = url
        self._settings = {"connect_timeout": max(1, round(options.connect_timeout))} | settings
        self._pool: Pool[BranchConnection] = Pool(
            self._connect,
            self._disconnect,
            size=options.connections,
            spare=options.spare_connections,
            wait=options.connect_timeout,
        )

    async def _connect(self) -> BranchConnection:
        connection = await BranchConnection.connect(
            self._url, autocommit=True, cursor_factory=BranchCursor, **self._settings
        )
        connection.choices = {name: getattr(connection, name) for name in _USERS_CHOICES}
        return connection

    async def _disconnect(self, connection: BranchConnection) -> None:
        connection.in_branch = False
        with suppress(Exception):
            await connection.close()

    async def start(self) -> None:
        await self._pool.release(await self._pool.acquire(urgent=False))

    async def close(self) -> None:
        await self._pool.close()

    async def acquire(self, *, urgent: bool) -> psycopg.AsyncConnection[Any]:
        return cast("psycopg.AsyncConnection[Any]", LentConnection(await self._pool.acquire(urgent=urgent)))

    async def release(self, connection: psycopg.AsyncConnection[Any]) -> None:
        lent.end(connection)
        behind = _behind(connection)
        try:
            if behind.used:
                await behind.run_ours("; ".join(RESET))
                for name, value in behind.choices.items():
                    setattr(behind, name, value)
                behind.used = False
        except Exception:  # noqa: BLE001  whatever it was, this connection is not lent again
            await self._pool.discard(behind)
        else:
            await self._pool.release(behind)

    async def discard(self, connection: psycopg.AsyncConnection[Any]) -> None:
        lent.end(connection)
        behind = _behind(connection)
        # A connection that broke is seldom alone: the server went down, and the idle ones do not know it yet.
        await self._pool.discard(behind, others_too=behind.broken)

    async def begin(self, connection: psycopg.AsyncConnection[Any], statements: Sequence[str]) -> None:
        behind = _behind(connection)
        await behind.run_ours("; ".join(statements))
        behind.in_branch, behind.used, behind.notified = True, True, False

    async def flush(self, connection: psycopg.AsyncConnection[Any]) -> None: ...

    async def end(self, connection: psycopg.AsyncConnection[Any], statement: str) -> None:
        lent.end(connection)
        behind = _behind(connection)
        behind.in_branch = False
        await behind.run_ours(statement)

    async def run(self, connection: psycopg.AsyncConnection[Any], statement: str) -> int:
        return (await _behind(connection).run_ours(statement)).rowcount

    async def rows(self, connection: psycopg.AsyncConnection[Any], statement: str) -> Sequence[Sequence[Any]]:
        return await (await _behind(connection).run_ours(statement)).fetchall()

    def changed(self, connection: psycopg.AsyncConnection[Any]) -> bool:  # noqa: ARG002  the port's signature
        return False

    def notified(self, connection: psycopg.AsyncConnection[Any]) -> bool:
        return _behind(connection).notified

    def fault(self, error: BaseException) -> Fault | None:
        match error:
            case psycopg.Error():
                silent = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and error.sqlstate is None
                return fault_of(error.sqlstate, str(error), lost=silent)
            case OSError():
                return fault_of(None, str(error) or type(error).__name__, lost=True)
            case _:
                return None


def _behind(connection: psycopg.AsyncConnection[Any]) -> BranchConnection:
    behind: BranchConnection = lent.behind(connection)
    return behind


def _text(query: Query, connection: psycopg.AsyncConnection[Any]) -> str:
    match query:
        case str():
            return query
        case bytes():
            return query.decode(errors="replace")
        case Composable():
            return query.as_string(connection)
        case _:
            return ""  # a template string: its first part is looked at by nobody; see `statements.py`
