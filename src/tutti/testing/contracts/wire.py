"""What is not stored: messages, requests and replies to whoever listens now."""

# ruff: noqa: S101  -- this module is tests, shipped

from __future__ import annotations

import asyncio

from tutti.bus.port import Listener, Transport
from tutti.testing.contracts.servers import Bus, Contract
from tutti.testing.contracts.words import A_MOMENT, drained, heard, soon, until


class WireContract(Contract):
    """emit, listen, inbox."""

    async def test_a_message_arrives_as_it_was_sent(self, bus: Bus) -> None:
        one, other = await bus.connect(), await bus.connect()
        listener = await other.listen(bus.wire("a"))
        headers = {"ce-id": "1", "x": "Größe 東京", "empty": ""}
        one.emit(bus.wire("a"), headers, bytes(range(256)), reply="somewhere.else")
        one.emit(bus.wire("a"), {}, b"")
        first, second = await heard(listener, 2)
        assert (first.subject, first.headers, first.data) == (bus.wire("a"), headers, bytes(range(256)))
        assert (first.reply, first.sequence) == ("somewhere.else", 0)
        assert (second.headers, second.data, second.reply) == ({}, b"", "")

    async def test_from_the_moment_listen_returns_everything_is_heard(self, bus: Bus) -> None:
        one, other = await bus.connect(), await bus.connect()
        for n in range(10):
            listener = await one.listen(bus.wire(f"a{n}"))
            other.emit(bus.wire(f"a{n}"), {}, b"%d" % n)
            assert [record.data for record in await heard(listener, 1)] == [b"%d" % n]
            await listener.close()

    async def test_nothing_is_kept_for_who_comes_later(self, bus: Bus) -> None:
        transport = await bus.connect()
        early = await transport.listen(bus.wire("a"))
        transport.emit(bus.wire("a"), {}, b"early")
        await heard(early, 1)
        late = await transport.listen(bus.wire("a"))
        transport.emit(bus.wire("a"), {}, b"late")
        assert [record.data for record in await heard(late, 1)] == [b"late"]

    async def test_one_sender_is_heard_in_order(self, bus: Bus) -> None:
        one, other = await bus.connect(), await bus.connect()
        listener = await other.listen(bus.wire(">"))
        for n in range(2_000):
            one.emit(bus.wire(f"a{n % 3}"), {}, b"%d" % n)
        assert [int(record.data) for record in await heard(listener, 2_000)] == list(range(2_000))
        assert listener.dropped == 0

    async def test_wildcards(self, bus: Bus) -> None:
        transport = await bus.connect()
        everything = ["a", "a.b", "a.b.c", "b"]
        expected = {"a": ["a"], "*": ["a", "b"], "*.b": ["a.b"], "a.>": ["a.b", "a.b.c"], ">": everything}
        listeners = {filter_: await transport.listen(bus.wire(filter_)) for filter_ in expected}
        for name in everything:
            transport.emit(bus.wire(name), {}, b"")
        for filter_, names in expected.items():
            records = await heard(listeners[filter_], len(names))
            assert [record.subject for record in records] == [bus.wire(name) for name in names]
        await silent(transport, bus, *listeners.values())

    async def test_one_of_a_group_gets_each_message(self, bus: Bus) -> None:
        transports = [await bus.connect() for _ in range(2)]
        subject = bus.wire("a")
        group = [await transports[n % 2].listen(subject, group="workers") for n in range(3)]
        other_group = await transports[0].listen(bus.wire("*"), group="others")
        everybody = await transports[1].listen(subject)
        received: list[bytes] = []

        async def collect(listener: Listener) -> None:
            while records := await heard(listener, 1):
                received.extend(record.data for record in records)

        collectors = [asyncio.create_task(collect(listener)) for listener in group]
        for n in range(100):
            transports[0].emit(subject, {}, b"%d" % n)
        assert len(await heard(everybody, 100)) == 100
        assert len(await heard(other_group, 100)) == 100
        await until(lambda: len(received) >= 100)
        for listener in group:
            await listener.close()
        await soon(asyncio.gather(*collectors))
        assert sorted(received, key=int) == [b"%d" % n for n in range(100)]

    async def test_a_group_goes_on_without_a_member(self, bus: Bus) -> None:
        one, other = await bus.connect(), await bus.connect()
        leaving = await one.listen(bus.wire("a"), group="workers")
        staying = await other.listen(bus.wire("a"), group="workers")
        await leaving.close()
        await other.stream_names()  # a round trip to the servers: they know by now who is left
        await one.stream_names()
        for n in range(10):
            other.emit(bus.wire("a"), {}, b"%d" % n)
        assert len(await heard(staying, 10)) == 10

    async def test_what_does_not_fit_the_buffer_is_dropped_and_counted(self, bus: Bus) -> None:
        one, other = await bus.connect(), await bus.connect()
        small = await other.listen(bus.wire("a"), buffer=10)
        large = await other.listen(bus.wire("a"))
        for n in range(100):
            one.emit(bus.wire("a"), {}, b"%d" % n)
        await heard(large, 100)
        await until(lambda: small.dropped == 90)
        assert [int(record.data) for record in await heard(small, 10)] == list(range(10))
        one.emit(bus.wire("a"), {}, b"again")
        assert [record.data for record in await heard(small, 1)] == [b"again"]
        assert (small.dropped, large.dropped) == (90, 0)

    async def test_request_and_reply(self, bus: Bus) -> None:
        asking, answering = await bus.connect(), await bus.connect()
        questions = await answering.listen(bus.wire("ask"), group="answerers")

        async def answer() -> None:
            async for question in questions:
                answering.emit(question.reply, {}, b"re: " + question.data)

        answerer = asyncio.create_task(answer())
        for n in range(10):
            inbox = asking.inbox()
            replies = await asking.listen(inbox)
            asking.emit(bus.wire("ask"), {}, b"%d" % n, reply=inbox)
            [reply] = await heard(replies, 1)
            assert (reply.subject, reply.data) == (inbox, b"re: %d" % n)
            await replies.close()
        await questions.close()
        await soon(answerer)

    async def test_inboxes_are_nobody_elses(self, bus: Bus) -> None:
        transports = [await bus.connect() for _ in range(3)]
        inboxes = [transport.inbox() for transport in transports for _ in range(100)]
        assert len(set(inboxes)) == 300

    async def test_closing_a_listener_ends_its_iteration(self, bus: Bus) -> None:
        transport = await bus.connect()
        listener = await transport.listen(bus.wire("a"))
        iteration = asyncio.create_task(drained(listener))
        await asyncio.wait([iteration], timeout=A_MOMENT)
        await listener.close()
        await listener.close()
        assert await soon(iteration) == []
        transport.emit(bus.wire("a"), {}, b"")
        assert await soon(drained(listener)) == []


async def silent(transport: Transport, bus: Bus, *listeners: Listener) -> None:
    """None of these has anything more to say: what arrives behind them on the same connection is here already."""
    last = await transport.listen(bus.wire("silent.last.word"))
    transport.emit(bus.wire("silent.last.word"), {}, b"")
    await heard(last, 1)
    for listener in listeners:
        await listener.close()
        rest = [record for record in await soon(drained(listener)) if "silent" not in record.subject]
        assert rest == []
