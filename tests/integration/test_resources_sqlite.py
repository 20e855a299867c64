"""What only SQLite has: one writer, an authorizer, no prepare; and processes that die around its commit."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tutti.errors import (
    CannotPrepare,
    DeclarationError,
    InvariantViolated,
    NoSuchBranch,
    OutcomeNotYours,
    ResourceBusy,
    ResourceUnfit,
)
from tutti.resources.gid import BranchId
from tutti.resources.port import Admission
from tutti.resources.sqlite import SqliteResource

BRANCH = BranchId("rooms", "j1-1", "calendar")


@pytest.fixture
async def resource(tmp_path: Path) -> AsyncIterator[SqliteResource]:
    opened = SqliteResource("calendar", tmp_path / "calendar.db", lock_timeout=0.2)
    await opened.start()
    await opened.preflight(barrier=True)
    work = await opened.begin(BRANCH)
    await work.connection.execute("create table kept (key text primary key)")
    await work.commit()
    yield opened
    await opened.close()


async def test_it_says_what_it_is_for(resource: SqliteResource) -> None:
    found = await resource.preflight()
    assert (found.version, found.prepared_max) == (f"SQLite {sqlite3.sqlite_version}", 0)
    work = await resource.begin(BRANCH)
    await work.connection.execute("insert into kept values ('a')")
    with pytest.raises(CannotPrepare) as raised:
        await work.prepare()
    assert "compensatable" in raised.value.hint
    again = await resource.begin(BRANCH)
    assert (await again.connection.execute("select * from kept")).rows == []
    await again.rollback()


async def test_there_is_nothing_to_recover(resource: SqliteResource) -> None:
    assert list(await resource.recover("rooms")) == []
    await resource.commit(BRANCH, decided=True)
    await resource.rollback(BRANCH, decided=True)
    with pytest.raises(NoSuchBranch):
        await resource.commit(BRANCH, decided=False)


async def test_works_of_one_process_take_turns(resource: SqliteResource) -> None:
    async def one(number: int) -> None:
        work = await resource.begin(BranchId("rooms", f"j1-{number}", "calendar"))
        await work.connection.execute("insert into kept values (?)", (f"k{number}",))
        await work.commit()

    await asyncio.gather(*(one(number) for number in range(8)))
    work = await resource.begin(BRANCH)
    assert (await work.connection.execute("select count(*) from kept")).rows == [(8,)]
    with pytest.raises(ResourceBusy, match="one writer"):
        await resource.begin(BRANCH)
    await work.rollback()


async def test_a_session_gives_rows_and_counts(resource: SqliteResource) -> None:
    work = await resource.begin(BRANCH)
    session = work.connection
    assert await session.executemany("insert into kept values (?)", [("a",), ("b",)]) == 2
    found = await session.execute("select key from kept where key = :key", {"key": "b"})
    assert found.rows == [("b",)]
    assert (await session.execute("delete from kept")).changed == 2
    assert await session.run(lambda connection: connection.total_changes) >= 4
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        await session.execute("select * from nowhere")
    await work.rollback()


async def test_a_rollback_by_the_database_is_found_out(resource: SqliteResource) -> None:
    """What followed would otherwise be committed at once, statement by statement."""
    work = await resource.begin(BRANCH)
    await work.connection.execute("insert into kept values ('a')")
    with pytest.raises(sqlite3.IntegrityError):
        await work.connection.execute("insert or rollback into kept values ('a')")
    with pytest.raises(OutcomeNotYours, match="rolled the work back"):
        await work.connection.execute("insert into kept values ('b')")
    with pytest.raises(OutcomeNotYours, match="rolled the work back"):
        await work.commit()
    again = await resource.begin(BRANCH)
    assert (await again.connection.execute("select * from kept")).rows == []
    await again.rollback()


async def test_a_cancelled_begin_leaves_the_writer_free(resource: SqliteResource) -> None:
    other = sqlite3.connect(resource.path, isolation_level=None)
    other.execute("begin immediate")
    beginning = asyncio.create_task(resource.begin(BRANCH))
    await asyncio.sleep(0)
    beginning.cancel()
    other.execute("rollback")
    other.close()
    with pytest.raises((asyncio.CancelledError, ResourceBusy)):
        await beginning
    work = await resource.begin(BRANCH)
    await work.rollback()


async def test_settings_that_lose_votes_are_refused(tmp_path: Path) -> None:
    careless = SqliteResource("x", tmp_path / "x.db", setup=lambda c: c.execute("PRAGMA synchronous = OFF"))
    await careless.start()
    with pytest.raises(ResourceUnfit, match="synchronous is 0"):
        await careless.preflight()
    await careless.close()


async def test_places_that_keep_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match="in memory"):
        SqliteResource("x", ":memory:")
    nowhere = SqliteResource("x", tmp_path / "no" / "such" / "folder.db")
    with pytest.raises(ResourceUnfit, match="unable to open"):
        await nowhere.start()
    await nowhere.close()


async def test_it_starts_when_it_is_first_used_and_not_again_after_it_was_closed(tmp_path: Path) -> None:
    calendar = SqliteResource("calendar", tmp_path / "calendar.db")
    assert (await calendar.preflight()).version
    await calendar.close()
    with pytest.raises(InvariantViolated, match="closed"):
        await calendar.preflight()


DYING = """
import asyncio, os, signal, sys
from tutti.resources.gid import BranchId
from tutti.resources.sqlite import SqliteResource

async def main(path: str, how: str) -> None:
    resource = SqliteResource("calendar", path)
    await resource.start()
    work = await resource.begin(BranchId("rooms", "j1-1", "calendar"))
    await work.connection.execute("insert into kept values ('a')")
    if how == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "last":
        await work.commit_last()
    else:
        await work.enter(1, b"event")
        await work.commit()
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main(*sys.argv[1:]))
"""


async def die(resource: SqliteResource, how: str) -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", DYING, str(resource.path), how)
    assert await process.wait() == -signal.SIGKILL


@pytest.mark.parametrize(("how", "outcome"), [("before", "abort"), ("last", "commit")])
async def test_recovery_reads_the_outcome_of_a_process_that_died(
    resource: SqliteResource, how: str, outcome: str
) -> None:
    await die(resource, how)
    assert await resource.settle_last(BRANCH) == outcome
    work = await resource.begin(BRANCH)
    assert len((await work.connection.execute("select * from kept")).rows) == (outcome == "commit")
    assert await work.commit_last() == outcome


@pytest.mark.parametrize(("how", "admission"), [("before", Admission.EMPTY), ("after", Admission.RUN)])
async def test_the_barrier_tells_whether_a_process_that_died_had_voted(
    resource: SqliteResource, how: str, admission: Admission
) -> None:
    await die(resource, how)
    voted = admission == Admission.RUN
    assert [step.entry for step in await resource.completed(BRANCH)] == ([b"event"] if voted else [])
    assert list(await resource.unsettled("rooms")) == ([BRANCH] if voted else [])
    work = await resource.begin(BRANCH)
    assert await work.undo(1) == admission
    await work.commit()
