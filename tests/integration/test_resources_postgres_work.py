"""What can go wrong in a branch at work on PostgreSQL, with every adapter."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.integration.postgres_adapters import ADAPTERS, OPTIONS, OWNER, Adapter, Database, branch, database
from tutti.errors import (
    BranchUnknown,
    CannotPrepare,
    OutcomeNotYours,
    ResourceBusy,
    ResourceError,
    ResourceUnreachable,
)
from tutti.resources.embedded_postgres import EmbeddedPostgres
from tutti.resources.port import Vote
from tutti.resources.postgres.options import PostgresOptions
from tutti.resources.postgres.resource import PostgresResource


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with EmbeddedPostgres(tmp_path_factory.mktemp("postgres"), max_prepared=6) as server:
        yield server.create_database("calendar")


@pytest.fixture(params=ADAPTERS, ids=str)
async def db(url: str, request: pytest.FixtureRequest) -> AsyncIterator[Database]:
    adapter: Adapter = request.param
    async with database(url, adapter) as opened:
        yield opened


@pytest.fixture
async def resource(db: Database) -> PostgresResource[Any]:
    return await db.open()


@pytest.fixture
async def patient(db: Database) -> PostgresResource[Any]:
    """For tests that hold something up: its locks do not time out before the test has got there."""
    return await db.open(PostgresOptions(lock_timeout=30, connections=3, spare_connections=1))


@pytest.mark.parametrize(
    ("statements", "said", "hint"),
    [
        (["create temp table t (a int)"], "temporary", "ordinary table"),
        (["insert into kept values ('a')", "notify x"], "NOTIFY", "publish an event"),
        (["notify x"], "NOTIFY", "publish an event"),
        (["select pg_notify('x', 'y')"], "NOTIFY", "publish an event"),
        (["declare c cursor with hold for select 1", "insert into kept values ('a')"], "WITH HOLD", "close the cursor"),
    ],
)
async def test_what_cannot_be_prepared_is_named(
    db: Database, resource: PostgresResource[Any], statements: list[str], said: str, hint: str
) -> None:
    work = await resource.begin(branch())
    for statement in statements:
        await db.execute(work.connection, statement)
    with pytest.raises(CannotPrepare) as raised:
        await work.prepare()
    assert said in raised.value.what
    assert hint in raised.value.hint
    assert (await db.gids(), await db.kept()) == ([], [])


async def test_a_failed_statement_cannot_be_prepared_away(db: Database, resource: PostgresResource[Any]) -> None:
    """PREPARE TRANSACTION in a failed transaction rolls back and reports no error."""
    work = await resource.begin(branch())
    await db.insert(work.connection, "a")
    with pytest.raises(Exception, match="division by zero"):
        await db.execute(work.connection, "select 1/0")
    with pytest.raises(CannotPrepare, match="a statement failed before"):
        await work.prepare()
    assert (await db.gids(), await db.kept()) == ([], [])


async def test_a_failed_statement_cannot_be_committed_away(db: Database, resource: PostgresResource[Any]) -> None:
    work = await resource.begin(branch())
    await db.insert(work.connection, "a")
    with pytest.raises(Exception, match="division by zero"):
        await db.execute(work.connection, "select 1/0")
    with pytest.raises(ResourceError):
        await work.commit()
    assert await db.kept() == []


async def test_a_deferred_constraint_speaks_at_the_vote(db: Database, resource: PostgresResource[Any]) -> None:
    await db.witness.execute("create table later (k int unique deferrable initially deferred)")
    work = await resource.begin(branch())
    await db.execute(work.connection, "insert into later values (1), (1)")
    with pytest.raises(ResourceError, match="duplicate key"):
        await work.prepare()
    assert await db.gids() == []


async def test_reading_alone_needs_no_decision(db: Database, resource: PostgresResource[Any]) -> None:
    work = await resource.begin(branch())
    await db.execute(work.connection, "select * from kept")
    assert await work.prepare() == Vote.READ_ONLY
    assert await db.gids() == []


@pytest.mark.parametrize("statement", ["select * from kept for update", "lock table kept in exclusive mode"])
async def test_locks_are_kept_until_the_decision(db: Database, resource: PostgresResource[Any], statement: str) -> None:
    await db.witness.execute("insert into kept values ('a')")
    work = await resource.begin(branch())
    await db.execute(work.connection, statement)
    vote = await work.prepare()
    if "for update" in statement:
        assert vote == Vote.PREPARED
        with pytest.raises(Exception, match="lock timeout"):
            await db.witness.execute("begin; set local lock_timeout = 50; delete from kept")
        await db.witness.execute("rollback")
        await resource.rollback(branch(), decided=True)
    else:
        assert vote == Vote.READ_ONLY  # a table lock alone protects nothing that was written


async def test_a_lock_is_waited_for_only_so_long(db: Database, resource: PostgresResource[Any]) -> None:
    one, other = await resource.begin(branch(1)), await resource.begin(branch(2))
    await db.insert(one.connection, "a")
    async with asyncio.timeout(OPTIONS.lock_timeout * 10):
        with pytest.raises(Exception, match="lock timeout"):
            await db.insert(other.connection, "a")
    await other.rollback()
    assert await one.prepare() == Vote.PREPARED
    await resource.commit(branch(1), decided=True)
    assert await db.kept() == ["a"]


async def test_nothing_of_a_user_s_session_reaches_the_next(db: Database) -> None:
    resource = await db.open(PostgresOptions(lock_timeout=0.2, connections=1, spare_connections=1))
    work = await resource.begin(branch(1))
    await db.execute(work.connection, "set application_name = 'left over'")
    await db.execute(work.connection, "select pg_advisory_lock(7)")
    await db.insert(work.connection, "a")
    assert await work.prepare() == Vote.PREPARED
    again = await resource.begin(branch(2))
    await db.execute(again.connection, "insert into kept select current_setting('application_name')")
    await again.commit()
    assert "left over" not in await db.kept()
    assert await db.witness.fetchval("select pg_try_advisory_lock(7)")
    await resource.rollback(branch(1), decided=True)


async def test_who_ends_the_transaction_unseen_is_found_out(db: Database, resource: PostgresResource[Any]) -> None:
    if db.adapter.name.endswith("+asyncpg"):
        pytest.skip("this driver sends one statement at a time")
    changing = (
        "insert into kept values ('gone'); rollback"  # of such a work it is not asked whether it changed anything
    )
    for ending in ("select 1; commit", "select 1; rollback; begin", changing, f"{changing}; begin"):
        work = await resource.begin(branch())
        await db.execute(work.connection, ending)
        with pytest.raises(OutcomeNotYours, match="ended inside the work"):
            await work.prepare()
    work = await resource.begin(branch())
    await db.execute(work.connection, "select 1; commit")
    with pytest.raises(OutcomeNotYours):
        await work.commit()
    assert await db.gids() == []


async def test_all_places_taken(db: Database, resource: PostgresResource[Any]) -> None:
    for number in range(6):
        work = await resource.begin(branch(number))
        await db.insert(work.connection, f"k{number}")
        await work.prepare()
    work = await resource.begin(branch(7))
    await db.insert(work.connection, "k7")
    with pytest.raises(ResourceBusy, match="maximum number of prepared transactions"):
        await work.prepare()
    for number in range(6):
        await resource.commit(branch(number), decided=True)
    assert len(await db.kept()) == 6


async def test_a_connection_lost_before_prepare(db: Database, resource: PostgresResource[Any]) -> None:
    work = await resource.begin(branch())
    await db.insert(work.connection, "a")
    await db.kill(await db.backend())
    with pytest.raises(ResourceError):
        await work.prepare()
    await resource.rollback(branch(), decided=True)
    assert (await db.gids(), await db.kept()) == ([], [])
    again = await resource.begin(branch(2))
    await db.insert(again.connection, "b")
    assert await again.prepare() == Vote.PREPARED
    await resource.commit(branch(2), decided=True)
    assert await db.kept() == ["b"]


async def test_a_connection_lost_during_prepare(db: Database, patient: PostgresResource[Any]) -> None:
    """A deferred trigger holds PREPARE up until its backend is killed."""
    await _hold_up_the_end(db)
    work = await patient.begin(branch())
    await db.insert(work.connection, "a")
    await db.witness.execute("select pg_advisory_lock(1)")
    preparing = asyncio.create_task(work.prepare())
    await db.kill(await _waiting_backend(db))
    with pytest.raises(BranchUnknown, match="may have happened"):
        await preparing
    await db.witness.execute("select pg_advisory_unlock(1)")
    await patient.rollback(branch(), decided=True)
    assert (await db.gids(), await db.kept()) == ([], [])


async def test_a_connection_lost_during_a_local_commit(db: Database, patient: PostgresResource[Any]) -> None:
    await patient.preflight(barrier=True)
    await _hold_up_the_end(db)
    work = await patient.begin(branch())
    await work.enter(1)
    await db.insert(work.connection, "a")
    await db.witness.execute("select pg_advisory_lock(1)")
    committing = asyncio.create_task(work.commit())
    await db.kill(await _waiting_backend(db))
    with pytest.raises(BranchUnknown):
        await committing
    await db.witness.execute("select pg_advisory_unlock(1)")
    again = await patient.begin(branch())
    assert await again.enter(1) == "run"  # the barrier tells that it had not happened
    await again.rollback()


async def test_a_connection_lost_after_prepare_changes_nothing(db: Database, resource: PostgresResource[Any]) -> None:
    work = await resource.begin(branch())
    await db.insert(work.connection, "a")
    await work.prepare()
    await _kill_all(db)
    assert [doubt.branch for doubt in await resource.recover(OWNER)] == [branch()]
    await resource.commit(branch(), decided=True)
    assert await db.kept() == ["a"]


async def test_a_cancelled_prepare_leaves_no_connection_behind(db: Database, patient: PostgresResource[Any]) -> None:
    await _hold_up_the_end(db)
    work = await patient.begin(branch())
    await db.insert(work.connection, "a")
    await db.witness.execute("select pg_advisory_lock(1)")
    preparing = asyncio.create_task(work.prepare())
    waiting = await _waiting_backend(db)
    preparing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await preparing
    await db.witness.fetchval("select pg_terminate_backend($1, 5000)", waiting)  # as the server finds out in time
    await db.witness.execute("select pg_advisory_unlock(1)")
    await patient.rollback(branch(), decided=True)
    assert (await db.gids(), await db.kept()) == ([], [])


async def test_rolling_back_on_a_lost_connection_is_no_error(db: Database, resource: PostgresResource[Any]) -> None:
    work = await resource.begin(branch())
    await db.insert(work.connection, "a")
    await db.kill(await db.backend())
    await work.rollback()
    assert await db.kept() == []


async def test_pooled_connections_that_died_are_replaced(db: Database, resource: PostgresResource[Any]) -> None:
    works = [await resource.begin(branch(number)) for number in range(3)]
    for work in works:
        await work.rollback()
    await _kill_all(db)
    for number in range(3):
        work = await resource.begin(branch(number))
        await db.insert(work.connection, f"k{number}")
        await work.commit()
    assert len(await db.kept()) == 3


async def test_a_lost_connection_in_the_barrier(db: Database, resource: PostgresResource[Any]) -> None:
    await resource.preflight(barrier=True)
    work = await resource.begin(branch())
    await db.insert(work.connection, "a")
    await db.kill(await db.backend())
    with pytest.raises(ResourceUnreachable):
        await work.enter(1)


async def _hold_up_the_end(db: Database) -> None:
    await db.witness.execute(
        "create function wait_for_it() returns trigger language plpgsql as "
        "$$ begin perform pg_advisory_xact_lock_shared(1); return null; end $$; "
        "create constraint trigger held after insert on kept deferrable initially deferred "
        "for each row execute function wait_for_it()"
    )


async def _waiting_backend(db: Database) -> int:
    """The backend that waits for the witness, once it does."""
    async with asyncio.timeout(5):
        while True:
            pid: int | None = await db.witness.fetchval(
                "select pid from pg_stat_activity where wait_event = 'advisory' and datname = current_database()"
            )
            if pid is not None:
                return pid
            await asyncio.sleep(0)


async def _kill_all(db: Database) -> None:
    await db.witness.execute(
        "select pg_terminate_backend(pid, 5000) from pg_stat_activity "
        "where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'"
    )
