"""What is particular to asyncpg: its nested transactions, cursors, listeners and its pool."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import asyncpg
import pytest

from tests.integration.postgres_adapters import ADAPTERS, Database, branch, database
from tutti.errors import CannotPrepare, OutcomeNotYours
from tutti.resources.embedded_postgres import EmbeddedPostgres
from tutti.resources.postgres import lent
from tutti.resources.postgres.asyncpg import AsyncpgResource
from tutti.resources.postgres.options import PostgresOptions
from tutti.resources.postgres.resource import PostgresResource


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with EmbeddedPostgres(tmp_path_factory.mktemp("postgres")) as server:
        yield server.create_database("calendar")


@pytest.fixture
async def db(url: str) -> AsyncIterator[Database]:
    [adapter] = [adapter for adapter in ADAPTERS if adapter.name == "asyncpg"]
    async with database(url, adapter) as opened:
        yield opened


@pytest.fixture
async def resource(db: Database) -> PostgresResource[Any]:
    return await db.open(PostgresOptions(connections=1, lock_timeout=0.2))


async def test_the_user_has_asyncpgs_own_connection(resource: PostgresResource[Any]) -> None:
    work = await resource.begin(branch())
    assert isinstance(work.connection, asyncpg.Connection)
    assert await work.connection.fetchval("select $1::int + 1", 41) == 42
    await work.rollback()


async def test_it_starts_when_it_is_first_used(url: str) -> None:
    """Subscribers are declared where no event loop runs, and `tutti run` serves them."""
    calendar = AsyncpgResource("calendar", url, PostgresOptions(connections=2))
    works = await asyncio.gather(*(calendar.begin(branch(number)) for number in (1, 2)))
    assert [await work.connection.fetchval("select 42") for work in works] == [42, 42]
    await asyncio.gather(*(work.rollback() for work in works))
    await calendar.close()


async def test_nested_transactions_are_savepoints(db: Database, resource: PostgresResource[Any]) -> None:
    work = await resource.begin(branch())
    connection = work.connection
    async with connection.transaction():
        await db.insert(connection, "kept")

    async def fails() -> None:
        async with connection.transaction():
            await db.insert(connection, "undone")
            async with connection.transaction():
                await connection.execute("select 1/0")

    with pytest.raises(asyncpg.DivisionByZeroError):
        await fails()
    assert await db.kept() == []
    await work.prepare()
    await resource.commit(branch(), decided=True)
    assert await db.kept() == ["kept"]


async def test_transactions_work_on_a_connection_that_was_used_before(
    db: Database, resource: PostgresResource[Any]
) -> None:
    """asyncpg keeps the outermost transaction in the connection: nothing of it may be left after PREPARE."""
    for number in range(3):
        work = await resource.begin(branch(number))
        async with work.connection.transaction():
            await db.insert(work.connection, f"k{number}")
        await work.prepare()
        await resource.commit(branch(number), decided=True)
    assert await db.kept() == ["k0", "k1", "k2"]


async def test_cursors_and_prepared_statements_work(db: Database, resource: PostgresResource[Any]) -> None:
    work = await resource.begin(branch())
    found = [row["n"] async for row in work.connection.cursor("select n from generate_series(1, 3) n")]
    assert found == [1, 2, 3]
    with pytest.raises(OutcomeNotYours):
        work.connection.cursor("commit")
    statement = await work.connection.prepare("insert into kept values ($1)")
    await statement.executemany([("a",), ("b",)])
    await work.commit()
    assert await db.kept() == ["a", "b"]


async def test_listening_is_not_work(resource: PostgresResource[Any]) -> None:
    work = await resource.begin(branch())
    await work.connection.add_listener("x", lambda *_: None)
    with pytest.raises(CannotPrepare, match="LISTEN"):
        await work.prepare()


async def test_a_connection_stays_dead_while_it_is_reset(
    db: Database, resource: PostgresResource[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Giving back goes on behind the work's back. asyncpg's own proxy is alive until its last moment."""
    reset_done, go_on = asyncio.Event(), asyncio.Event()
    reset = asyncpg.Connection.reset

    async def halted(connection: Any, **options: Any) -> None:
        await reset(connection, **options)
        reset_done.set()
        await go_on.wait()

    monkeypatch.setattr(asyncpg.Connection, "reset", halted)
    work = await resource.begin(branch())
    stale = work.connection
    await work.commit()
    await reset_done.wait()
    try:
        with pytest.raises(OutcomeNotYours, match="the work has ended"):
            await db.insert(stale, "late")
    finally:
        go_on.set()
    assert await db.kept() == []


async def test_nothing_that_was_taken_from_a_connection_outlives_its_work(
    db: Database, resource: PostgresResource[Any]
) -> None:
    work = await resource.begin(branch(1))
    stale = work.connection
    method, statement = stale.execute, await stale.prepare("insert into kept values ('late')")
    nested, cursor = stale.transaction(), stale.cursor("select 1")
    begun = stale.execute("insert into kept values ('late')")  # and not awaited yet
    await work.commit()
    other = await resource.begin(branch(2))
    for late in (
        begun,
        _later(lambda: method("insert into kept values ('late')")),
        _later(statement.fetch),
        _later(nested.start),
        _later(lambda: cursor),
        _later(lambda: stale.copy_records_to_table("kept", records=[("late",)])),
        _later(lambda: stale.add_listener("x", lambda *_: None)),
    ):
        with pytest.raises(OutcomeNotYours, match="the work has ended"):
            await late
    await db.insert(other.connection, "kept")
    await other.commit()
    assert await db.kept() == ["kept"]


async def _later(call: Callable[[], Awaitable[object]]) -> None:
    await call()


async def test_a_listener_gets_what_its_work_has(resource: PostgresResource[Any]) -> None:
    """Not what is behind it, which would live on."""
    heard: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    work = await resource.begin(branch())
    stale = work.connection

    def listen(connection: Any, _: object) -> None:
        heard.set_result(connection)

    stale.add_log_listener(listen)
    await stale.execute("do $$ begin raise notice 'here'; end $$")
    assert await heard is stale
    stale.remove_log_listener(listen)
    await work.rollback()


async def test_every_error_of_a_broken_way_is_one(resource: PostgresResource[Any]) -> None:
    fault: Any = resource._driver.fault
    for error in (
        asyncpg.InternalClientError("cannot switch to state 11; protocol is in the failed state"),
        asyncpg.InterfaceError("connection is closed"),
        asyncpg.ConnectionDoesNotExistError("closed in the middle of operation"),
        asyncpg.AdminShutdownError("terminating connection"),
        ConnectionResetError(),
    ):
        assert fault(error).lost, error
    assert not fault(asyncpg.DivisionByZeroError("division by zero")).lost
    assert fault(ValueError("the user's own")) is None


async def test_finishing_does_not_reset_what_nobody_used(resource: PostgresResource[Any]) -> None:
    driver: Any = resource._driver
    connection = await driver.acquire(urgent=True)
    behind = lent.behind(connection)
    assert behind.get_reset_query() == ""
    await driver.begin(connection, ["BEGIN"])
    await driver.end(connection, "ROLLBACK")
    assert "RESET ALL" in behind.get_reset_query()
    await driver.release(connection)
    assert behind.get_reset_query() == ""
