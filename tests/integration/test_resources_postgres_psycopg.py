"""What is particular to psycopg: cursors that are kept, row factories, composed statements."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import dict_row

from tests.integration.postgres_adapters import ADAPTERS, Database, branch, database
from tutti.errors import OutcomeNotYours
from tutti.resources.embedded_postgres import EmbeddedPostgres
from tutti.resources.postgres.options import PostgresOptions
from tutti.resources.postgres.resource import PostgresResource


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with EmbeddedPostgres(tmp_path_factory.mktemp("postgres")) as server:
        yield server.create_database("calendar")


@pytest.fixture
async def db(url: str) -> AsyncIterator[Database]:
    [adapter] = [adapter for adapter in ADAPTERS if adapter.name == "psycopg"]
    async with database(url, adapter) as opened:
        yield opened


@pytest.fixture
async def resource(db: Database) -> PostgresResource[Any]:
    return await db.open(PostgresOptions(connections=1, lock_timeout=0.2))


async def test_the_user_has_psycopgs_own_connection(resource: PostgresResource[Any]) -> None:
    work = await resource.begin(branch())
    assert isinstance(work.connection, psycopg.AsyncConnection)
    cursor = await work.connection.execute("select %s::int + 1", (41,))
    assert await cursor.fetchone() == (42,)
    await work.rollback()


async def test_nested_transactions_are_savepoints(db: Database, resource: PostgresResource[Any]) -> None:
    work = await resource.begin(branch())
    async with work.connection.transaction():
        await db.insert(work.connection, "kept")

    async def fails() -> None:
        async with work.connection.transaction():
            await db.insert(work.connection, "undone")
            await work.connection.execute("select 1/0")

    with pytest.raises(psycopg.errors.DivisionByZero):
        await fails()
    await work.prepare()
    await resource.commit(branch(), decided=True)
    assert await db.kept() == ["kept"]


async def test_nothing_that_was_taken_from_a_connection_outlives_its_work(
    db: Database, resource: PostgresResource[Any]
) -> None:
    late = "insert into kept values ('late')"
    work = await resource.begin(branch(1))
    stale = work.connection
    method, cursor, nested = stale.execute, stale.cursor(), stale.transaction()
    portal, open_block = stale.cursor("portal"), stale.transaction()
    await portal.execute("select 1")
    await open_block.__aenter__()
    begun = stale.execute(late)  # and not awaited yet
    assert cursor.connection is stale
    assert stale.connection is stale
    await work.commit()
    other = await resource.begin(branch(2))
    for attempt in (
        begun,
        _later(lambda: method(late)),
        _later(lambda: stale.execute(late)),
        _later(lambda: cursor.execute(late)),
        _later(lambda: cursor.copy("copy kept from stdin").__aenter__()),
        _later(nested.__aenter__),
        _later(portal.fetchall),
        _later(lambda: open_block.__aexit__(None, None, None)),
    ):
        with pytest.raises(OutcomeNotYours, match="the work has ended"):
            await attempt
    portal._closed = True  # psycopg warns of one that was left open
    await db.insert(other.connection, "kept")
    await other.commit()
    assert await db.kept() == ["kept"]


async def _later(call: Callable[[], Awaitable[object]]) -> None:
    await call()


async def test_no_way_of_a_cursor_ends_the_work(db: Database, resource: PostgresResource[Any]) -> None:
    work = await resource.begin(branch())
    await db.insert(work.connection, "kept")
    with pytest.raises(OutcomeNotYours):
        work.connection.cursor().copy("rollback")
    with pytest.raises(OutcomeNotYours):
        work.connection.cursor().stream("rollback")
    await work.commit()
    assert await db.kept() == ["kept"]


async def test_a_row_factory_is_for_one_work(resource: PostgresResource[Any]) -> None:
    work = await resource.begin(branch(1))
    work.connection.row_factory = dict_row
    assert await (await work.connection.execute("select 1 as n")).fetchone() == {"n": 1}
    await work.commit()
    again = await resource.begin(branch(2))
    assert await (await again.connection.execute("select 1 as n")).fetchone() == (1,)
    await again.rollback()


async def test_composed_and_streamed_statements(db: Database, resource: PostgresResource[Any]) -> None:
    work = await resource.begin(branch())
    table = sql.Identifier("kept")
    await work.connection.execute(sql.SQL("insert into {} values ({})").format(table, sql.Literal("a")))
    found = [row async for row in work.connection.cursor().stream("select * from kept")]
    assert found == [("a",)]
    async with work.connection.cursor().copy("copy kept from stdin") as copy:
        await copy.write_row(("b",))
    await work.prepare()
    await resource.commit(branch(), decided=True)
    assert await db.kept() == ["a", "b"]


async def test_statements_that_the_server_remembers_survive(resource: PostgresResource[Any]) -> None:
    """psycopg prepares a statement on its sixth use, for the connection: giving it back must not undo that."""
    for number in range(4):
        work = await resource.begin(branch(number))
        for _ in range(4):
            await work.connection.execute("select %s::int", (number,))
        await work.commit()
