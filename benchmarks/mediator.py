"""Tutti beside the ordinary client of its own server: publishing, handling, latency.

On a server that syncs every write and on one that does not. Every round runs every way once, in an order that rotates,
so that a busy moment of the machine hits both sides. A ratio compares ours with the way of the bare client that has the
best median, round by round; the median of those counts, and of the two servers the worse. `docs/performance.md` says
what exactly each side does.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import secrets
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Literal

import msgspec
import nats
from rich.console import Console
from rich.table import Table

import tutti
from benchmarks import bare
from benchmarks.servers import Server, running
from benchmarks.workload import EVENT_BYTES, Trade, Watch, encode, handle, trades
from tutti.model.subjects import Layout

ROUNDS: Final = 7
SAMPLE_SECONDS: Final = 0.35  # how long one way publishes in one round
SAMPLE_EVENTS: Final = 40_000  # and how many events at most
WARM_UP_EVENTS: Final = 3_000
HANDLED_EVENTS: Final = 20_000
LATENCY_EVENTS: Final = 300
TIMEOUT: Final = 60.0
NAMESPACE: Final = "bench"
EVENTS: Final = Layout(NAMESPACE).event_stream("events")

PUBLISH_MANY: Final = "publish_many"
SERVICE: Final = 'subscriber, where="price > 0"'
FOLLOWER: Final = "publish to subscriber"

Sample = Callable[[], Awaitable[float]]


class Way(msgspec.Struct):
    """One way to do the work, and what it reached in each round."""

    name: str
    side: Literal["Tutti", "bare"]
    sample: Sample
    counts: bool = True  # as baseline: it does the same work
    results: list[float] = []

    @property
    def median(self) -> float:
        return statistics.median(self.results)


class Comparison(msgspec.Struct):
    """One kind of work on one server: our main way, and the best of the bare client."""

    work: str
    unit: str
    server: str
    ours: Way
    best: Way
    ways: list[Way]

    @property
    def ratio(self) -> float:
        pairs = zip(self.ours.results, self.best.results, strict=True)
        return statistics.median(mine / theirs for mine, theirs in pairs)


async def rounds(ways: Sequence[Way], count: int) -> None:
    for number in range(count):
        shift = number % len(ways)
        for way in (*ways[shift:], *ways[:shift]):
            gc.collect()
            way.results.append(await asyncio.wait_for(way.sample(), TIMEOUT))


class Bench:
    """Both sides connected to one server: publisher and subscriber have a connection each."""

    def __init__(self, server: Server, count: int) -> None:
        self.server = server
        self.count = count
        self.publisher = tutti.connect(options=server.options, namespace=NAMESPACE, name="publisher")
        self.subscriber = tutti.connect(options=server.options, namespace=NAMESPACE, name="subscriber")
        self.bare_publisher: Any = None
        self.bare_subscriber: Any = None

    async def run(self) -> list[Comparison]:
        self.bare_publisher = await nats.connect(self.server.url)
        self.bare_subscriber = await nats.connect(self.server.url)
        try:
            async with self.publisher, self.subscriber:
                await self.publisher.advertise(Trade)
                await bare.create_stream(self.bare_publisher)
                return [await self.publishing(), await self.handling(), await self.latency()]
        finally:
            await self.bare_subscriber.close()
            await self.bare_publisher.close()

    async def purge(self) -> None:
        stream = self.bare_publisher.jetstream(timeout=TIMEOUT)
        for name in (EVENTS, bare.STREAM):
            await stream.purge_stream(name)

    # Publishing

    async def publishing(self) -> Comparison:
        async def many(events: Sequence[Trade]) -> list[int]:
            return [published.sequence for published in await self.publisher.publish_many(events)]

        async def gathered(events: Sequence[Trade]) -> list[int]:
            sequences: list[int] = []
            for start in range(0, len(events), bare.CHUNK):
                part = events[start : start + bare.CHUNK]
                acks = await asyncio.gather(*(self.publisher.publish(event) for event in part))
                sequences += [ack.sequence for ack in acks]
            return sequences

        ways = [
            Way(PUBLISH_MANY, "Tutti", await self._publish(many, EVENTS)),
            Way("publish, gathered", "Tutti", await self._publish(gathered, EVENTS)),
        ]
        for name, publish in bare.PUBLISHING.items():
            work = self._bare_publish(publish)
            ways.append(Way(name, "bare", await self._publish(work, bare.STREAM)))
        await rounds(ways, self.count)
        return _compared("publish", "events/s", self.server, ways, highest=True)

    def _bare_publish(self, publish: bare.Publish) -> Callable[[Sequence[Trade]], Awaitable[list[int]]]:
        return lambda events: publish(self.bare_publisher, events)

    async def _publish(self, publish: Callable[[Sequence[Trade]], Awaitable[list[int]]], stream: str) -> Sample:
        """The rate of one call with as many events as take about the time of a sample. Then what was acknowledged is
        looked up in the stream, which is emptied."""

        async def rate(events: Sequence[Trade]) -> float:
            started = time.perf_counter()
            sequences = await publish(events)
            took = time.perf_counter() - started
            state = (await self.bare_publisher.jetstream(timeout=TIMEOUT).stream_info(stream)).state
            if len(set(sequences)) != len(events) or state.messages != len(events) or 0 in sequences:
                raise RuntimeError(f"{len(events)} events, {len(set(sequences))} acknowledged, {state.messages} stored")
            await self.purge()
            return len(events) / took

        await self.purge()
        await rate(trades(WARM_UP_EVENTS))
        warm = await rate(trades(WARM_UP_EVENTS))
        events = trades(min(SAMPLE_EVENTS, max(WARM_UP_EVENTS, int(warm * SAMPLE_SECONDS))))
        return lambda: rate(events)

    # Handling

    async def handling(self) -> Comparison:
        events = trades(HANDLED_EVENTS)
        await self.purge()
        await self.publisher.publish_many(events)
        await bare.batched(self.bare_publisher, events)
        ways = [Way(SERVICE, "Tutti", self._serve)]
        ways += [Way(name, "bare", self._bare_handle(way)) for name, way in bare.HANDLING.items()]
        ways += [Way(name, "bare", self._bare_handle(way), counts=False) for name, way in bare.NOT_DURABLE.items()]
        await rounds(ways, self.count)
        return _compared("handle", "events/s", self.server, ways, highest=True)

    async def _serve(self) -> float:
        """A new durable subscriber reads the full stream. Its filter cannot be pushed down and lets everything pass."""
        watch = Watch(HANDLED_EVENTS)
        subscriber = tutti.Subscriber(f"handling-{secrets.token_hex(4)}")

        @subscriber.on(Trade, where="price > 0", start="earliest")
        async def each(event: Trade) -> None:
            await handle(event)
            watch.hit()

        async with self.subscriber.serve(subscriber):
            return await watch.done

    def _bare_handle(self, way: bare.Handle) -> Sample:
        async def sample() -> float:
            watch = Watch(HANDLED_EVENTS)
            await way(self.bare_subscriber, watch)
            return watch.done.result()

        return sample

    # Latency

    async def latency(self) -> Comparison:
        await self.purge()
        ways = [Way(FOLLOWER, "Tutti", self._follow)]
        ways += [Way(name, "bare", self._bare_follow(way)) for name, way in bare.FOLLOWING.items()]
        await rounds(ways, self.count)
        return _compared("latency", "ms", self.server, ways, highest=False)

    async def _follow(self) -> float:
        arrival = bare.Arrival()
        subscriber = tutti.Subscriber(f"latency-{secrets.token_hex(4)}")

        @subscriber.on(Trade, where="price > 0")
        async def each(event: Trade) -> None:  # noqa: ARG001 the signature of a handler
            arrival.note()

        async with self.subscriber.serve(subscriber):
            return await self._one_by_one(self.publisher.publish, arrival)

    def _bare_follow(self, follow: bare.Follow) -> Sample:
        async def sample() -> float:
            arrival = bare.Arrival()
            stream = self.bare_publisher.jetstream(timeout=TIMEOUT)

            async def publish(event: Trade) -> None:
                await stream.publish(bare.subject(event), encode(event))

            async with follow(self.bare_subscriber, arrival):
                return await self._one_by_one(publish, arrival)

        return sample

    async def _one_by_one(self, publish: Callable[[Trade], Awaitable[object]], arrival: bare.Arrival) -> float:
        """The median in milliseconds. Each event is acknowledged and handled before the next is published."""
        took: list[float] = []
        for event in trades(LATENCY_EVENTS):
            arrival.expect()
            started = time.perf_counter()
            await publish(event)
            took.append(await arrival.time - started)
        return statistics.median(took) * 1e3


def _compared(work: str, unit: str, server: Server, ways: list[Way], *, highest: bool) -> Comparison:
    candidates = [way for way in ways if way.side == "bare" and way.counts]
    best = (max if highest else min)(candidates, key=lambda way: way.median)
    return Comparison(work, unit, server.name, ways[0], best, ways)


# What is shown


def shown(comparisons: Sequence[Comparison], count: int) -> None:
    console = Console(width=110)
    for comparison in comparisons:
        table = Table(title=f"{comparison.work}, {comparison.server} server ({comparison.unit})", width=100)
        table.add_column("way")
        for heading in ("median", "least", "most", "ours to it"):
            table.add_column(heading, justify="right")
        for way in comparison.ways:
            ratio = statistics.median(m / t for m, t in zip(comparison.ours.results, way.results, strict=True))
            style = "bold" if way in (comparison.ours, comparison.best) else "" if way.counts else "dim"
            table.add_row(
                f"{way.side}: {way.name}",
                _figure(way.median),
                _figure(min(way.results)),
                _figure(max(way.results)),
                "" if way is comparison.ours else f"{ratio:.2f}",
                style=style,
            )
        console.print(table)
    console.print(
        f"{count} rounds; bold: what is compared; dim: does less, not a baseline. {os.cpu_count()} cores for servers, "
        "clients and whatever else runs."
    )


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3f}"


def summary(comparisons: Sequence[Comparison]) -> dict[str, object]:
    ratios: dict[str, list[float]] = {}
    figures: dict[str, dict[str, object]] = {}
    for comparison in comparisons:
        ratios.setdefault(comparison.work, []).append(comparison.ratio)
        name = f"{comparison.server}_{comparison.work}"
        figures[name] = {
            "tutti": round(comparison.ours.median, 3),
            "bare": round(comparison.best.median, 3),
            "bare_way": comparison.best.name,
            "ratio": round(comparison.ratio, 3),
            "unit": comparison.unit,
            "all": {f"{way.side}: {way.name}": round(way.median, 3) for way in comparison.ways},
        }
    return {
        "benchmark": "mediator",
        "publish_vs_nats": round(min(ratios["publish"]), 3),
        "handle_vs_nats": round(min(ratios["handle"]), 3),
        "latency_vs_nats": round(max(ratios["latency"]), 3),
        "event_bytes": EVENT_BYTES,
        **figures,
    }


def main() -> int:
    arguments = argparse.ArgumentParser(description="Tutti against the bare NATS client")
    arguments.add_argument("--rounds", type=int, default=ROUNDS)
    count: int = arguments.parse_args().rounds
    comparisons: list[Comparison] = []
    for synced in (True, False):
        with running(synced=synced) as server:
            comparisons += asyncio.run(Bench(server, count).run())
    shown(comparisons, count)
    print(json.dumps(summary(comparisons)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
