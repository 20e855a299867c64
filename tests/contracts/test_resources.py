"""Every resource of ours passes the contract that it ships."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy

from tutti.resources.embedded_postgres import EmbeddedPostgres
from tutti.resources.memory import MemoryResource, MemorySession, MemoryStore
from tutti.resources.port import Resource
from tutti.resources.postgres.asyncpg import AsyncpgResource
from tutti.resources.postgres.options import PostgresOptions
from tutti.resources.postgres.psycopg import PsycopgResource
from tutti.resources.postgres.sqlalchemy import SqlalchemyConnectionResource, SqlalchemySessionResource
from tutti.resources.sqlite import SqliteResource, SqliteSession
from tutti.testing.contracts.resources import ResourceContract, ResourceWorld

OPTIONS = PostgresOptions(lock_timeout=0.2, connections=4, spare_connections=2)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(tmp_path_factory.mktemp("postgres")) as started:
        started.create_database("template_of_tests")
        yield started


class MemoryWorld:
    def __init__(self) -> None:
        self.store = MemoryStore()

    async def open(self) -> MemoryResource:
        return MemoryResource("calendar", self.store)

    async def put(self, connection: MemorySession, key: str, value: str) -> None:
        connection.put(key, value)

    async def get(self, key: str) -> str | None:
        value = self.store.data.get(key)
        return None if value is None else str(value)

    def endings(self, connection: MemorySession) -> Sequence[Callable[[], Awaitable[object]]]:
        async def commit() -> None:
            connection.commit()

        async def rollback() -> None:
            connection.rollback()

        return [commit, rollback]


class TestMemoryResource(ResourceContract):
    @pytest.fixture
    def world(self) -> ResourceWorld:
        return MemoryWorld()


class SqliteWorld:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.opened: list[SqliteResource] = []
        self.witness = sqlite3.connect(path, isolation_level=None)
        self.witness.execute("create table kept (key text primary key, value text)")

    async def open(self) -> SqliteResource:
        resource = SqliteResource("calendar", self.path, lock_timeout=0.2)
        self.opened.append(resource)
        await resource.start()
        await resource.preflight(barrier=True)
        return resource

    async def close(self) -> None:
        for resource in self.opened:
            await resource.close()
        self.witness.close()

    async def put(self, connection: SqliteSession, key: str, value: str) -> None:
        await connection.execute("insert or replace into kept values (?, ?)", (key, value))

    async def get(self, key: str) -> str | None:
        row = self.witness.execute("select value from kept where key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def endings(self, connection: SqliteSession) -> Sequence[Callable[[], Awaitable[object]]]:
        return [
            lambda: connection.execute("commit"),
            lambda: connection.execute("-- now\n ROLLBACK"),
            lambda: connection.execute("end"),
            lambda: connection.run(lambda behind: behind.commit()),
            lambda: connection.run(lambda behind: behind.rollback()),
            lambda: connection.run(lambda behind: behind.executescript("select 1; commit")),
        ]


class TestSqliteResource(ResourceContract):
    @pytest.fixture
    async def world(self, tmp_path: Path) -> AsyncIterator[ResourceWorld]:
        world = SqliteWorld(tmp_path / "calendar.db")
        yield world
        await world.close()


class PostgresWorld:
    """One server for all: every test starts with an empty schema and without prepared branches."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.opened: list[Resource[Any]] = []
        self.witness: Any = None

    async def start(self) -> None:
        self.witness = await asyncpg.connect(self.url)
        for row in await self.witness.fetch("select gid from pg_prepared_xacts where database = current_database()"):
            await self.witness.execute(f"rollback prepared '{row['gid']}'")
        await self.witness.execute("drop schema public cascade; create schema public")
        await self.witness.execute("create table kept (key text primary key, value text)")

    async def close(self) -> None:
        for resource in self.opened:
            await resource.close()
        await self.witness.close()

    async def get(self, key: str) -> str | None:
        value: str | None = await self.witness.fetchval("select value from kept where key = $1", key)
        return value

    async def ready(self, resource: Resource[Any]) -> Resource[Any]:
        self.opened.append(resource)
        await resource.start()
        await resource.preflight(barrier=True)
        return resource


