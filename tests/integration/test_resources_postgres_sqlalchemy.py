"""What is particular to SQLAlchemy: sessions that flush, savepoints, two drivers under one dialect."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import pytest
import sqlalchemy
from sqlalchemy.exc import IntegrityError, PendingRollbackError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from tests.integration.postgres_adapters import ADAPTERS, OPTIONS, Adapter, Database, branch, database
from tutti.errors import DeclarationError, ResourceError
from tutti.resources.embedded_postgres import EmbeddedPostgres
from tutti.resources.port import Vote
from tutti.resources.postgres.resource import PostgresResource
from tutti.resources.postgres.sqlalchemy import SqlalchemyConnectionResource


class Model(DeclarativeBase): ...


class Kept(Model):
    __tablename__ = "kept"
    key: Mapped[str] = mapped_column(primary_key=True)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with EmbeddedPostgres(tmp_path_factory.mktemp("postgres")) as server:
        yield server.create_database("calendar")


@pytest.fixture(params=[adapter for adapter in ADAPTERS if adapter.name.startswith("sqlalchemy")], ids=str)
async def db(url: str, request: pytest.FixtureRequest) -> AsyncIterator[Database]:
    adapter: Adapter = request.param
    async with database(url, adapter) as opened:
        yield opened


@pytest.fixture
async def resource(db: Database) -> PostgresResource[Any]:
    return await db.open()


async def test_a_session_is_flushed_by_the_vote(db: Database, resource: PostgresResource[Any]) -> None:
    work = await resource.begin(branch())
    assert isinstance(work.connection, AsyncSession)
    row = Kept(key="a")
    work.connection.add(row)
    assert await work.prepare() == Vote.PREPARED
    await resource.commit(branch(), decided=True)
    assert await db.kept() == ["a"]
    assert row.key == "a"  # still readable


async def test_a_flush_that_fails_is_a_no(db: Database, resource: PostgresResource[Any]) -> None:
    await db.witness.execute("insert into kept values ('a')")
    work = await resource.begin(branch())
    work.connection.add(Kept(key="a"))
    with pytest.raises(ResourceError, match="duplicate key"):
        await work.prepare()
    assert await db.gids() == []


async def test_a_session_that_only_read(resource: PostgresResource[Any]) -> None:
    work = await resource.begin(branch())
    assert (await work.connection.scalars(sqlalchemy.select(Kept))).all() == []
    assert await work.prepare() == Vote.READ_ONLY


async def test_nested_blocks_are_savepoints(db: Database, resource: PostgresResource[Any]) -> None:
    await db.witness.execute("insert into kept values ('taken')")
    work = await resource.begin(branch())
    session = work.connection

    async def fails() -> None:
        async with session.begin_nested():
            session.add(Kept(key="taken"))

    with pytest.raises(IntegrityError):
        await fails()
    async with session.begin_nested():
        session.add(Kept(key="b"))
    await work.prepare()
    await resource.commit(branch(), decided=True)
    assert await db.kept() == ["b", "taken"]


async def test_streaming_works_inside(resource: PostgresResource[Any]) -> None:
    work = await resource.begin(branch())
    found = await work.connection.stream(sqlalchemy.text("select n from generate_series(1, 3) n"))
    assert [row.n async for row in found] == [1, 2, 3]
    await work.rollback()


async def test_the_bare_connection(db: Database) -> None:
    resource = SqlalchemyConnectionResource("calendar", db.url.replace("postgresql:", "postgresql+asyncpg:"), OPTIONS)
    await resource.start()
    work = await resource.begin(branch())
    assert isinstance(work.connection, AsyncConnection)
    async with work.connection.begin_nested():
        await work.connection.execute(sqlalchemy.insert(Kept), [{"key": "a"}, {"key": "b"}])
    assert await work.prepare() == Vote.PREPARED
    await resource.commit(branch(), decided=True)
    await resource.close()
    assert await db.kept() == ["a", "b"]


async def test_errors_that_the_dialect_does_not_translate(resource: PostgresResource[Any]) -> None:
    fault: Any = resource._driver.fault
    assert fault(asyncpg.InternalClientError("protocol is in the failed state")).lost
    assert fault(asyncpg.InvalidPasswordError("no")).sqlstate == "28P01"
    assert fault(PendingRollbackError("closed")).lost
    assert fault(ValueError("the user's own")) is None


@pytest.mark.parametrize("driver", ["postgresql", "postgresql+psycopg2", "sqlite+aiosqlite"])
def test_other_drivers_are_refused_by_name(driver: str) -> None:
    with pytest.raises(DeclarationError, match="not a driver for asyncio") as raised:
        SqlalchemyConnectionResource("calendar", f"{driver}://localhost/x")
    assert "postgresql+asyncpg" in raised.value.hint
