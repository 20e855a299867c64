"""A reader gets every record it asked for, in order, or is told which are gone."""

# ruff: noqa: S101  -- this module is tests, shipped

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import pytest

from tutti.bus.port import FromEarliest, FromLatest, FromSequence, FromTime, Reader, Record, Start
from tutti.errors import BusError, Gone
from tutti.testing.contracts.servers import Bus, Contract
from tutti.testing.contracts.words import A_MOMENT, PATIENCE, put, put_many, reach_horizon, read, read_to_gap, soon


class ReaderContract(Contract):
    """reader, batch, horizon."""

    @pytest.mark.parametrize(
        ("start", "expected"),
        [
            (FromEarliest(), [3, 4, 5, 6, 7]),
            (FromSequence(5), [5, 6, 7]),
            (FromSequence(1), [3, 4, 5, 6, 7]),
            (FromSequence(0), [3, 4, 5, 6, 7]),
            (FromSequence(6), [6, 7]),
            (FromLatest(), [7]),
            (FromTime(0.0), [3, 4, 5, 6, 7]),
        ],
        ids=repr,
    )
    async def test_where_a_reader_starts(self, bus: Bus, start: Start, expected: list[int]) -> None:
        transport = await bus.connect()
        stream = await bus.log(transport)
        await put_many(transport, bus.event("a"), 6)
        await transport.purge(stream, below=3)
        reader = await transport.reader(stream, (), start)
        await put(transport, bus.event("a"))
        assert [record.sequence for record in await read(reader, len(expected))] == expected
        assert list(await reader.batch(1, wait=A_MOMENT)) == []

    async def test_start_at_a_time_is_inclusive(self, bus: Bus) -> None:
        transport = await bus.connect()
        stream = await bus.log(transport)
        await put_many(transport, bus.event("a"), 5)
        third = await transport.fetch(stream, 3)
        assert third is not None
        # A double holds the time since the epoch to a quarter of a microsecond; servers may be finer.
        reader = await transport.reader(stream, (), FromTime(third.stored_at - 1e-6))
        records = await read(reader, 3)
        assert records[0].sequence <= 3
        assert all(record.stored_at >= third.stored_at - 2e-6 for record in records)

    async def test_start_beyond_the_end_waits_for_that_sequence(self, bus: Bus) -> None:
        transport = await bus.connect()
        stream = await bus.log(transport)
        await put_many(transport, bus.event("a"), 2)
        reader = await transport.reader(stream, (), FromSequence(5))
        await put_many(transport, bus.event("a"), 4)
        assert [record.sequence for record in await read(reader, 2)] == [5, 6]

    async def test_a_reader_of_a_removed_sequence_starts_behind_it(self, bus: Bus) -> None:
        transport = await bus.connect()
        stream = await bus.log(transport)
        await put_many(transport, bus.event("a"), 4)
        await transport.remove(stream, 2)
        reader = await transport.reader(stream, (), FromSequence(2))
        assert [record.sequence for record in await read(reader, 2)] == [3, 4]

    async def test_when_reader_returns_the_start_is_fixed(self, bus: Bus) -> None:
        one, other = await bus.connect(), await bus.connect()
        stream = await bus.log(one)
        for n in range(10):
            reader = await one.reader(stream, (), FromLatest())
            await put(other, bus.event("a"), b"%d" % n)
            assert [record.data for record in await read(reader, 1)] == [b"%d" % n]
            await reader.close()

    @pytest.mark.parametrize(
        ("filters", "expected"),
        [
            ((), ["a", "a.b", "a.b.c", "b", "b.b", "aa"]),
            (("{}.a",), ["a"]),
            (("{}.*",), ["a", "b", "aa"]),
            (("{}.>",), ["a", "a.b", "a.b.c", "b", "b.b", "aa"]),
            (("{}.a.>",), ["a.b", "a.b.c"]),
            (("{}.*.b",), ["a.b", "b.b"]),
            (("{}.*.b.*",), ["a.b.c"]),
            (("{}.a", "{}.b"), ["a", "b"]),
            (("{}.*", "{}.a.>"), ["a", "a.b", "a.b.c", "b", "aa"]),
            (("{}.*.b", "{}.a.>", "{}.a.b"), ["a.b", "a.b.c", "b.b"]),
            (("{}.c", "{}.*.c"), []),
        ],
    )
    async def test_which_subjects_a_reader_gets(self, bus: Bus, filters: tuple[str, ...], expected: list[str]) -> None:
        """Every record once, also where two filters match it."""
        transport = await bus.connect()
        stream = await bus.log(transport)
        prefix = bus.event("").removesuffix(".")
        reader = await transport.reader(stream, [one.format(prefix) for one in filters], FromEarliest())
        for name in ("a", "a.b", "a.b.c", "b", "b.b", "aa"):
            await put(transport, bus.event(name))
        records = await read(reader, len(expected))
        assert [record.subject for record in records] == [bus.event(name) for name in expected]
        assert list(await reader.batch(1, wait=A_MOMENT)) == []

    async def test_a_batch_has_at_most_what_was_asked_for(self, bus: Bus) -> None:
        transport = await bus.connect()
        stream = await bus.log(transport)
        await put_many(transport, bus.event("a"), 50)
        reader = await transport.reader(stream, (), FromEarliest())
        seen: list[int] = []
        for most in (1, 3, 7, 1, 40, 40, 40):
            if len(seen) < 50:
                batch = await soon(reader.batch(most))
                assert 1 <= len(batch) <= most
                seen += [record.sequence for record in batch]
        assert seen == list(range(1, len(seen) + 1))

    async def test_a_batch_waits_no_longer_than_told(self, bus: Bus) -> None:
        transport = await bus.connect()
        reader = await transport.reader(await bus.log(transport), (), FromEarliest())
        started = time.monotonic()
        assert list(await soon(reader.batch(10, wait=A_MOMENT))) == []
        assert time.monotonic() - started >= A_MOMENT * 0.9
        assert list(await soon(reader.batch(10, wait=0.0))) == []

    async def test_a_waiting_batch_is_woken(self, bus: Bus) -> None:
        one, other = await bus.connect(), await bus.connect()
        reader = await one.reader(await bus.log(one), (bus.event("a"),), FromEarliest())
        for n in range(3):
            waiting = asyncio.create_task(read(reader, 1))
            await put(other, bus.event("b"))
            await put(other, bus.event("a"), b"%d" % n)
            [record] = await soon(waiting)
            assert record.data == b"%d" % n

    async def test_a_cancelled_batch_loses_nothing(self, bus: Bus) -> None:
        transport = await bus.connect()
        reader = await transport.reader(await bus.log(transport), (), FromEarliest())
        seen: list[int] = []
        for n in range(40):
            waiting = asyncio.create_task(reader.batch(1, wait=PATIENCE))
            appended = transport.append(bus.event("a"), {}, b"", timeout=PATIENCE)
            for _ in range(n % 5):  # cancelled at another moment each time
                await asyncio.sleep(0)
            waiting.cancel()
            with suppress(asyncio.CancelledError):
                seen += [record.sequence for record in await waiting]
            await appended
        seen += [record.sequence for record in await read(reader, 40 - len(seen))]
        assert seen == list(range(1, 41))

    async def test_readers_do_not_disturb_each_other(self, bus: Bus) -> None:
        """Everybody gets everything once, in order, while it is written."""
        transports = [await bus.connect() for _ in range(2)]
        stream = await bus.log(transports[0])
        readers = [await transports[n % 2].reader(stream, (), FromEarliest()) for n in range(4)]

        async def consume(reader: Reader, most: int) -> list[int]:
            seen: list[int] = []
            while len(seen) < 1_500:
                seen += [record.sequence for record in await reader.batch(most)]
            return seen

        consumers = [asyncio.create_task(consume(reader, 1 + 50 * n)) for n, reader in enumerate(readers)]
        for _ in range(15):
            await put_many(transports[0], bus.event("a"), 100)
        for consumer in consumers:
            assert await soon(consumer) == list(range(1, 1_501))

    async def test_a_position_outlives_its_reader(self, bus: Bus) -> None:
        one, other = await bus.connect(), await bus.connect()
        stream = await bus.log(one)
        await put_many(one, bus.event("a"), 30)
        reader = await one.reader(stream, (), FromEarliest())
        first = await read(reader, 10)
        await reader.close()
        successor = await other.reader(stream, (), FromSequence(first[-1].sequence + 1))
        rest = await read(successor, 20)
        assert [record.sequence for record in (*first, *rest)] == list(range(1, 31))

    async def test_closing_a_reader_twice_is_harmless_and_leaves_the_others(self, bus: Bus) -> None:
        transport = await bus.connect()
        stream = await bus.log(transport)
        closing = await transport.reader(stream, (), FromEarliest())
        staying = await transport.reader(stream, (), FromEarliest())
        await closing.close()
        await closing.close()
        with pytest.raises(BusError):
            await soon(closing.batch(1, wait=A_MOMENT))
        await put(transport, bus.event("a"))
        assert len(await read(staying, 1)) == 1

    async def test_what_was_purged_before_it_was_read_is_gone_not_skipped(self, bus: Bus) -> None:
        """Records that the transport had already fetched may still be handed out; none is left out in silence."""
        transport = await bus.connect()
        stream = await bus.log(transport)
        reader = await transport.reader(stream, (bus.event("a"),), FromEarliest())
        await put(transport, bus.event("a"))
        assert [record.sequence for record in await read(reader, 1)] == [1]
        for _ in range(20):
            await put_many(transport, bus.event("a"), 200, b"x" * 2_000)
        await transport.purge(stream, below=3_990)
        seen, gone = await read_to_gap(reader, up_to=4_001)
        assert seen == list(range(2, 2 + len(seen)))
        assert gone or seen[-1] == 4_001

    async def test_after_gone_a_new_reader_goes_on(self, bus: Bus) -> None:
        transport = await bus.connect()
        stream = await bus.log(transport)
        reader = await transport.reader(stream, (), FromEarliest())
        for _ in range(20):
            await put_many(transport, bus.event("a"), 200, b"x" * 2_000)
        await transport.purge(stream, below=3_990)
        await read_to_gap(reader, up_to=4_000)
        await reader.close()
        successor = await transport.reader(stream, (), FromEarliest())
        assert [record.sequence for record in await read(successor, 11)] == list(range(3_990, 4_001))

    async def test_one_removed_record_does_not_stop_a_reader(self, bus: Bus) -> None:
        """`Gone` may be raised for it; behind it everything comes."""
        transport = await bus.connect()
        stream = await bus.log(transport)
        reader = await transport.reader(stream, (), FromEarliest())
        await put_many(transport, bus.event("a"), 10)
        await transport.remove(stream, 5)
        seen: list[int] = []
        deadline = time.monotonic() + PATIENCE
        while seen[-1:] != [10]:
            assert time.monotonic() < deadline
            with suppress(Gone):
                seen += [record.sequence for record in await soon(reader.batch(3, wait=PATIENCE))]
        assert [sequence for sequence in seen if sequence != 5] == [1, 2, 3, 4, 6, 7, 8, 9, 10]

    async def test_purging_what_was_read_or_does_not_match_disturbs_nobody(self, bus: Bus) -> None:
        transport = await bus.connect()
        stream = await bus.log(transport)
        reader = await transport.reader(stream, (bus.event("a"),), FromEarliest())
        await put_many(transport, bus.event("a"), 10)
        await read(reader, 10)
        await transport.purge(stream, below=11)
        await put(transport, bus.event("a"))
        assert [record.sequence for record in await read(reader, 1)] == [11]

    async def test_the_horizon_follows_what_was_handed_out(self, bus: Bus) -> None:
        transport = await bus.connect()
        stream = await bus.log(transport)
        reader = await transport.reader(stream, (bus.event("a"),), FromEarliest())
        assert await reader.horizon() == 0
        await put_many(transport, bus.event("a"), 10)
        for expected in range(1, 11):
            assert await soon(reader.horizon()) < expected
            [record] = await read(reader, 1)
            assert record.sequence == expected
        await reach_horizon(reader, 10)

    async def test_the_horizon_moves_when_nothing_matches(self, bus: Bus) -> None:
        transport = await bus.connect()
        stream = await bus.log(transport)
        await put_many(transport, bus.event("b"), 20)
        reader = await transport.reader(stream, (bus.event("a"),), FromEarliest())
        await reach_horizon(reader, 20)
        await put_many(transport, bus.event("b"), 20)
        await reach_horizon(reader, 40)
        await put(transport, bus.event("a"))
        await put_many(transport, bus.event("b"), 5)
        assert await soon(reader.horizon()) <= 40
        assert [record.sequence for record in await read(reader, 1)] == [41]
        await reach_horizon(reader, 46)

    async def test_the_horizon_of_a_reader_from_the_middle(self, bus: Bus) -> None:
        transport = await bus.connect()
        stream = await bus.log(transport)
        await put_many(transport, bus.event("a"), 10)
        latest = await transport.reader(stream, (), FromLatest())
        await reach_horizon(latest, 10)
        from_five = await transport.reader(stream, (), FromSequence(5))
        assert await from_five.horizon() <= 4

    async def test_a_reader_of_the_state_sees_the_newest(self, bus: Bus) -> None:
        """`Gone` may be raised for records that were replaced before they were read; the newest comes all the same."""
        transport = await bus.connect()
        stream = await bus.state(transport)
        reader = await transport.reader(stream, (), FromEarliest())
        revision = 0
        for n in range(20):
            revision = await transport.state_put("a.b", b"%d" % n, expected=revision)
        seen: list[Record] = []
        while not seen or seen[-1].sequence < revision:
            with suppress(Gone):
                seen += await read(reader, 1)
        assert seen[-1].data == b"19"
