"""The publisher's own work in its transaction."""

from __future__ import annotations

import asyncio

import pytest

from tutti.errors import OutcomeNotYours, ResourceUnreachable, TransactionClosed
from tutti.resources import BranchId, Vote
from tutti.resources.memory import MemoryResource, MemoryWork
from tutti.runtime.transactions.own import OwnWork


async def test_an_abort_while_it_is_being_prepared_leaves_nothing_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    calendar, own = MemoryResource("calendar"), OwnWork("j-r-1")
    (await own.begin(calendar)).put("a", 1)
    prepare, asked, answered = MemoryWork.prepare, asyncio.Event(), asyncio.Event()

    async def slow(work: MemoryWork) -> Vote:
        vote = await prepare(work)  # the database has done it, and its answer is on the way
        asked.set()
        await answered.wait()
        return vote

    monkeypatch.setattr(MemoryWork, "prepare", slow)
    preparing = asyncio.create_task(own.prepare())
    await asked.wait()
    finishing = asyncio.create_task(own.finish("abort"))
    await asyncio.sleep(0)
    answered.set()
    await asyncio.gather(preparing, finishing)
    assert (calendar.store.data, list(calendar.store.prepared)) == ({}, [])


async def test_what_is_enlisted_while_it_aborts_is_rolled_back(monkeypatch: pytest.MonkeyPatch) -> None:
    calendar, own = MemoryResource("calendar"), OwnWork("j-r-1")
    begin, asked, answered = calendar.begin, asyncio.Event(), asyncio.Event()
    begun: list[MemoryWork] = []

    async def slow(branch: BranchId) -> MemoryWork:
        asked.set()
        await answered.wait()
        begun.append(await begin(branch))
        return begun[0]

    monkeypatch.setattr(calendar, "begin", slow)
    enlisting = asyncio.create_task(own.begin(calendar))
    await asked.wait()
    finishing = asyncio.create_task(own.finish("abort"))
    await asyncio.sleep(0)
    answered.set()
    await asyncio.gather(enlisting, finishing)
    with pytest.raises(OutcomeNotYours):
        _ = begun[0].connection


async def test_nothing_is_enlisted_after_the_end() -> None:
    calendar, own = MemoryResource("calendar"), OwnWork("j-r-1")
    await own.finish("abort")
    with pytest.raises(TransactionClosed, match="after its work has ended"):
        await own.begin(calendar)


async def test_a_roll_back_that_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else nobody would hear that the own work is finished, and the transaction would never end."""
    monkeypatch.setattr("tutti.runtime.transactions.insisting.FINISH_RETRY_SECONDS", 0.001)
    calendar, own = MemoryResource("calendar"), OwnWork("j-r-1")
    await own.begin(calendar)
    rollback, failures = MemoryWork.rollback, [ResourceUnreachable("the disk does not answer")]

    async def failing(work: MemoryWork) -> None:
        if failures:
            raise failures.pop()
        await rollback(work)

    monkeypatch.setattr(MemoryWork, "rollback", failing)
    await own.finish("abort")
    assert not failures
