"""Faults, workloads and scenarios: data that a seed gives."""

from __future__ import annotations

import random

import msgspec

from tutti.simulation import faults, workloads
from tutti.simulation.faults import JOURNAL, KINDS, POINTS, RARE, TARGETS, Faults
from tutti.simulation.scenario import STEPS_AT_LEAST, Scenario, draw

SEEDS = range(200)


def test_a_seed_gives_one_scenario() -> None:
    assert draw(5) == draw(5)
    assert draw(5) != draw(6)


def test_a_scenario_can_be_written_down_and_read_again() -> None:
    for seed in range(20):
        assert msgspec.json.decode(msgspec.json.encode(draw(seed)), type=Scenario) == draw(seed)


def test_every_scenario_is_large_enough() -> None:
    for seed in SEEDS:
        workload = draw(seed).workload
        assert len(workload.orders) >= 10
        assert workload.publishers >= 2
        assert len(workload.groups) >= 2
        assert all(order.start < workload.faulty_seconds for order in workload.orders)
    assert draw(0).steps_at_least == STEPS_AT_LEAST >= 2_000


def test_every_fault_is_drawn_and_every_scenario_has_its_own() -> None:
    drawn = [draw(seed).faults for seed in SEEDS]
    for name in Faults.__struct_fields__:
        share = sum(getattr(one, name) != getattr(Faults(), name) for one in drawn) / len(drawn)
        assert 0.2 < share < 0.95, name
    assert len({msgspec.json.encode(one) for one in drawn}) == len(drawn)


def test_faults_are_at_sites_that_exist() -> None:
    for seed in SEEDS:
        scenario = draw(seed)
        sites = {*scenario.workload.sites, JOURNAL}
        found = scenario.faults
        assert {pause.site for pause in found.pauses} <= sites
        assert {jump.site for jump in found.jumps} <= sites
        assert {outage.site for outage in found.outages} <= sites
        assert all(set(partition.apart) <= sites and partition.apart for partition in found.partitions)


def test_every_effect_is_a_fault_point_and_has_one_name() -> None:
    assert len(set(POINTS)) == len(POINTS) == len(KINDS) + len(TARGETS)
    assert set(RARE) <= set(TARGETS)
    drawn = {(c.role, c.effect, c.when) for seed in range(1_000) for c in draw(seed).faults.crashes}
    assert drawn == set(TARGETS)


def test_a_broken_compensator_needs_time_until_it_is_parked() -> None:
    calm, broken = workloads.Habits(), workloads.Habits(compensatable=True, compensator_broken=True)
    usual = workloads.Workload(1, 1, (calm,), (), ())
    assert usual.faulty_seconds == workloads.FAULTY_SECONDS
    assert usual.sites == ("p0", "k0", "s0")
    longer = workloads.Workload(1, 1, (calm, broken), (), ())
    assert longer.faulty_seconds == workloads.LONG_FAULTY_SECONDS


def test_only_who_is_compensatable_commits_early() -> None:
    for seed in SEEDS:
        for habits in workloads.draw(random.Random(seed)).subscribers:
            assert habits.compensatable or not (habits.early_commit or habits.compensator_broken)


def test_a_crash_point_says_who_and_where() -> None:
    crash = faults.Crash("member", "WriteLog", "before", 0, 1.0)
    assert crash.point == "crash of a member before WriteLog"
    assert crash.point in POINTS
