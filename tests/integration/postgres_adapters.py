"""The PostgreSQL adapters side by side: the same test works with each one's own connection."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import asyncpg
import sqlalchemy

from tutti.resources.gid import BranchId
from tutti.resources.postgres.asyncpg import AsyncpgResource
from tutti.resources.postgres.options import PostgresOptions
from tutti.resources.postgres.psycopg import PsycopgResource
from tutti.resources.postgres.resource import PostgresResource
from tutti.resources.postgres.sqlalchemy import SqlalchemySessionResource

OWNER: Final = "rooms"
OPTIONS: Final = PostgresOptions(lock_timeout=0.2, connections=3, spare_connections=1, connect_timeout=2.0)


@dataclass(frozen=True)
class Adapter:
    """`execute` runs a statement without parameters as a user of that driver does; `errors` is what it may raise."""

    name: str
    make: Callable[[str, str, PostgresOptions], PostgresResource[Any]]
    execute: Callable[[Any, str], Awaitable[object]]

    def __str__(self) -> str:
        return self.name


def _session_over(driver: str) -> Callable[[str, str, PostgresOptions], PostgresResource[Any]]:
    def make(name: str, url: str, options: PostgresOptions) -> SqlalchemySessionResource:
        return SqlalchemySessionResource(name, url.replace("postgresql://", f"postgresql+{driver}://"), options)

    return make


ADAPTERS: Final = (
    Adapter("asyncpg", AsyncpgResource, lambda connection, statement: connection.execute(statement)),
    Adapter("psycopg", PsycopgResource, lambda connection, statement: connection.execute(statement)),
    Adapter(
        "sqlalchemy+asyncpg", _session_over("asyncpg"), lambda session, text: session.execute(sqlalchemy.text(text))
    ),
    Adapter(
        "sqlalchemy+psycopg", _session_over("psycopg"), lambda session, text: session.execute(sqlalchemy.text(text))
    ),
)


class Database:
    """One database with one adapter, and a witness that looks at it from outside."""

    def __init__(self, url: str, adapter: Adapter, witness: Any) -> None:
        self.url = url
        self.adapter = adapter
        self.witness = witness
        self.execute = adapter.execute
        self._opened: list[PostgresResource[Any]] = []

    async def open(self, options: PostgresOptions = OPTIONS, *, url: str = "") -> PostgresResource[Any]:
        resource = self.adapter.make("calendar", url or self.url, options)
        self._opened.append(resource)
        await resource.start()
        return resource

    async def insert(self, connection: Any, key: str) -> None:
        await self.adapter.execute(connection, f"insert into kept values ('{key}')")  # noqa: S608  our own keys

    async def kept(self) -> list[str]:
        return [row["key"] for row in await self.witness.fetch("select key from kept order by key")]

    async def gids(self) -> list[str]:
        return [row["gid"] for row in await self.witness.fetch("select gid from pg_prepared_xacts order by gid")]

    async def backend(self) -> int:
        """The backend that is in a transaction; tests that ask have but one."""
        [row] = await self.witness.fetch(
            "select pid from pg_stat_activity where state like 'idle in transaction%' and datname = current_database()"
        )
        pid: int = row["pid"]
        return pid

    async def kill(self, pid: int) -> None:
        """Returns when the backend is gone."""
        assert await self.witness.fetchval("select pg_terminate_backend($1, 5000)", pid)

    async def close(self) -> None:
        for resource in self._opened:
            await resource.close()


def branch(number: int = 1, *, owner: str = OWNER, name: str = "calendar") -> BranchId:
    return BranchId(owner, f"j1-{number:04}", name)


@asynccontextmanager
async def database(url: str, adapter: Adapter) -> AsyncIterator[Database]:
    """Emptied at the start."""
    witness = await asyncpg.connect(url)
    for row in await witness.fetch("select gid from pg_prepared_xacts where database = current_database()"):
        await witness.execute(f"rollback prepared '{row['gid']}'")
    await witness.execute("drop schema public cascade; create schema public; create table kept (key text primary key)")
    opened = Database(url, adapter, witness)
    try:
        yield opened
    finally:
        await opened.close()
        await witness.close()
