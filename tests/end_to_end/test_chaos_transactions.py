"""The short form of the second half of `make chaos`: transfers, SIGKILL in named phases, the same checker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.transactions.checker import check
from tests.chaos.transactions.driver import Chaos
from tests.chaos.transactions.schedule import MANAGER, PUBLISHER, SERVER, Aim, Plan
from tests.chaos.transactions.workload import NORTH, RECEIPTS, SOUTH

AIMS = (
    Aim(0.05, SOUTH, "voting"),
    Aim(0.20, PUBLISHER, "deciding", after=0.005),
    Aim(0.35, RECEIPTS, "finishing"),
    Aim(0.50, SERVER, "preparing"),
    Aim(0.65, NORTH, "deciding", away=0.5),
    Aim(0.80, MANAGER, "voting"),
)


@pytest.mark.timeout(180)
async def test_nothing_is_half_done_whoever_is_killed(tmp_path: Path) -> None:
    evidence = await Chaos(tmp_path, Plan(1, 40, 10.0, AIMS), lambda _: None).run()
    verdict = check(evidence)
    assert verdict.faults == []
    assert len(evidence.kills) + len(evidence.missed) == len(AIMS)
    assert len(evidence.kills) >= len(AIMS) - 1, evidence.missed
