"""Everything that makes a run: the same scenario gives the same trace."""

from __future__ import annotations

import random

import msgspec

from tutti.simulation import faults, workloads


class Scenario(msgspec.Struct, frozen=True):
    """`seed` is for chance during the run (latencies, who fails when). `steps_at_least`: further transactions are begun
    until so much has happened. `self_checks`: the machines' own `check` after every step."""

    seed: int
    workload: workloads.Workload
    faults: faults.Faults = faults.Faults()
    steps_at_least: int = 0
    self_checks: bool = True


STEPS_AT_LEAST = 2_000


def draw(seed: int) -> Scenario:
    rng = random.Random(seed)
    workload = workloads.draw(rng)
    drawn = faults.draw(rng, workload.sites, workloads.FAULTY_SECONDS)
    return Scenario(seed, workload, drawn, STEPS_AT_LEAST)
