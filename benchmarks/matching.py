"""One event against very many filters: the index, and what evaluating every filter would cost.

The mix of filters, all on events with a symbol, an account, a code, a price and a quantity:

    35 %    symbol = 'S00012' AND quantity > 400                     an equality, and a condition to check
    15 %    account IN ('A00001', 'A00017', 'A00090')                membership
    20 %    price >= 1200.50 AND price < 1210.25                     a range
    14.8 %  code LIKE 'C00042-%'                                     a prefix
    15 %    (symbol = 'S00003' AND quantity > 700) OR account = 'A00005'    a disjunction
    0.2 %   price * quantity > 9000000                               what no index can look up

Values are spread so that an event passes about 20 filters at every size: twice as many filters, twice as many symbols,
accounts and codes, and ranges half as wide. Everything is seeded; `--seed` changes it.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import random
import time
import tracemalloc
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table

from tutti.filters import Evaluator, EventResolver, Filter, Index, compile_filter

SIZES: Final = (1_000, 10_000, 100_000)
FILTERS_PER_VALUE: Final = 15  # so that an event passes about 20 filters of this mix
PRICE_TOP: Final = 10_000
QUANTITY_TOP: Final = 1_000
UNINDEXABLE_SHARE: Final = 0.002
ROUNDS: Final = 3  # the best of so many is reported: the machine is shared
EVENTS_TIMED: Final = 2_000
EVENTS_SCANNED: Final = 10
EVENTS_AGAINST_ALL: Final = 100
EVENTS_AGAINST_SAMPLE: Final = 10_000
FILTERS_SAMPLED: Final = 1_000


class Trade(msgspec.Struct):
    symbol: str
    account: str
    code: str
    price: Decimal
    quantity: int


class Record(msgspec.Struct):
    event: Trade
    attributes: dict[str, str]


class Result(msgspec.Struct):
    """Of one size."""

    filters: int
    build_s: float
    index_us: float
    matches: float
    scan_us: float = 0.0
    memory_mb: float = 0.0


class Workload:
    """Filters and events of one size."""

    def __init__(self, size: int, seed: int) -> None:
        self._random = random.Random(f"{seed}/{size}")
        self._domain = max(1, size // FILTERS_PER_VALUE)
        self._width = PRICE_TOP * FILTERS_PER_VALUE / size
        unindexable = round(size * UNINDEXABLE_SHARE)
        kinds: Sequence[Callable[[], str]] = (
            self._equality,
            self._member,
            self._range,
            self._prefix,
            self._disjunction,
        )
        drawn = self._random.choices(kinds, weights=(35, 15, 20, 14.8, 15), k=size - unindexable)
        self.filters = [kind() for kind in drawn] + [self._unindexable() for _ in range(unindexable)]
        self._random.shuffle(self.filters)

    def events(self, count: int) -> list[Record]:
        return [Record(self._trade(), {}) for _ in range(count)]

    def _trade(self) -> Trade:
        draw = self._random
        price = Decimal(draw.randrange(PRICE_TOP * 100)).scaleb(-2)
        code = f"{self._name('C')}-{draw.randrange(10_000):04}"
        return Trade(self._name("S"), self._name("A"), code, price, draw.randrange(QUANTITY_TOP))

    def _name(self, letter: str) -> str:
        return f"{letter}{self._random.randrange(self._domain):05}"

    def _equality(self) -> str:
        return f"symbol = '{self._name('S')}' AND quantity > {self._random.randrange(QUANTITY_TOP // 2)}"

    def _member(self) -> str:
        return f"account IN ('{self._name('A')}', '{self._name('A')}', '{self._name('A')}')"

    def _range(self) -> str:
        low = self._random.uniform(0, PRICE_TOP)
        high = low + self._random.uniform(0.5, 1.5) * self._width
        return f"price >= {low:.2f} AND price < {high:.2f}"

    def _prefix(self) -> str:
        return f"code LIKE '{self._name('C')}-%'"

    def _disjunction(self) -> str:
        quantity = self._random.randrange(QUANTITY_TOP)
        return f"(symbol = '{self._name('S')}' AND quantity > {quantity}) OR account = '{self._name('A')}'"

    def _unindexable(self) -> str:
        return (
            f"price * quantity > {self._random.randrange(PRICE_TOP * QUANTITY_TOP * 8 // 10, PRICE_TOP * QUANTITY_TOP)}"
        )


def built(texts: Sequence[str]) -> Index[int]:
    index: Index[int] = Index(EventResolver(Trade))
    for number, text in enumerate(texts):
        index.add(number, text)
    return index


def compiled(texts: Sequence[str]) -> list[Evaluator[Record]]:
    return [compile_filter(Filter.parse(text).expression, EventResolver(Trade)) for text in texts]


def scanned(evaluators: Sequence[Evaluator[Record]], event: Record) -> set[int]:
    return {number for number, evaluator in enumerate(evaluators) if evaluator.matches(event)}


def microseconds(work: Callable[[Record], object], events: Sequence[Record]) -> float:
    """For an event, at best."""
    best = math.inf
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for event in events:
            work(event)
        best = min(best, time.perf_counter() - start)
    return best / len(events) * 1e6


def measured(size: int, seed: int) -> tuple[Result, Workload, Index[int]]:
    workload = Workload(size, seed)
    gc.collect()
    start = time.perf_counter()
    index = built(workload.filters)
    build_s = time.perf_counter() - start
    events = workload.events(EVENTS_TIMED)
    matches = sum(len(index.match(event)) for event in events) / len(events)
    return Result(size, build_s, microseconds(index.match, events), matches), workload, index


def disagreements(workload: Workload, index: Index[int], evaluators: Sequence[Evaluator[Record]], seed: int) -> int:
    """Events for which the index and plain evaluation differ: all filters on some events, some filters on many."""
    wrong = 0
    for event in workload.events(EVENTS_AGAINST_ALL):
        wrong += index.match(event) != scanned(evaluators, event)
    sample = random.Random(seed).sample(range(len(evaluators)), min(FILTERS_SAMPLED, len(evaluators)))
    chosen = {number: evaluators[number] for number in sample}
    for event in workload.events(EVENTS_AGAINST_SAMPLE):
        expected = {number for number, evaluator in chosen.items() if evaluator.matches(event)}
        wrong += (index.match(event) & chosen.keys()) != expected
    return wrong


def memory_mb(texts: Sequence[str]) -> float:
    """What an index of these filters holds on to."""
    gc.collect()
    tracemalloc.start()
    index = built(texts)
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return held / 1e6 if len(index) else 0.0


def shown(results: Sequence[Result], wrong: int) -> None:
    table = Table(title="One event against many filters (matches and times are per event)")
    for heading in (
        "filters",
        "matches",
        "index µs",
        "events/s",
        "scan µs",
        "faster",
        "build s",
        "MB",
    ):
        table.add_column(heading, justify="right")
    for result in results:
        last = result is results[-1]
        table.add_row(
            f"{result.filters:,}",
            f"{result.matches:.1f}",
            f"{result.index_us:,.1f}",
            f"{1e6 / result.index_us:,.0f}",
            f"{result.scan_us:,.0f}",
            f"{result.scan_us / result.index_us:,.0f} ×",
            f"{result.build_s:.1f}",
            f"{result.memory_mb:,.0f}" if last else "",
        )
    console = Console()
    console.print(table)
    compared = (
        f"{EVENTS_AGAINST_ALL} events × all filters, {EVENTS_AGAINST_SAMPLE:,} events × {FILTERS_SAMPLED:,} filters"
    )
    verdict = "index and evaluation agree" if not wrong else f"index and evaluation DIFFER on {wrong} events"
    console.print(f"{verdict} ({compared})", highlight=False)


def main() -> int:
    arguments = argparse.ArgumentParser(description="the filter index against evaluating every filter")
    arguments.add_argument("--seed", type=int, default=1)
    seed: int = arguments.parse_args().seed
    results: list[Result] = []
    wrong = 0
    for size in SIZES:
        result, workload, index = measured(size, seed)
        evaluators = compiled(workload.filters)
        result.scan_us = microseconds(partial(scanned, evaluators), workload.events(EVENTS_SCANNED))
        results.append(result)
        if size == SIZES[-1]:
            wrong = disagreements(workload, index, evaluators, seed)
            del index, evaluators
            result.memory_mb = memory_mb(workload.filters)
    first, last = results[0], results[-1]
    shown(results, wrong)
    growth = math.log(last.index_us / first.index_us) / math.log(last.filters / first.filters)
    summary = {
        "benchmark": "matching",
        "filters": last.filters,
        "matches_per_event": round(last.matches, 1),
        "index_vs_scan": round(last.scan_us / last.index_us, 1),
        "index_growth_exponent": round(growth, 3),
        "index_us_per_event": round(last.index_us, 1),
        "events_per_s": round(1e6 / last.index_us),
        "scan_us_per_event": round(last.scan_us),
        "build_s": round(last.build_s, 2),
        "memory_mb": round(last.memory_mb, 1),
        "disagreements": wrong,
    }
    print(json.dumps(summary))
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
