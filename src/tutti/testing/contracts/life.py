"""A connection begins, is used and ends."""

# ruff: noqa: S101  -- this module is tests, shipped

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tutti.bus.port import FromEarliest
from tutti.errors import BusError
from tutti.testing.contracts.servers import Bus, Contract
from tutti.testing.contracts.words import A_MOMENT, PATIENCE, heard, put, read, settled_or_error, soon


class LifeContract(Contract):
    """start, status, close."""

    async def test_a_started_transport_is_connected(self, bus: Bus) -> None:
        status = (await bus.connect()).status()
        assert status.connected
        assert status.server

    async def test_closing_twice_is_harmless_and_ends_the_connection(self, bus: Bus) -> None:
        transport = await bus.connect()
        await transport.close()
        await transport.close()
        assert not transport.status().connected

    async def test_use_after_close_says_so(self, bus: Bus) -> None:
        transport = await bus.connect()
        stream = await bus.log(transport)
        reader = await transport.reader(stream, (), FromEarliest())
        await transport.close()
        uses: dict[str, Callable[[], Awaitable[object]]] = {
            "append": lambda: transport.append(bus.event("a"), {}, b"", timeout=1.0),
            "ensure_stream": lambda: bus.log(transport),
            "stream_info": lambda: transport.stream_info(stream),
            "stream_names": transport.stream_names,
            "reader": lambda: transport.reader(stream, (), FromEarliest()),
            "batch": lambda: reader.batch(1, wait=1.0),
            "fetch": lambda: transport.fetch(stream, 1),
            "last": lambda: transport.last(stream, bus.event("a")),
            "purge": lambda: transport.purge(stream, below=1),
            "remove": lambda: transport.remove(stream, 1),
            "state_get": lambda: transport.state_get("a"),
            "state_list": lambda: transport.state_list(""),
            "state_put": lambda: transport.state_put("a", b"1", expected=0, timeout=1.0),
            "take": lambda: transport.take("a", wait=1.0),
            "listen": lambda: transport.listen("a"),
        }
        for name, use in uses.items():
            with pytest.raises(BusError) as raised:
                await soon(use())
            assert "clos" in str(raised.value), f"{name}: {raised.value}"
        with pytest.raises(BusError, match="clos"):
            transport.emit("a", {}, b"")

    async def test_what_waits_ends_when_the_transport_is_closed(self, bus: Bus) -> None:
        transport = await bus.connect()
        stream = await bus.log(transport)
        await bus.queues(transport)
        reader = await transport.reader(stream, (), FromEarliest())
        listener = await transport.listen(bus.wire("a"))
        waiting = [
            asyncio.create_task(settled_or_error(reader.batch(1))),
            asyncio.create_task(settled_or_error(transport.take("a"))),
            asyncio.create_task(settled_or_error(heard(listener, 1))),
        ]
        await asyncio.wait(waiting, timeout=A_MOMENT)
        assert not any(task.done() for task in waiting)
        await transport.close()
        done, pending = await asyncio.wait(waiting, timeout=PATIENCE)
        for task in pending:
            task.cancel()
        assert len(done) == 3, f"{len(pending)} still wait"
        for task in done:
            assert not task.result() or isinstance(task.result(), BusError)

    async def test_closing_one_transport_leaves_the_others_alone(self, bus: Bus) -> None:
        closing, staying = await bus.connect(), await bus.connect()
        stream = await bus.log(closing)
        reader = await staying.reader(stream, (), FromEarliest())
        await closing.close()
        await put(staying, bus.event("a"))
        assert len(await read(reader, 1)) == 1
