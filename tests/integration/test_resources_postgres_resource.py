"""Finishing and recovering prepared branches on PostgreSQL, with every adapter: lost ways, restarts, strangers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.integration.postgres_adapters import ADAPTERS, OPTIONS, OWNER, Adapter, Database, branch, database
from tutti.errors import NoSuchBranch, ResourceBusy, ResourceUnfit, ResourceUnreachable
from tutti.resources.embedded_postgres import EmbeddedPostgres
from tutti.resources.gid import gid_of
from tutti.resources.port import Outcome, Vote
from tutti.resources.postgres.options import PostgresOptions
from tutti.resources.postgres.resource import PostgresResource
from tutti.resources.reaper import reap


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(tmp_path_factory.mktemp("postgres")) as started:
        started.create_database("calendar")
        started.create_database("elsewhere")
        yield started


@pytest.fixture(params=ADAPTERS, ids=str)
def adapter(request: pytest.FixtureRequest) -> Adapter:
    found: Adapter = request.param
    return found


@pytest.fixture
async def db(server: EmbeddedPostgres, adapter: Adapter) -> AsyncIterator[Database]:
    async with database(server.url("calendar"), adapter) as opened:
        yield opened


@pytest.fixture
async def resource(db: Database) -> PostgresResource[Any]:
    return await db.open()


async def prepared(db: Database, resource: PostgresResource[Any], number: int = 1) -> None:
    work = await resource.begin(branch(number))
    await db.insert(work.connection, f"k{number}")
    assert await work.prepare() == Vote.PREPARED


@pytest.mark.parametrize("before", [True, False])
async def test_a_way_lost_around_commit_prepared(
    db: Database, resource: PostgresResource[Any], monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    """Before or after it took effect, the branch ends committed, and so does an operator's undecided call."""
    await prepared(db, resource)
    driver: Any = resource._driver
    broken = iter([True])
    run = driver.run

    async def breaking(connection: Any, statement: str) -> int:
        lost = next(broken, False)
        if not (lost and before):
            affected: int = await run(connection, statement)
        if lost:
            raise ConnectionResetError("the way broke")
        return affected

    monkeypatch.setattr(driver, "run", breaking)
    await resource.commit(branch(), decided=False)
    assert next(broken, None) is None
    assert (await db.kept(), await db.gids()) == (["k1"], [])


