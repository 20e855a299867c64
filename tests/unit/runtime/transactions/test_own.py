"""The publisher's own work in its transaction."""

from __future__ import annotations

import asyncio

import pytest

from tutti.resources import Vote
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
