"""Three servers: events cross only to a server with an interested subscriber. The servers' own counters say so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

import tutti
from tests.integration.nats_server import NatsServer, start_cluster
from tutti.runtime.bus import Bus

EVENTS = 2_000
REGIONS = ("alps", "baltic", "caspian", "danube")
NOISE = 40  # messages of the servers among themselves, and of management, while a test counts
PADDING = "x" * 400


class Trade(tutti.Event, stream="trades"):
    region: Annotated[str, tutti.routing]
    number: int
    padding: str = PADDING


class Ping(tutti.Event, grade="best_effort"):
    region: Annotated[str, tutti.routing]
    number: int
    padding: str = PADDING


class Trio:
    """Three servers, named by what they are in the test: `a` has stream and publisher, `b` may have a subscriber."""

    def __init__(self, servers: dict[str, NatsServer], home: str) -> None:
        others = [name for name in sorted(servers) if name != home]
        self._servers = servers
        self.a, self.b, self.c = home, *others

    def connect(self, name: str) -> Bus:
        server = self._servers[name]
        options = tutti.NatsOptions(durable=False, monitor_url=server.monitor_url)
        return tutti.connect(server.url, name=f"on-{name}", options=options)

    async def crossed(self) -> dict[str, tuple[int, int]]:
        """Messages and bytes that `a` has sent to each other server, by its own count."""
        totals = {self.b: (0, 0), self.c: (0, 0)}
        for route in (await self._look(self.a, "/routez"))["routes"]:
            if route.get("account") == "$SYS":
                continue  # the servers' talk among themselves
            messages, size = totals[route["remote_name"]]
            totals[route["remote_name"]] = (messages + route["out_msgs"], size + route["out_bytes"])
        return totals

    async def interest(self, subject_start: str) -> set[str]:
        """The servers that told `a` about subscriptions to such subjects."""
        routes = (await self._look(self.a, "/routez?subs=1"))["routes"]
        return {
            route["remote_name"]
            for route in routes
            if any(subject_start in subject for subject in route.get("subscriptions_list") or ())
        }

    async def connections(self, name: str) -> list[str]:
        return [one.get("name", "") for one in (await self._look(name, "/connz"))["connections"]]

    async def _look(self, name: str, path: str) -> Any:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._servers[name].monitor_port)
        try:
            writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
            answer = await reader.read()
        finally:
            writer.close()
            await writer.wait_closed()
        return msgspec.json.decode(answer.partition(b"\r\n\r\n")[2])


@pytest.fixture
async def trio(tmp_path: Path) -> AsyncIterator[Trio]:
    servers = dict(zip(("s1", "s2", "s3"), await start_cluster(tmp_path), strict=True))
    somewhere = Trio(servers, "s1")
    async with somewhere.connect("s1") as bus:
        await bus.advertise(Trade)
        info = await bus.context.transport.stream_info(bus.context.layout.event_stream("trades"))
        assert info is not None
        assert info.replicas == 1
    yield Trio(servers, info.leader)
    for server in servers.values():
        server.kill()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


def events(kind: type[Trade | Ping], first: int) -> list[Trade | Ping]:
    return [kind(REGIONS[number % len(REGIONS)], number) for number in range(first, first + EVENTS)]


def watcher(name: str, kind: type, seen: list[int]) -> tutti.Subscriber:
    """Wants a quarter of the events, and half of those by a condition that only it can judge."""
    declared = tutti.Subscriber(name, ephemeral=True)

    @declared.on(kind, where="region = 'baltic' AND number % 8 = 1")
    async def each(event: Any) -> None:
        seen.append(event.number)

    return declared


async def test_stored_events_cross_only_where_they_are_wanted(trio: Trio) -> None:
    async with AsyncExitStack() as stack:
        publisher = await stack.enter_async_context(trio.connect(trio.a))
        reader = await stack.enter_async_context(trio.connect(trio.b))
        await publisher.advertise(Trade)
        assert "on-" + trio.a in await trio.connections(trio.a)
        assert "on-" + trio.b in await trio.connections(trio.b)

        start = await trio.crossed()
        await publisher.publish_many(events(Trade, 0))
        nobody = await trio.crossed()
        assert _messages(start, nobody, trio.b) < NOISE
        assert _messages(start, nobody, trio.c) < NOISE

        seen: list[int] = []
        wanted = [number for number in range(EVENTS, 2 * EVENTS) if number % 8 == 1]
        async with reader.serve(watcher("watcher", Trade, seen)):
            start = await trio.crossed()
            await publisher.publish_many(events(Trade, EVENTS))
            await until(lambda: len(seen) >= len(wanted))
            some = await trio.crossed()
        assert seen == wanted
        quarter = EVENTS // len(REGIONS)
        assert quarter <= _messages(start, some, trio.b) < quarter + NOISE
        assert _messages(start, some, trio.c) < NOISE
        assert _bytes(start, some, trio.c) < 0.02 * _bytes(start, some, trio.b)

        start = await trio.crossed()
        await publisher.publish_many(events(Trade, 2 * EVENTS))
        after = await trio.crossed()
        assert _messages(start, after, trio.b) < NOISE
        assert _messages(start, after, trio.c) < NOISE
        assert seen == wanted


async def test_best_effort_events_cross_only_while_they_are_wanted(trio: Trio) -> None:
    async with AsyncExitStack() as stack:
        publisher = await stack.enter_async_context(trio.connect(trio.a))
        reader = await stack.enter_async_context(trio.connect(trio.b))
        await publisher.advertise(Ping)

        async def publish(first: int) -> dict[str, int]:
            start = await trio.crossed()
            await publisher.publish_many(events(Ping, first))
            await _flushed(publisher)
            end = await trio.crossed()
            return {name: _messages(start, end, name) for name in (trio.b, trio.c)}

        crossed = await publish(0)
        assert max(crossed.values()) < NOISE

        seen: list[int] = []
        wanted = [number for number in range(EVENTS, 2 * EVENTS) if number % 8 == 1]
        async with reader.serve(watcher("watcher", Ping, seen)):
            await _until_interest(trio, {trio.b})
            crossed = await publish(EVENTS)
            await until(lambda: len(seen) >= len(wanted))
        assert seen == wanted
        quarter = EVENTS // len(REGIONS)
        assert quarter <= crossed[trio.b] < quarter + NOISE
        assert crossed[trio.c] < NOISE

        await _until_interest(trio, set())
        crossed = await publish(2 * EVENTS)
        assert max(crossed.values()) < NOISE
        assert seen == wanted


async def _flushed(bus: Bus) -> None:
    """The server has taken everything that was sent before: it answers in order."""
    await bus.context.transport.stream_names()


async def _until_interest(trio: Trio, servers: set[str]) -> None:
    async with asyncio.timeout(10):
        while await trio.interest(".live.Ping.") != servers:
            await asyncio.sleep(0.02)


def _messages(before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]], to: str) -> int:
    return after[to][0] - before[to][0]


def _bytes(before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]], to: str) -> int:
    return after[to][1] - before[to][1]
