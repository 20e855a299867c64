"""What a common outcome costs: a publish to two subscribers that each write a row, beside the same rows by hand.

The publisher is this process, each subscriber another one, as one deploys them; the hand-written loop needs no others.
Every round runs every way once, in an order that rotates. A ratio compares with the baseline of the same round; the
median of those counts. `docs/performance.md` says what exactly each side does.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.table import Table

import tutti
from benchmarks import phases, wire
from benchmarks.by_hand import ByHand
from benchmarks.journeys import (
    CONCURRENCY,
    GROUP,
    NAMES,
    TRAVELLER,
    Booking,
    Journey,
    Place,
    count_rows,
    create_tables,
    place,
)
from benchmarks.travel_agents import Agents, agent, warm
from tutti.resources.postgres import PostgresOptions
from tutti.resources.postgres.asyncpg import AsyncpgResource

ROUNDS: Final = 7
LATENCY_SAMPLES: Final = 60  # one after the other, in each round
THROUGHPUT_SECONDS: Final = 1.5  # of each way, in each round
WARM_UP: Final = 200
MEMBERS: Final = 20
TIMEOUT: Final = 120.0

GROUP_ENDED: Final = 'group, wait="ended"'
GROUP_LAST: Final = 'group, last=True, wait="ended"'
GROUP_DECIDED: Final = "group, until the row is durable"
CENSUS_ENDED: Final = 'census, wait="ended"'
CENSUS_DECIDED: Final = "census, until the row is durable"
BY_HAND: Final = "by hand"
DBOS_WAYS: Final = {"datasource": "DBOS, transactions of datasources", "steps": "DBOS, steps with asyncpg"}
NO_DBOS: Final = "dbos is not installed: `make setup` brings it, or `pip install dbos`; nothing is compared with it"

Transact = Callable[[], Awaitable[float]]  # one transaction; when it was over, as far as it is waited for


class Way(msgspec.Struct):
    name: str
    sample: Callable[[], Awaitable[float]]
    results: list[float] = []

    @property
    def median(self) -> float:
        return statistics.median(self.results)

    def ratio_to(self, other: Way) -> float:
        return statistics.median(mine / theirs for mine, theirs in zip(self.results, other.results, strict=True))


async def rounds(ways: Sequence[Way], number: int) -> None:
    for turn in range(number):
        shift = turn % len(ways)
        for way in (*ways[shift:], *ways[:shift]):
            gc.collect()
            way.results.append(await asyncio.wait_for(way.sample(), TIMEOUT))


async def latency(transact: Transact) -> float:
    """The median in milliseconds, one after the other."""
    took: list[float] = []
    for _ in range(LATENCY_SAMPLES):
        started = time.perf_counter()
        took.append(await transact() - started)
    return statistics.median(took) * 1e3


async def throughput(transact: Transact) -> float:
    """Transactions a second with CONCURRENCY at a time."""
    started = time.perf_counter()
    until = started + THROUGHPUT_SECONDS

    async def work() -> int:
        done = 0
        while time.perf_counter() < until:
            await transact()
            done += 1
        return done

    done = await asyncio.gather(*(work() for _ in range(CONCURRENCY)))
    return sum(done) / (time.perf_counter() - started)


class Publisher:
    """Our side. Every transaction is counted: each must have left a row in each database."""

    def __init__(self, bus: tutti.Bus) -> None:
        self._bus = bus
        self.done = 0

    async def in_group(self) -> float:
        return await self._transact({"group": GROUP}, ended=True)

    async def in_group_last(self) -> float:
        return await self._transact({"group": GROUP}, ended=True, last=True)

    async def in_group_decided(self) -> float:
        return await self._transact({"group": GROUP}, ended=False)

    async def with_census(self) -> float:
        return await self._transact({"census": _census()}, ended=True)

    async def with_census_decided(self) -> float:
        return await self._transact({"census": _census()}, ended=False)

    async def _transact(self, members: dict[str, Any], *, ended: bool, last: bool = False) -> float:
        self.done += 1
        async with self._bus.transaction(Journey("Turin"), **members) as tx:
            await tx.publish(Booking(self.done, TRAVELLER), last=last)
            await tx.commit(wait="ended" if ended else "decided")
            over = time.perf_counter()
            if not ended:  # the next one must not meet the rest of this one
                await tx.commit(wait="ended")
        return over


def _census() -> tutti.Census:
    return tutti.Census(at_least=len(NAMES), at_most=len(NAMES), within=5.0)


# DBOS


class Workflows:
    """One way of using DBOS, in its own process."""

    def __init__(self, way: str, place: Place) -> None:
        self.done = 0
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.workflow", way, place.system, *place.databases],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._said()

    def _said(self) -> str:
        assert self._process.stdout is not None  # noqa: S101  for the type checker: it is a pipe
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the process with DBOS has ended: see above")
        return line

    async def throughput(self) -> float:
        def ask() -> str:
            assert self._process.stdin is not None  # noqa: S101  as above
            self._process.stdin.write(f"{THROUGHPUT_SECONDS}\n")
            self._process.stdin.flush()
            return self._said()

        done, rate = (await asyncio.to_thread(ask)).split()
        self.done += int(done)
        return float(rate)

    def close(self) -> None:
        self._process.communicate()


# A run


class Results(msgspec.Struct):
    latencies: list[Way]
    rates: list[Way]
    together: list[Way]  # everything in one process: latency, throughput
    phases: list[phases.Phase]
    messages: list[wire.Counted]
    load: tuple[float, float]  # of the machine: in the minute before the run, and in its last

    def way(self, ways: Sequence[Way], name: str) -> Way:
        return next(way for way in ways if way.name == name)


async def apart(place: Place, number: int) -> tuple[list[Way], list[Way]]:
    """A process for the publisher, which is this one, and one for each subscriber."""
    agents = Agents([(str(place.data), name, url) for name, url in zip(NAMES, place.databases, strict=True)])
    workflows = {way: Workflows(way, place) for way in DBOS_WAYS} if dbos_is_there() else {}
    counted = 0
    try:
        async with tutti.connect(data=place.data, name="publisher") as bus, ByHand(place.databases) as by_hand:
            await bus.advertise(Booking)
            await asyncio.to_thread(agents.wait)
            publisher = Publisher(bus)
            for transact in (publisher.in_group, publisher.with_census, by_hand.one):
                await asyncio.gather(*(_repeat(transact, WARM_UP // CONCURRENCY) for _ in range(CONCURRENCY)))
            latencies = [
                Way(BY_HAND, lambda: latency(by_hand.one)),
                Way(GROUP_ENDED, lambda: latency(publisher.in_group)),
                Way(GROUP_LAST, lambda: latency(publisher.in_group_last)),
                Way(GROUP_DECIDED, lambda: latency(publisher.in_group_decided)),
                Way(CENSUS_ENDED, lambda: latency(publisher.with_census)),
                Way(CENSUS_DECIDED, lambda: latency(publisher.with_census_decided)),
            ]
            await rounds(latencies, number)
            rates = [
                Way(BY_HAND, lambda: throughput(by_hand.one)),
                Way(GROUP_ENDED, lambda: throughput(publisher.in_group)),
                Way(GROUP_LAST, lambda: throughput(publisher.in_group_last)),
                Way(CENSUS_ENDED, lambda: throughput(publisher.with_census)),
                *(Way(DBOS_WAYS[way], workflow.throughput) for way, workflow in workflows.items()),
            ]
            await rounds(rates, number)
            counted = publisher.done + by_hand.done
    finally:
        agents.end()
        for workflow in workflows.values():
            workflow.close()
    await check_rows(place, counted + sum(workflow.done for workflow in workflows.values()))
    return latencies, rates


async def check_rows(place: Place, expected: int) -> None:
    """Every transaction that was counted has left its row in each database, and nothing else has."""
    found = await count_rows(place.databases)
    if set(found) != {expected}:
        raise RuntimeError(f"{expected} transactions, and {found} rows in the databases")


async def in_one_process(place: Place, number: int) -> list[Way]:
    """Publisher and both subscribers share an event loop: fewer processes to wake up, one core for all of Python."""
    resources = [
        AsyncpgResource(name, url, PostgresOptions(connections=CONCURRENCY))
        for name, url in zip(NAMES, place.databases, strict=True)
    ]
    for resource in resources:
        await warm(resource)
    async with tutti.connect(data=place.data / "together", name="all") as bus:
        await bus.advertise(Booking)
        async with bus.serve(*(agent(resource.name, resource) for resource in resources)):
            publisher = Publisher(bus)
            await _repeat(publisher.in_group, WARM_UP)
            ways = [
                Way("latency", lambda: latency(publisher.in_group)),
                Way("throughput", lambda: throughput(publisher.in_group)),
            ]
            await rounds(ways, number)
    for resource in resources:
        await resource.close()
    return ways


async def _repeat(transact: Transact, times: int) -> None:
    for _ in range(times):
        await transact()


def dbos_is_there() -> bool:
    return importlib.util.find_spec("dbos") is not None


async def run(place: Place, number: int, members: Sequence[int]) -> Results:
    before = os.getloadavg()[0]
    await create_tables(place.databases)
    latencies, rates = await apart(place, number)
    return Results(
        latencies,
        rates,
        await in_one_process(place, number),
        await phases.breakdown(place),
        await wire.count(place, members),
        (before, os.getloadavg()[0]),
    )


# What is shown


def shown(results: Results, number: int) -> None:
    console = Console(width=110)
    for title, unit, ways in (
        ("latency, one after the other", "ms", results.latencies),
        (f"throughput, {CONCURRENCY} at a time", "/s", results.rates),
    ):
        table = Table(title=f"{title} ({unit})", width=100)
        table.add_column("way")
        for heading in ("median", "least", "most", "to by hand"):
            table.add_column(heading, justify="right")
        for way in ways:
            figures = (way.median, min(way.results), max(way.results))
            ratio = "" if way.name == BY_HAND else f"{way.ratio_to(ways[0]):.2f}"
            table.add_row(way.name, *(f"{figure:,.2f}" for figure in figures), ratio)
        console.print(table)
    _show_phases(console, results.phases)
    _show_messages(console, results.messages)
    if not dbos_is_there():
        console.print(NO_DBOS, style="bold")
    alone = {way.name: way.median for way in results.together}
    console.print(
        f"Everything in one process, in the group: {alone['latency']:.2f} ms, {alone['throughput']:.0f} /s. "
        f"{number} rounds, the ways alternating; {os.cpu_count()} cores for everybody; load average "
        f"{results.load[0]:.1f} before the run and {results.load[1]:.1f} at its end."
    )


def _show_phases(console: Console, found: Sequence[phases.Phase]) -> None:
    table = Table(title=f"where the time goes, {GROUP_ENDED} (medians of {phases.TRANSACTIONS}, with a log)", width=100)
    table.add_column("phase")
    table.add_column("ms", justify="right")
    for phase in found:
        table.add_row(phase.name, f"{phase.milliseconds:.2f}")
    console.print(table)


def _show_messages(console: Console, counted: Sequence[wire.Counted]) -> None:
    table = Table(title="messages per committed transaction, by the server's counters", width=100)
    table.add_column("members")
    for heading in ("way", "protocol", "expected", "statuses", "acknowledgements", "all that was sent"):
        table.add_column(heading, justify="right")
    for one in counted:
        figures = (one.protocol, wire.expected(one), one.statuses, one.acknowledgements, one.sent)
        table.add_row(str(one.members), one.way, *(f"{figure:g}" for figure in figures))
    console.print(table)


def summary(results: Results) -> dict[str, object]:
    latencies, rates = results.latencies, results.rates
    group = results.way(rates, GROUP_ENDED)
    dbos = [way for way in rates if way.name in DBOS_WAYS.values()]
    best = max(dbos, key=lambda way: way.median) if dbos else None
    return {
        "benchmark": "transactions",
        "latency_group_vs_raw": _ratio(results.way(latencies, GROUP_ENDED), latencies[0]),
        "latency_census_vs_raw": _ratio(results.way(latencies, CENSUS_ENDED), latencies[0]),
        "throughput32_vs_raw": _ratio(group, rates[0]),
        "throughput_vs_dbos": None if best is None else _ratio(group, best),
        "messages_per_commit": {
            way: {str(one.members): one.protocol for one in results.messages if one.way == way} for way in wire.WAYS
        },
        "dbos_way": None if best is None else best.name,
        "throughput_vs_each_dbos": {way.name: _ratio(group, way) for way in dbos},
        "latency_ms": {way.name: round(way.median, 3) for way in latencies},
        "latency_vs_raw": {way.name: _ratio(way, latencies[0]) for way in latencies},
        "throughput32": {way.name: round(way.median, 1) for way in rates},
        "throughput32_vs_raw_each": {way.name: _ratio(way, rates[0]) for way in rates},
        "one_process": {way.name: round(way.median, 3) for way in results.together},
        "phases_ms": {phase.name: round(phase.milliseconds, 3) for phase in results.phases},
        "statuses_per_commit": _spread([one.statuses for one in results.messages]),
        "acknowledgements_per_member": _spread([one.acknowledgements / one.members for one in results.messages]),
        "load_average": {"before": results.load[0], "at_the_end": results.load[1]},
    }


def _ratio(mine: Way, theirs: Way) -> float:
    return round(mine.ratio_to(theirs), 3)


def _spread(values: Sequence[float]) -> list[float]:
    return [min(values), max(values)] if values else []


def main() -> int:
    arguments = argparse.ArgumentParser(description="one outcome for two subscribers, beside the same rows by hand")
    arguments.add_argument("--rounds", type=int, default=ROUNDS)
    arguments.add_argument("--members", type=int, default=MEMBERS, help="messages are counted for 1 to so many")
    wanted = arguments.parse_args()
    with place() as here:
        results = asyncio.run(run(here, wanted.rounds, range(1, wanted.members + 1)))
    shown(results, wanted.rounds)
    print(json.dumps(summary(results)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
