"""Every message of a queue has one taker, until it is settled."""

# ruff: noqa: S101  -- this module is tests, shipped

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from tutti.bus.port import Transport
from tutti.testing.contracts.servers import Bus, Contract
from tutti.testing.contracts.words import A_MOMENT, PATIENCE, put, put_many, soon, take


class QueueContract(Contract):
    """take, settle, hand_back, working."""

    async def test_the_oldest_come_first(self, bus: Bus) -> None:
        transport = await bus.connect()
        await bus.queues(transport)
        for n in range(10):
            await put(transport, bus.layout.queue("jobs", f"t{n % 3}"), b"%d" % n)
        taken = [
            *await take(transport, "jobs", 1),
            *await take(transport, "jobs", 4),
            *await take(transport, "jobs", 5),
        ]
        assert [message.record.data for message in taken] == [b"%d" % n for n in range(10)]
        assert [message.attempt for message in taken] == [1] * 10
        assert taken[0].record.subject == bus.layout.queue("jobs", "t0")
        for message in taken:
            await message.settle()

    async def test_headers_and_data_arrive(self, bus: Bus) -> None:
        transport = await bus.connect()
        await bus.queues(transport)
        data = bytes(range(256))
        await transport.append(bus.layout.queue("jobs", "t"), {"ce-id": "1", "x": "ü"}, data, timeout=PATIENCE)
        [message] = await take(transport, "jobs", 1)
        assert (message.record.headers, message.record.data) == ({"ce-id": "1", "x": "ü"}, data)
        assert message.record.sequence == 1
        await message.settle()

    async def test_takers_compete(self, bus: Bus) -> None:
        transports = [await bus.connect() for _ in range(2)]
        stream = await bus.queues(transports[0])

        async def work(transport: Transport) -> list[bytes]:
            done: list[bytes] = []
            while messages := await transport.take("jobs", max_messages=3, wait=self.silence * 0.8):
                for message in messages:
                    done.append(message.record.data)
                    await message.settle()
            return done

        await put_many(transports[0], bus.layout.queue("jobs", "t"), 100)
        workers = [asyncio.create_task(work(transport)) for transport in transports * 2]
        await put_many(transports[0], bus.layout.queue("jobs", "t"), 100)
        done = [data for worker in workers for data in await soon(worker)]
        assert len(done) == 200
        info = await transports[0].stream_info(stream)
        assert info is not None
        assert info.messages == 0

    async def test_queues_are_separate(self, bus: Bus) -> None:
        transport = await bus.connect()
        await bus.queues(transport)
        await put(transport, bus.layout.queue("one", "t"), b"one")
        await put(transport, bus.layout.queue("two", "t"), b"two")
        [message] = await take(transport, "two", 1)
        assert message.record.data == b"two"
        assert list(await transport.take("two", wait=A_MOMENT)) == []
        [message] = await take(transport, "one", 1)
        assert message.record.data == b"one"

    async def test_take_waits_no_longer_than_told(self, bus: Bus) -> None:
        transport = await bus.connect()
        await bus.queues(transport)
        started = time.monotonic()
        assert list(await soon(transport.take("jobs", wait=A_MOMENT))) == []
        assert time.monotonic() - started >= A_MOMENT * 0.9

    async def test_a_waiting_taker_is_woken(self, bus: Bus) -> None:
        one, other = await bus.connect(), await bus.connect()
        await bus.queues(one)
        for n in range(3):
            waiting = asyncio.create_task(one.take("jobs"))
            await put(other, bus.layout.queue("jobs", "t"), b"%d" % n)
            [message] = await soon(waiting)
            assert message.record.data == b"%d" % n
            await message.settle()

    async def test_nobody_else_gets_what_is_held(self, bus: Bus) -> None:
        one, other = await bus.connect(), await bus.connect()
        await bus.queues(one)
        await put(one, bus.layout.queue("jobs", "t"))
        [message] = await take(one, "jobs", 1)
        assert list(await other.take("jobs", wait=self.silence * 0.4)) == []
        await message.settle()

    async def test_what_is_handed_back_is_offered_again(self, bus: Bus) -> None:
        one, other = await bus.connect(), await bus.connect()
        await bus.queues(one)
        await put(one, bus.layout.queue("jobs", "t"), b"first")
        await put(one, bus.layout.queue("jobs", "t"), b"second")
        [message] = await take(one, "jobs", 1)
        await message.hand_back()
        [again] = await take(other, "jobs", 1)
        assert (again.record.data, again.attempt) == (b"first", 2)
        await again.hand_back()
        [third] = await take(one, "jobs", 1)
        assert (third.record.data, third.attempt) == (b"first", 3)

    async def test_a_delay_is_kept(self, bus: Bus) -> None:
        transport = await bus.connect()
        await bus.queues(transport)
        await put(transport, bus.layout.queue("jobs", "t"), b"first")
        await put(transport, bus.layout.queue("jobs", "t"), b"second")
        [message] = await take(transport, "jobs", 1)
        handed_back = time.monotonic()
        await message.hand_back(delay=self.silence * 2)
        [second] = await take(transport, "jobs", 1)
        assert second.record.data == b"second"
        await second.settle()
        [again] = await take(transport, "jobs", 1)
        assert (again.record.data, again.attempt) == (b"first", 2)
        assert time.monotonic() - handed_back >= self.silence * 1.8
        await again.settle()

    async def test_who_falls_silent_loses_the_message(self, bus: Bus) -> None:
        one, other = await bus.connect(), await bus.connect()
        await bus.queues(one)
        await put(one, bus.layout.queue("jobs", "t"), b"first")
        started = time.monotonic()
        await take(one, "jobs", 1)
        await one.close()
        [again] = await take(other, "jobs", 1)
        assert (again.record.data, again.attempt) == (b"first", 2)
        assert time.monotonic() - started >= self.silence * 0.8
        await again.settle()

    async def test_working_keeps_the_message(self, bus: Bus) -> None:
        one, other = await bus.connect(), await bus.connect()
        await bus.queues(one)
        await put(one, bus.layout.queue("jobs", "t"))
        [message] = await take(one, "jobs", 1)
        for _ in range(5):
            assert list(await other.take("jobs", wait=self.silence * 0.4)) == []
            await message.working()
        await message.settle()
        assert list(await other.take("jobs", wait=A_MOMENT)) == []

    async def test_what_is_settled_is_removed_for_good(self, bus: Bus) -> None:
        one, other = await bus.connect(), await bus.connect()
        stream = await bus.queues(one)
        await put(one, bus.layout.queue("jobs", "t"))
        [message] = await take(one, "jobs", 1)
        await message.settle()
        assert await other.fetch(stream, message.record.sequence) is None
        await message.settle()
        await message.hand_back()
        assert list(await other.take("jobs", wait=self.silence * 1.5)) == []

    async def test_settling_late_still_removes(self, bus: Bus) -> None:
        """The work was done once more than needed; it need not be done a third time."""
        one, other = await bus.connect(), await bus.connect()
        stream = await bus.queues(one)
        await put(one, bus.layout.queue("jobs", "t"))
        [late] = await take(one, "jobs", 1)
        [again] = await take(other, "jobs", 1)
        assert again.attempt == 2
        await late.settle()
        await again.settle()
        assert await one.fetch(stream, late.record.sequence) is None
        assert list(await one.take("jobs", wait=A_MOMENT)) == []

    async def test_a_cancelled_taker_holds_nothing_for_ever(self, bus: Bus) -> None:
        one, other = await bus.connect(), await bus.connect()
        await bus.queues(one)
        waiting = asyncio.create_task(one.take("jobs"))
        await asyncio.wait([waiting], timeout=A_MOMENT)
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
        await put(one, bus.layout.queue("jobs", "t"), b"first")
        [message] = await take(other, "jobs", 1)
        assert message.record.data == b"first"
        await message.settle()

    async def test_repetition_is_filtered_in_queues_too(self, bus: Bus) -> None:
        transport = await bus.connect()
        await bus.queues(transport)
        await put(transport, bus.layout.queue("jobs", "t"), message_id="m")
        [message] = await take(transport, "jobs", 1)
        await message.settle()
        assert (await put(transport, bus.layout.queue("jobs", "t"), message_id="m")).duplicate
        assert list(await transport.take("jobs", wait=A_MOMENT)) == []
