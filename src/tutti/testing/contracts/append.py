"""What is appended is stored once, in order, as it was given; or it is certain why not."""

# ruff: noqa: S101  -- this module is tests, shipped

from __future__ import annotations

import asyncio
import time

import pytest

from tutti.bus.port import FromEarliest, Stored
from tutti.errors import Conflict, Refused
from tutti.testing.contracts.servers import Bus, Contract
from tutti.testing.contracts.words import PATIENCE, expect_info, put, put_many, read, settled_or_error, soon


class AppendContract(Contract):
    """append, fetch, last."""

    async def test_the_acknowledgement_names_stream_and_sequence(self, bus: Bus) -> None:
        transport = await bus.connect()
        stream = await bus.log(transport)
        assert await put(transport, bus.event("a")) == Stored(stream, 1)
        assert await put(transport, bus.event("b")) == Stored(stream, 2)

    async def test_the_order_of_calls_is_the_order_in_the_log(self, bus: Bus) -> None:
        transport = await bus.connect()
        stream = await bus.log(transport)
        futures = [transport.append(bus.event(f"t{n % 7}"), {}, b"%d" % n, timeout=PATIENCE) for n in range(1_000)]
        stored = await soon(asyncio.gather(*futures))
        assert [one.sequence for one in stored] == list(range(1, 1_001))
        reader = await transport.reader(stream, (), FromEarliest())
        assert [int(record.data) for record in await read(reader, 1_000)] == list(range(1_000))

    async def test_each_of_several_appenders_keeps_its_order(self, bus: Bus) -> None:
        transports = [await bus.connect() for _ in range(3)]
        stream = await bus.log(transports[0])

        async def publish(name: int) -> None:
            for start in range(0, 200, 20):
                numbers = range(start, start + 20)
                appends = [
                    transports[name].append(bus.event(f"p{name}"), {}, b"%d" % n, timeout=PATIENCE) for n in numbers
                ]
                await asyncio.gather(*appends)

        await soon(asyncio.gather(*(publish(name) for name in range(3))))
        records = await read(await transports[0].reader(stream, (), FromEarliest()), 600)
        for name in range(3):
            mine = [int(record.data) for record in records if record.subject == bus.event(f"p{name}")]
            assert mine == list(range(200))

    async def test_any_bytes_survive(self, bus: Bus) -> None:
        transport = await bus.connect()
        stream = await bus.log(transport)
        payloads = [b"", bytes(range(256)), b"\r\nPUB a 0\r\n\r\n", b"NATS/1.0\r\nx: y\r\n\r\n", b"x" * 300_000]
        for payload in payloads:
            stored = await put(transport, bus.event("a"), payload)
            fetched = await transport.fetch(stream, stored.sequence)
            assert fetched is not None
            assert fetched.data == payload
        reader = await transport.reader(stream, (), FromEarliest())
        assert [record.data for record in await read(reader, len(payloads))] == payloads

    async def test_headers_survive(self, bus: Bus) -> None:
        """Names as they are written, values any text in one line, other alphabets included."""
        transport = await bus.connect()
        stream = await bus.log(transport)
        headers = {
            "ce-id": "1", "Ce-Source": "/a:b?c=d", "x-empty": "", "x-colon": "a: b", "Nats-Msg-Id": "m-1",
            "x-unicode": "Größe ≥ 5 €, 東京, 🎺", "x-quotes": "\"it's\" 100 %\t!",
        }  # fmt: skip
        stored = await transport.append(bus.event("a"), headers, b"data", timeout=PATIENCE)
        fetched = await transport.fetch(stream, stored.sequence)
        last = await transport.last(stream, bus.event("a"))
        [read_back] = await read(await transport.reader(stream, (), FromEarliest()), 1)
        for record in (fetched, last, read_back):
            assert record is not None
            assert record.headers == headers
            assert (record.subject, record.sequence, record.data) == (bus.event("a"), 1, b"data")

    @pytest.mark.parametrize(
        ("name", "value"),
        [("x", "a\r\nb: c"), ("x", "a\nb"), ("x", "a\rb"), ("x\r\ny", "a"), ("x:y", "a"), ("x y", "a"), ("", "a")],
    )
    async def test_headers_cannot_be_smuggled_in(self, bus: Bus, name: str, value: str) -> None:
        transport = await bus.connect()
        stream = await bus.log(transport)
        with pytest.raises(Refused):
            await transport.append(bus.event("a"), {name: value}, b"", timeout=PATIENCE)
        with pytest.raises(Refused):
            transport.emit(bus.wire("a"), {name: value}, b"")
        assert (await put(transport, bus.event("a"))).sequence == 1
        await expect_info(transport, stream, first=1, last=1, messages=1)

    @pytest.mark.parametrize("last", ["*", ">", "a b", "", "a\r\nb", "a..b"])
    async def test_what_is_not_a_subject_is_refused(self, bus: Bus, last: str) -> None:
        transport = await bus.connect()
        await bus.log(transport)
        with pytest.raises(Refused):
            await put(transport, bus.event(last))
        with pytest.raises(Refused):
            transport.emit(bus.wire(last), {}, b"")
        assert (await put(transport, bus.event("a"))).sequence == 1

    async def test_a_subject_that_no_stream_owns_is_refused(self, bus: Bus) -> None:
        transport = await bus.connect()
        with pytest.raises(Refused):
            await put(transport, bus.event("a"), timeout=2.0)

    async def test_stored_at_is_the_time_and_never_goes_back(self, bus: Bus) -> None:
        transport = await bus.connect()
        stream = await bus.log(transport)
        await put_many(transport, bus.event("a"), 20)
        moments = [r.stored_at for r in await read(await transport.reader(stream, (), FromEarliest()), 20)]
        assert moments == sorted(moments)
        assert abs(moments[-1] - time.time()) < 60
        first = await transport.fetch(stream, 1)
        assert first is not None
        assert first.stored_at == pytest.approx(moments[0], abs=1e-6)

    async def test_the_same_message_id_is_stored_once(self, bus: Bus) -> None:
        one, other = await bus.connect(), await bus.connect()
        stream = await bus.log(one)
        await put(one, bus.event("a"))
        first = await put(one, bus.event("a"), b"first", message_id="m")
        again = await put(other, bus.event("a"), b"again", message_id="m")
        elsewhere = await put(other, bus.event("b"), b"again", message_id="m")
        assert first == Stored(stream, 2)
        assert again == elsewhere == Stored(stream, 2, duplicate=True)
        assert (await put(one, bus.event("a"), message_id="n")).duplicate is False
        fetched = await one.fetch(stream, 2)
        assert fetched is not None
        assert fetched.data == b"first"
        await expect_info(one, stream, first=1, last=3, messages=3)

    async def test_repetition_at_once_is_stored_once(self, bus: Bus) -> None:
        transports = [await bus.connect() for _ in range(2)]
        await bus.log(transports[0])
        stored = await soon(asyncio.gather(*(put(t, bus.event("a"), message_id="m") for t in transports * 20)))
        assert sum(not one.duplicate for one in stored) == 1
        assert {one.sequence for one in stored if one.sequence} == {1}

    async def test_behind_the_window_an_id_is_new_again(self, bus: Bus) -> None:
        transport = await bus.connect()
        await transport.ensure_stream(bus.log_spec(duplicate_window=0.2))
        await put(transport, bus.event("a"), message_id="m")
        deadline = time.monotonic() + PATIENCE
        while (again := await put(transport, bus.event("a"), message_id="m")).duplicate:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
        assert again.sequence == 2

    async def test_expected_last_is_the_last_on_that_subject(self, bus: Bus) -> None:
        transport = await bus.connect()
        stream = await bus.log(transport)
        a = bus.event("a")
        assert (await put(transport, a, expected_last=0)).sequence == 1
        assert (await put(transport, bus.event("b"), expected_last=0)).sequence == 2
        for wrong in (0, 2, 99):
            with pytest.raises(Conflict):
                await put(transport, a, expected_last=wrong)
        assert (await put(transport, a, expected_last=1)).sequence == 3
        await transport.remove(stream, 3)
        assert (await put(transport, a, b"data", expected_last=1)).sequence == 4
        await expect_info(transport, stream, first=1, last=4, messages=3)
        fetched = await transport.fetch(stream, 4)
        assert fetched is not None
        assert fetched.data == b"data"

    async def test_of_racers_with_one_expectation_one_wins(self, bus: Bus) -> None:
        transports = [await bus.connect() for _ in range(2)]
        await bus.log(transports[0])
        outcomes = await soon(
            asyncio.gather(*(settled_or_error(put(t, bus.event("a"), expected_last=0)) for t in transports * 10))
        )
        assert sum(isinstance(outcome, Stored) for outcome in outcomes) == 1
        assert sum(isinstance(outcome, Conflict) for outcome in outcomes) == 19

    async def test_repeating_a_conditional_append_stores_nothing_twice(self, bus: Bus) -> None:
        """Servers differ in what they look at first, the condition or the id: who repeats must expect either answer."""
        transport = await bus.connect()
        stream = await bus.log(transport)
        await put(transport, bus.event("a"), message_id="m", expected_last=0)
        again = await settled_or_error(put(transport, bus.event("a"), message_id="m", expected_last=0))
        assert again == Stored(stream, 1, duplicate=True) or isinstance(again, Conflict)
        await expect_info(transport, stream, first=1, last=1, messages=1)

    async def test_what_is_too_large_is_refused(self, bus: Bus) -> None:
        transport = await bus.connect()
        await transport.ensure_stream(bus.log_spec(max_message_bytes=10_000))
        with pytest.raises(Refused):
            await put(transport, bus.event("a"), b"x" * 20_000)
        with pytest.raises(Refused):
            await transport.append(bus.event("a"), {"x": "y" * 20_000}, b"", timeout=PATIENCE)
        assert (await put(transport, bus.event("a"), b"x" * 5_000)).sequence == 1

    async def test_what_no_server_would_take_is_refused_and_harms_nobody(self, bus: Bus) -> None:
        transport = await bus.connect()
        await bus.log(transport)
        before = put(transport, bus.event("a"))
        with pytest.raises(Refused):
            await put(transport, bus.event("a"), b"x" * 70_000_000)
        with pytest.raises(Refused):
            transport.emit(bus.wire("a"), {}, b"x" * 70_000_000)
        assert (await before).sequence == 1
        assert (await put(transport, bus.event("a"))).sequence == 2
        assert transport.status().reconnects == 0

    async def test_a_full_stream_refuses_new_rather_than_drop_old(self, bus: Bus) -> None:
        transport = await bus.connect()
        await transport.ensure_stream(bus.log_spec(max_bytes=20_000))
        stream = bus.layout.event_stream("log")
        outcomes = await soon(
            asyncio.gather(*(settled_or_error(put(transport, bus.event("a"), b"x" * 1_000)) for _ in range(40)))
        )
        info = await transport.stream_info(stream)
        assert info is not None
        assert 10 <= info.messages <= 20
        assert [isinstance(outcome, Stored) for outcome in outcomes] == [n < info.messages for n in range(40)]
        assert all(isinstance(outcome, Refused) for outcome in outcomes[info.messages :])
        assert info.first == 1
        await transport.purge(stream, below=5)
        assert (await put(transport, bus.event("a"), b"x" * 1_000)).sequence == info.last + 1

    async def test_cancelling_abandons_the_wait_not_the_message(self, bus: Bus) -> None:
        transport = await bus.connect()
        stream = await bus.log(transport)
        abandoned = transport.append(bus.event("a"), {}, b"abandoned", timeout=PATIENCE)
        abandoned.cancel()
        await put(transport, bus.event("a"), b"next")
        reader = await transport.reader(stream, (), FromEarliest())
        assert [record.data for record in await read(reader, 2)] == [b"abandoned", b"next"]

    async def test_fetch_gives_what_was_acknowledged_to_anybody(self, bus: Bus) -> None:
        one, other = await bus.connect(), await bus.connect()
        stream = await bus.log(one)
        for n in range(20):
            stored = await put(one, bus.event("a"), b"%d" % n)
            fetched = await other.fetch(stream, stored.sequence)
            assert fetched is not None
            assert fetched.data == b"%d" % n
        assert await one.fetch(stream, 21) is None
        assert await one.fetch(stream, 0) is None

    async def test_last_is_of_exactly_that_subject(self, bus: Bus) -> None:
        transport = await bus.connect()
        stream = await bus.log(transport)
        for name in ("a", "b", "a", "a.b", "a", "b"):
            await put(transport, bus.event(name))
        last = await transport.last(stream, bus.event("a"))
        assert last is not None
        assert (last.sequence, last.subject) == (5, bus.event("a"))
        assert await transport.last(stream, bus.event("c")) is None

    async def test_last_up_to_a_sequence(self, bus: Bus) -> None:
        transport = await bus.connect()
        stream = await bus.log(transport)
        for name in ("b", "a", "b", "a", "b", "a"):
            await put(transport, bus.event(name))

        async def last(up_to: int) -> int:
            record = await transport.last(stream, bus.event("a"), up_to=up_to)
            return record.sequence if record else 0

        assert [await last(up_to) for up_to in range(8)] == [0, 0, 2, 2, 4, 4, 6, 6]
        await transport.remove(stream, 4)
        assert await last(5) == 2