class AsyncpgWorld(PostgresWorld):
    async def open(self) -> Resource[Any]:
        return await self.ready(AsyncpgResource("calendar", self.url, OPTIONS))

    async def put(self, connection: Any, key: str, value: str) -> None:
        await connection.execute(
            "insert into kept values ($1, $2) on conflict (key) do update set value = excluded.value", key, value
        )

    def endings(self, connection: Any) -> Sequence[Callable[[], Awaitable[object]]]:
        return [
            lambda: connection.execute("commit"),
            lambda: connection.execute("  -- why not\n /* now */ ROLLBACK"),
            lambda: connection.fetch("end"),
            lambda: connection.fetchval("prepare transaction 'mine'"),
            lambda: connection.fetchrow("start transaction"),
            lambda: connection.executemany("abort", []),
            lambda: connection.prepare("commit"),
            connection.close,
            connection.reset,
        ]


class PsycopgWorld(PostgresWorld):
    async def open(self) -> Resource[Any]:
        return await self.ready(PsycopgResource("calendar", self.url, OPTIONS))

    async def put(self, connection: Any, key: str, value: str) -> None:
        await connection.execute(
            "insert into kept values (%s, %s) on conflict (key) do update set value = excluded.value", (key, value)
        )

    def endings(self, connection: Any) -> Sequence[Callable[[], Awaitable[object]]]:
        return [
            connection.commit,
            connection.rollback,
            connection.close,
            lambda: connection.execute("commit"),
            lambda: connection.execute(b" /* now */ ROLLBACK"),
            lambda: connection.execute(psycopg.sql.SQL("end")),
            lambda: connection.cursor().execute("prepare transaction 'mine'"),
            lambda: connection.cursor().executemany("abort", []),
            connection.__aenter__,
        ]


class TestPsycopgResource(ResourceContract):
    @pytest.fixture
    async def world(self, server: EmbeddedPostgres) -> AsyncIterator[ResourceWorld]:
        world = PsycopgWorld(server.url("template_of_tests"))
        await world.start()
        yield world
        await world.close()


_PUT = sqlalchemy.text("insert into kept values (:key, :value) on conflict (key) do update set value = excluded.value")


class SessionWorld(PostgresWorld):
    async def open(self) -> Resource[Any]:
        url = self.url.replace("postgresql://", "postgresql+asyncpg://")
        return await self.ready(SqlalchemySessionResource("calendar", url, OPTIONS))

    async def put(self, connection: Any, key: str, value: str) -> None:
        await connection.execute(_PUT, {"key": key, "value": value})

    def endings(self, connection: Any) -> Sequence[Callable[[], Awaitable[object]]]:
        async def through_its_connection() -> None:
            await (await connection.connection()).commit()

        return [
            connection.commit,
            connection.rollback,
            connection.close,
            connection.invalidate,
            through_its_connection,
            lambda: connection.execute(sqlalchemy.text("commit")),
        ]


class ConnectionWorld(SessionWorld):
    async def open(self) -> Resource[Any]:
        url = self.url.replace("postgresql://", "postgresql+psycopg://")
        return await self.ready(SqlalchemyConnectionResource("calendar", url, OPTIONS))

    def endings(self, connection: Any) -> Sequence[Callable[[], Awaitable[object]]]:
        return [
            connection.commit,
            connection.rollback,
            connection.close,
            connection.invalidate,
            lambda: connection.execute(sqlalchemy.text("commit")),
            lambda: connection.exec_driver_sql("ROLLBACK"),
        ]


class TestSqlalchemySessionResource(ResourceContract):
    @pytest.fixture
    async def world(self, server: EmbeddedPostgres) -> AsyncIterator[ResourceWorld]:
        world = SessionWorld(server.url("template_of_tests"))
        await world.start()
        yield world
        await world.close()


class TestSqlalchemyConnectionResource(ResourceContract):
    @pytest.fixture
    async def world(self, server: EmbeddedPostgres) -> AsyncIterator[ResourceWorld]:
        world = ConnectionWorld(server.url("template_of_tests"))
        await world.start()
        yield world
        await world.close()


class TestAsyncpgResource(ResourceContract):
    @pytest.fixture
    async def world(self, server: EmbeddedPostgres) -> AsyncIterator[ResourceWorld]:
        world = AsyncpgWorld(server.url("template_of_tests"))
        await world.start()
        yield world
        await world.close()
