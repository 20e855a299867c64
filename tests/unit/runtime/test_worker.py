"""Taking from a queue, side by side, and ending without losing a message."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

import tutti
from tutti.bus.memory.queue import MemoryTaken
from tutti.limits import QUEUE_SILENCE_SECONDS
from tutti.runtime.worker import WORKING_SECONDS, Hand, QueueWorker, Verdict
from tutti.testing.kit import BusKit


class Job(tutti.Event):
    number: int


async def filled(bus: BusKit, count: int) -> None:
    await bus.advertise(Job)
    for number in range(count):
        await bus.send(Job(number), to="jobs")


async def until(bus: BusKit, done: object) -> None:
    async with asyncio.timeout(5):
        while not done():  # type: ignore[operator]  # any callable
            await asyncio.sleep(0)
            if bus.clock.due is not None and bus.clock.due - bus.clock.monotonic() < 1:
                bus.clock.advance(1)


async def test_each_message_gets_its_own_verdict(tutti_bus: BusKit) -> None:
    seen: list[tuple[bytes, int]] = []

    async def handle(hand: Hand) -> Sequence[Verdict]:
        seen.extend((message.record.data, message.attempt) for message in hand.taken)
        return [
            0.5 if message.record.data == b'{"number":1}' and message.attempt == 1 else None for message in hand.taken
        ]

    await filled(tutti_bus, 3)
    worker = QueueWorker(tutti_bus.context, "jobs", handle, most=3)
    worker.start()
    await until(tutti_bus, lambda: len(seen) == 4)
    assert await worker.finish(1)
    assert seen[-1] == (b'{"number":1}', 2)
    assert not await tutti_bus.context.transport.take("jobs", wait=0)


async def test_as_many_at_once_as_may_be(tutti_bus: BusKit) -> None:
    running, most, gate = 0, 0, asyncio.Event()

    async def handle(hand: Hand) -> Sequence[Verdict]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await gate.wait()
        running -= 1
        return [None]

    await filled(tutti_bus, 6)
    worker = QueueWorker(tutti_bus.context, "jobs", handle, concurrency=3)
    worker.start()
    await until(tutti_bus, lambda: running == 3)
    gate.set()
    await until(tutti_bus, lambda: worker.idle)
    assert await worker.finish(1)
    assert most == 3


async def test_what_does_not_end_in_time_is_handed_back(tutti_bus: BusKit) -> None:
    started = asyncio.Event()

    async def handle(hand: Hand) -> Sequence[Verdict]:
        started.set()
        await asyncio.Event().wait()
        return [None]

    await filled(tutti_bus, 1)
    worker = QueueWorker(tutti_bus.context, "jobs", handle)
    worker.start()
    await started.wait()
    assert not await worker.finish(0.01)
    (again,) = await tutti_bus.context.transport.take("jobs", wait=0)
    assert again.attempt == 2


async def test_a_message_that_cannot_be_settled_keeps_no_other(
    tutti_bus: BusKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle = MemoryTaken.settle

    async def settles(taken: MemoryTaken) -> None:
        if taken.record.data == b'{"number":0}':
            raise tutti.OutcomeUnknown("no answer")
        await settle(taken)

    async def handle(hand: Hand) -> Sequence[Verdict]:
        return [None] * len(hand.taken)

    await filled(tutti_bus, 3)
    monkeypatch.setattr(MemoryTaken, "settle", settles)
    worker = QueueWorker(tutti_bus.context, "jobs", handle, most=3)
    worker.start()
    await until(tutti_bus, lambda: not worker.idle)
    await until(tutti_bus, lambda: worker.idle)
    assert await worker.finish(1)
    tutti_bus.clock.advance(QUEUE_SILENCE_SECONDS)
    (left,) = await tutti_bus.context.transport.take("jobs", max_messages=3, wait=0)
    assert left.record.data == b'{"number":0}'


async def test_what_is_being_handled_is_not_given_to_another(tutti_bus: BusKit) -> None:
    release = asyncio.Event()

    async def handle(hand: Hand) -> Sequence[Verdict]:
        await release.wait()
        return [None] * len(hand.taken)

    await filled(tutti_bus, 1)
    worker = QueueWorker(tutti_bus.context, "jobs", handle)
    worker.start()
    await until(tutti_bus, lambda: worker.at_work)
    for _ in range(10):
        tutti_bus.clock.advance(WORKING_SECONDS)
        await asyncio.sleep(0.001)
    assert not await tutti_bus.context.transport.take("jobs", wait=0)
    release.set()
    assert await worker.finish(1)


async def test_a_hand_reaches_for_more_until_the_worker_is_to_end(tutti_bus: BusKit) -> None:
    reached: list[int] = []

    async def handle(hand: Hand) -> Sequence[Verdict]:
        while more := await hand.more(5, 60.0):
            reached.append(len(more))
        return [None] * len(hand.taken)

    await filled(tutti_bus, 1)
    worker = QueueWorker(tutti_bus.context, "jobs", handle)
    worker.start()
    await until(tutti_bus, lambda: not worker.idle and not worker.at_work)
    await filled(tutti_bus, 2)
    await until(tutti_bus, lambda: sum(reached) == 2)
    assert await worker.finish(1)
    assert not await tutti_bus.context.transport.take("jobs", wait=0)
