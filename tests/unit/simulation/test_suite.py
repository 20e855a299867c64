"""When a suite is red."""

from __future__ import annotations

import msgspec

from tutti.simulation.faults import POINTS
from tutti.simulation.run import Failure, Report
from tutti.simulation.suite import COMPLETE_FROM_COUNT, Totals, run

REPORT = Report(1, 2_000, 10, 9, 4, 5, 2, 1, 3, {"a message is lost": 7})


def totals(*reports: Report) -> Totals:
    found = Totals()
    for report in reports:
        found.add(report)
    return found


def test_figures_are_added_up() -> None:
    found = totals(REPORT, REPORT)
    assert (found.scenarios, found.steps, found.transactions) == (2, 4_000, 20)
    assert found.outcomes == {
        "committed": 8,
        "aborted": 10,
        "never began": 2,
        "heuristic": 2,
        "taken over": 6,
        "compensated": 4,
    }
    assert found.fired == {"a message is lost": 14}
    assert found.committed_share == 0.4
    assert found.objections() == []


def test_a_broken_rule_is_red() -> None:
    broken = msgspec.structs.replace(REPORT, failure=Failure("agreement", "j1-1", "s0 commits"))
    found = totals(REPORT, broken)
    assert found.failed == [broken]
    assert found.objections() == ["1 scenarios broke a rule"]


def test_a_system_that_aborts_everything_is_red() -> None:
    found = totals(msgspec.structs.replace(REPORT, committed=0, aborted=9))
    assert found.objections() == ["only 0% of the transactions committed"]


def test_a_fault_point_that_never_fires_is_red_in_a_large_suite() -> None:
    found = totals(msgspec.structs.replace(REPORT, fired=dict.fromkeys(POINTS[1:], 1)))
    assert found.silent_points() == (POINTS[0],)
    assert found.objections() == []
    found.scenarios = COMPLETE_FROM_COUNT
    assert found.objections() == [f"these fault points never fired: {POINTS[0]}"]


def test_every_seed_is_played_and_seen() -> None:
    seen: list[Report] = []
    found = run(range(3, 5), seen.append)
    assert [report.seed for report in seen] == [3, 4]
    assert found.scenarios == 2