async def test_a_way_that_stays_lost_leaves_it_prepared(
    db: Database, resource: PostgresResource[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    await prepared(db, resource)

    async def broken(connection: Any, statement: str) -> int:
        raise ConnectionResetError("the way broke")

    with monkeypatch.context() as patch:
        patch.setattr(resource._driver, "run", broken)
        with pytest.raises(ResourceUnreachable, match="it stays prepared"):
            await resource.rollback(branch(), decided=True)
    assert await db.gids() == [gid_of("tutti", branch())]
    await resource.rollback(branch(), decided=True)
    assert (await db.kept(), await db.gids()) == ([], [])


async def test_branches_are_finished_when_every_connection_is_pinned(
    db: Database, resource: PostgresResource[Any]
) -> None:
    for number in range(1, 4):
        await prepared(db, resource, number)
    works = [await resource.begin(branch(number)) for number in range(10, 10 + OPTIONS.connections)]
    async with asyncio.timeout(5):
        await asyncio.gather(*(resource.commit(branch(number), decided=True) for number in range(1, 4)))
    assert await db.kept() == ["k1", "k2", "k3"]
    for work in works:
        await work.rollback()


async def test_no_free_connection_is_said_in_words(db: Database) -> None:
    resource = await db.open(PostgresOptions(connections=1, spare_connections=1, connect_timeout=0.2))
    work = await resource.begin(branch(1))
    with pytest.raises(ResourceBusy, match="no connection was free"):
        await resource.begin(branch(2))
    await work.rollback()
    again = await resource.begin(branch(3))
    await again.rollback()


async def test_strangers_are_left_alone(
    db: Database, resource: PostgresResource[Any], server: EmbeddedPostgres
) -> None:
    foreign = ["tutti", "tutti:rooms", "tutti:rooms:a:b:c", "tutti:rooms-2:t:b", "other:rooms:t:b", "tutti:rooms:ü:b"]
    for gid in foreign:
        await db.witness.execute("begin")
        await db.witness.execute("insert into kept values ($1)", gid)
        await db.witness.execute(f"prepare transaction '{gid}'")
    elsewhere = await asyncpg.connect(server.url("elsewhere"))
    await elsewhere.execute(f"begin; create table t (a int); prepare transaction '{gid_of('tutti', branch(9))}'")
    try:
        await prepared(db, resource)

        async def aborted(name: object) -> Outcome:
            return "abort"

        reaped = await reap(resource, OWNER, aborted)
        assert (reaped.rolled_back, reaped.left, reaped.failed) == ((branch(1),), (), ())
        assert await db.gids() == sorted([*foreign, gid_of("tutti", branch(9))])
        with pytest.raises(ResourceUnfit, match="another database"):
            await resource.rollback(branch(9), decided=True)
    finally:
        await elsewhere.execute(f"rollback prepared '{gid_of('tutti', branch(9))}'")
        await elsewhere.close()


async def test_another_role_s_branch_is_not_ours_to_finish(
    db: Database, resource: PostgresResource[Any], server: EmbeddedPostgres
) -> None:
    await db.witness.execute("drop role if exists clerk; create role clerk login; grant all on kept to clerk")
    await prepared(db, resource)
    clerk = await db.open(url=server.url("calendar").replace("postgres@", "clerk@"))
    with pytest.raises(ResourceUnfit) as raised:
        await clerk.commit(branch(), decided=True)
    assert "the role that prepared it" in raised.value.hint
    await resource.commit(branch(), decided=True)


async def test_the_barrier_needs_rights_and_says_which(
    db: Database, resource: PostgresResource[Any], server: EmbeddedPostgres
) -> None:
    await db.witness.execute(
        "drop role if exists clerk; create role clerk login; grant usage on schema public to clerk"
    )
    clerk = await db.open(url=server.url("calendar").replace("postgres@", "clerk@"))
    await clerk.preflight()
    with pytest.raises(ResourceUnfit) as raised:
        await clerk.preflight(barrier=True)
    assert "CREATE TABLE IF NOT EXISTS public.tutti_barrier" in raised.value.hint
    await resource.preflight(barrier=True)
    with pytest.raises(ResourceUnfit, match="no right to select, insert and delete"):
        await clerk.preflight(barrier=True)
    await db.witness.execute("grant select, insert, delete on tutti_barrier to clerk")
    await clerk.preflight(barrier=True)


async def test_many_processes_create_the_barrier_at_once(db: Database) -> None:
    resources = [await db.open() for _ in range(4)]
    await asyncio.gather(*(resource.preflight(barrier=True) for resource in resources))
    assert await db.witness.fetchval("select count(*) from tutti_barrier") == 0


async def test_a_missing_schema_is_said_in_words(db: Database) -> None:
    resource = await db.open(PostgresOptions(schema="nowhere"))
    with pytest.raises(ResourceUnfit, match=r"nowhere\.tutti_barrier"):
        await resource.preflight(barrier=True)


async def test_a_role_without_the_database(db: Database, server: EmbeddedPostgres) -> None:
    with pytest.raises(ResourceUnfit, match="does not let us in"):
        await db.open(url=server.url("no_such_database"))
    with pytest.raises(ResourceUnfit, match="does not let us in"):
        await db.open(url=server.url("calendar").replace("postgres@", "nobody_known@"))


async def test_isolation_is_what_was_chosen(db: Database) -> None:
    resource = await db.open(PostgresOptions(isolation="serializable"))
    work = await resource.begin(branch())
    await db.execute(work.connection, "insert into kept select current_setting('transaction_isolation')")
    await work.commit()
    assert await db.kept() == ["serializable"]


async def test_the_server_restarts(adapter: Adapter, tmp_path: Path) -> None:
    """Killed with one branch at work and two prepared; the resource finds its way back by itself."""
    server = EmbeddedPostgres(tmp_path / "postgres")
    await asyncio.to_thread(server.start)
    try:
        async with database(server.url(), adapter) as db:
            resource = await db.open()
            await prepared(db, resource, 1)
            await prepared(db, resource, 2)
            work = await resource.begin(branch(3))
            await db.insert(work.connection, "k3")
            await asyncio.to_thread(server.kill)
            with pytest.raises(ResourceUnreachable):
                await resource.commit(branch(1), decided=True)
            with pytest.raises((ResourceUnreachable, ResourceBusy)):
                await resource.begin(branch(4))
            await work.rollback()
            await asyncio.to_thread(server.start)
            assert [doubt.branch for doubt in await resource.recover(OWNER)] == [branch(1), branch(2)]
            await resource.commit(branch(1), decided=True)
            await resource.rollback(branch(2), decided=True)
            with pytest.raises(NoSuchBranch):
                await resource.commit(branch(3), decided=False)
            witness = await asyncpg.connect(server.url())
            assert await witness.fetchval("select array_agg(key) from kept") == ["k1"]
            await witness.close()
    finally:
        await asyncio.to_thread(server.stop)


async def test_preflight_on_a_server_that_cannot_prepare(adapter: Adapter, tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path / "postgres", max_prepared=0)
    await asyncio.to_thread(server.start)
    try:
        async with database(server.url(), adapter) as db:
            resource = await db.open()
            with pytest.raises(ResourceUnfit) as raised:
                await resource.preflight()
            assert "max_prepared_transactions = 0" in raised.value.what
            assert "ALTER SYSTEM SET max_prepared_transactions" in raised.value.hint
            work = await resource.begin(branch())
            await db.insert(work.connection, "a")
            with pytest.raises(ResourceUnfit, match="disabled"):
                await work.prepare()
    finally:
        await asyncio.to_thread(server.stop)
