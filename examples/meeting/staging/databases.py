"""The five databases: their tables, what stands in them, and the sessions of other people."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import asyncpg

from tutti.resources.embedded_postgres import EmbeddedPostgres

_APPOINTMENT: Final = "create table appointment (starts timestamptz primary key, subject text)"
TABLES: Final = {
    "organiser": _APPOINTMENT,
    "rooms": "create table booking (room text, starts timestamptz, subject text, primary key (room, starts))",
    "ann": _APPOINTMENT,
    "bob": _APPOINTMENT,
    "tickets": "create table ticket (starts timestamptz, subject text, state text, primary key (starts, subject))",
}
_ROWS: Final = {
    "rooms": "select room || ' ' || subject from booking where starts = $1 order by 1",
    "tickets": "select subject || ' ' || state from ticket where starts = $1 order by 1",
}
_APPOINTMENTS: Final = "select subject from appointment where starts = $1 order by 1"
_PREPARED: Final = "select database::text, gid from pg_prepared_xacts where gid like 'tutti:%' order by 1, 2"
_WAITING: Final = "select count(*) from pg_stat_activity where datname = $1 and wait_event_type = 'Lock'"

Rows = Mapping[str, tuple[str, ...]]


class Databases:
    def __init__(self, server: EmbeddedPostgres) -> None:
        self._server = server
        self._connections: dict[str, Any] = {}
        self._others: list[Any] = []

    async def open(self) -> None:
        await asyncio.to_thread(self._server.start)
        for name in TABLES:
            await asyncio.to_thread(self._server.create_database, name)
        for name, table in TABLES.items():
            connection = self._connections[name] = await asyncpg.connect(self._server.url(name))
            await connection.execute(table)

    async def close(self) -> None:
        for connection in (*self._others, *self._connections.values()):
            await connection.close(timeout=5)
        await asyncio.to_thread(self._server.stop)

    async def rows(self, starts: datetime) -> Rows:
        """What everybody can see about this hour."""
        return {
            name: tuple(row[0] for row in await connection.fetch(_ROWS.get(name, _APPOINTMENTS), starts))
            for name, connection in self._connections.items()
        }

    async def prepared(self) -> tuple[str, ...]:
        """The databases that hold a prepared branch: its work is on disk, and its locks are held until the decision."""
        return tuple(row[0] for row in await self._connections["organiser"].fetch(_PREPARED))

    async def book(self, room: str, starts: datetime, subject: str) -> None:
        await self._connections["rooms"].execute("insert into booking values ($1, $2, $3)", room, starts, subject)

    async def begin_entry(self, name: str, starts: datetime, subject: str) -> Any:
        """Somebody's secretary writes into the calendar at the same moment, and has not finished. Whoever wants that
        hour waits for the outcome, as PostgreSQL has it. Returns the transaction, to commit or roll back."""
        connection = await asyncpg.connect(self._server.url(name))
        self._others.append(connection)
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("insert into appointment values ($1, $2)", starts, subject)
        return transaction

    async def until_somebody_waits(self, name: str) -> None:
        async with asyncio.timeout(20):
            while not await self._connections[name].fetchval(_WAITING, name):  # noqa: ASYNC110  it is asked, not told
                await asyncio.sleep(0.01)
