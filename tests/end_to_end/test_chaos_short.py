"""The short form of `make chaos`: real processes, SIGKILL, and the same checker. See docs/chaos.md."""

from __future__ import annotations

from pathlib import Path

from tests.chaos import loss
from tests.chaos.checker import check
from tests.chaos.driver import Chaos
from tests.chaos.schedule import Kill

EVENTS = 6_000
SECONDS = 12.0
KILLS = [
    Kill(0.15, "server"),
    Kill(0.30, "shared-1", away=0.5),
    Kill(0.45, "keyed-1", away=0.0),
    Kill(0.60, "server"),
    Kill(0.75, "plain-1", away=0.2),
]


async def test_nothing_is_lost_whoever_is_killed(tmp_path: Path) -> None:
    evidence = await Chaos(tmp_path, EVENTS, KILLS, SECONDS, lambda _: None).run()
    verdict = check(evidence)
    assert verdict.faults == []
    assert len(evidence.kills) == len(KILLS)
    assert set(verdict.handled.values()) == {EVENTS}


async def test_a_loss_in_the_log_is_noticed(tmp_path: Path) -> None:
    for one in await loss.run(tmp_path):
        assert one.ok, one
