"""Streams are made, described, shortened and mended."""

# ruff: noqa: S101  -- this module is tests, shipped

from __future__ import annotations

import asyncio

import pytest

from tutti.bus.port import FromEarliest, StreamSpec
from tutti.errors import BusError, Refused
from tutti.testing.contracts.servers import Bus, Contract
from tutti.testing.contracts.words import expect_info, put, put_many, soon


class StreamContract(Contract):
    """ensure_stream, stream_info, stream_names, purge, remove."""

    async def test_a_new_stream_is_empty(self, bus: Bus) -> None:
        transport = await bus.connect()
        assert await transport.stream_info(bus.layout.event_stream("log")) is None
        info = await transport.ensure_stream(bus.log_spec())
        assert (info.name, info.subjects) == (bus.layout.event_stream("log"), (bus.layout.event_subjects("log"),))
        assert (info.first, info.last, info.messages) == (1, 0, 0)
        assert info == await transport.stream_info(info.name)
        assert info.name in await transport.stream_names()

    async def test_ensuring_again_keeps_what_is_stored(self, bus: Bus) -> None:
        one, other = await bus.connect(), await bus.connect()
        await bus.log(one)
        await put(one, bus.event("a"))
        info = await other.ensure_stream(bus.log_spec())
        assert (info.first, info.last, info.messages) == (1, 1, 1)

    async def test_many_may_ensure_at_once(self, bus: Bus) -> None:
        transports = [await bus.connect() for _ in range(3)]
        spec = bus.log_spec()
        infos = await soon(asyncio.gather(*(transport.ensure_stream(spec) for transport in transports * 4)))
        assert {info.name for info in infos} == {spec.name}

    async def test_ensuring_brings_the_limits_up_to_date(self, bus: Bus) -> None:
        transport = await bus.connect()
        await transport.ensure_stream(bus.log_spec(max_message_bytes=1_000))
        with pytest.raises(Refused):
            await put(transport, bus.event("a"), b"x" * 2_000)
        await transport.ensure_stream(bus.log_spec(max_message_bytes=4_000))
        assert (await put(transport, bus.event("a"), b"x" * 2_000)).sequence == 1

    async def test_two_streams_cannot_own_one_subject(self, bus: Bus) -> None:
        transport = await bus.connect()
        await bus.log(transport)
        with pytest.raises(BusError):
            await soon(transport.ensure_stream(StreamSpec(bus.layout.event_stream("other"), (bus.event("a"),))))

    async def test_info_follows_appends_purge_and_remove(self, bus: Bus) -> None:
        transport = await bus.connect()
        stream = await bus.log(transport)
        await put_many(transport, bus.event("a"), 10)
        await expect_info(transport, stream, first=1, last=10, messages=10)
        assert await transport.purge(stream, below=4) == 3
        await expect_info(transport, stream, first=4, last=10, messages=7)
        assert await transport.remove(stream, 6)
        await expect_info(transport, stream, first=4, last=10, messages=6)
        assert await transport.remove(stream, 4)
        await expect_info(transport, stream, first=5, last=10, messages=5)

    async def test_purge_of_everything_does_not_reuse_sequences(self, bus: Bus) -> None:
        transport = await bus.connect()
        stream = await bus.log(transport)
        await put_many(transport, bus.event("a"), 5)
        assert await transport.purge(stream, below=6) == 5
        await expect_info(transport, stream, first=6, last=5, messages=0)
        assert (await put(transport, bus.event("a"))).sequence == 6

    async def test_purge_below_the_first_removes_nothing(self, bus: Bus) -> None:
        transport = await bus.connect()
        stream = await bus.log(transport)
        await put_many(transport, bus.event("a"), 5)
        assert await transport.purge(stream, below=0) == 0
        assert await transport.purge(stream, below=1) == 0
        assert await transport.purge(stream, below=3) == 2
        assert await transport.purge(stream, below=3) == 0
        await expect_info(transport, stream, first=3, last=5, messages=3)

    async def test_remove_says_whether_it_was_there(self, bus: Bus) -> None:
        transport = await bus.connect()
        stream = await bus.log(transport)
        await put_many(transport, bus.event("a"), 3)
        assert await transport.remove(stream, 2) is True
        assert await transport.remove(stream, 2) is False
        assert await transport.remove(stream, 99) is False
        assert await transport.fetch(stream, 2) is None

    async def test_a_stream_that_does_not_exist_is_an_error(self, bus: Bus) -> None:
        transport = await bus.connect()
        missing = bus.layout.event_stream("missing")
        for use in (lambda: transport.reader(missing, (), FromEarliest()), lambda: transport.purge(missing, below=1)):
            with pytest.raises(BusError):
                await soon(use())
