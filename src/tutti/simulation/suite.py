"""Many seeds, and what they come to. A suite is red if a rule was broken, and also if it proves nothing: if too few
transactions committed, or a fault point never fired."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from tutti.simulation.faults import POINTS
from tutti.simulation.run import Report, play
from tutti.simulation.scenario import Scenario, draw

COMMITTED_AT_LEAST: Final = 0.30  # of all transactions; a system that aborts everything breaks no rule
COMPLETE_FROM_COUNT: Final = 2_000  # so many scenarios must meet every fault point


class Totals:
    """`failed` are the reports with a failure, in the order of their seeds."""

    def __init__(self) -> None:
        self.scenarios = self.steps = self.transactions = 0
        self.outcomes: Counter[str] = Counter()
        self.fired: Counter[str] = Counter()
        self.failed: list[Report] = []

    def add(self, report: Report) -> None:
        self.scenarios += 1
        self.steps += report.steps
        self.transactions += report.transactions
        self.outcomes.update(
            {
                "committed": report.committed,
                "aborted": report.aborted,
                "never began": report.transactions - report.registered,
                "heuristic": report.resolved,
                "taken over": report.taken_over,
                "compensated": report.compensated,
            }
        )
        self.fired.update(report.fired)
        if report.failure is not None:
            self.failed.append(report)

    @property
    def committed_share(self) -> float:
        return self.outcomes["committed"] / self.transactions if self.transactions else 0.0

    def silent_points(self) -> tuple[str, ...]:
        """Fault points that never fired."""
        return tuple(point for point in POINTS if not self.fired[point])

    def objections(self) -> list[str]:
        """Why the suite is red; empty: it is green."""
        found = []
        if self.failed:
            found.append(f"{len(self.failed)} scenarios broke a rule")
        if self.committed_share < COMMITTED_AT_LEAST:
            found.append(f"only {self.committed_share:.0%} of the transactions committed")
        if self.scenarios >= COMPLETE_FROM_COUNT and (silent := self.silent_points()):
            found.append(f"these fault points never fired: {', '.join(silent)}")
        return found


def run(
    seeds: Iterable[int],
    watch: Callable[[Report], None] = lambda _: None,
    drawn: Callable[[int], Scenario] = draw,
) -> Totals:
    """`watch` sees every report as it comes."""
    totals = Totals()
    for seed in seeds:
        report, _ = play(drawn(seed))
        totals.add(report)
        watch(report)
    return totals
