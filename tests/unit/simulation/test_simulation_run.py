"""A few hundred scenarios of the real machines; and the same seed is the same run."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tutti.control.participation.machine import Participation
from tutti.errors import InvariantViolated
from tutti.simulation import story, suite
from tutti.simulation.faults import KINDS
from tutti.simulation.run import Report, play
from tutti.simulation.scenario import STEPS_AT_LEAST, draw

SEEDS_COUNT, ROW_COUNT = 300, 25
SEED = 7


@pytest.mark.parametrize("first", range(0, SEEDS_COUNT, ROW_COUNT))
def test_no_rule_is_broken(first: int) -> None:
    reports: list[Report] = []
    totals = suite.run(range(first, first + ROW_COUNT), reports.append)
    for report in totals.failed:
        assert report.failure is not None
        pytest.fail("\n".join(story.tell(report, report.failure, play(draw(report.seed))[1])))
    assert all(report.transactions >= 10 and report.steps >= STEPS_AT_LEAST for report in reports)
    assert totals.objections() == []
    assert sum(totals.fired[kind] > 0 for kind in KINDS) > len(KINDS) / 2, "most kinds of faults happen"


def test_the_same_seed_is_the_same_run() -> None:
    (first, trace), (second, again) = play(draw(SEED)), play(draw(SEED))
    assert first == second
    assert trace.digest() == again.digest()
    assert trace.lines() == again.lines()
    assert play(draw(SEED + 1))[1].digest() != trace.digest()


def test_the_same_seed_is_the_same_run_in_another_process() -> None:
    """Where sets and hashes have another order."""
    program = (
        "from tutti.simulation.run import play\n"
        "from tutti.simulation.scenario import draw\n"
        f"print(play(draw({SEED}))[1].digest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for hash_seed in ("1", "2")
    }
    assert digests == {play(draw(SEED))[1].digest()}


def test_what_a_machine_objects_to_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(_: Participation) -> None:
        raise InvariantViolated("voted without a vote")

    monkeypatch.setattr(Participation, "check", check)
    failure = play(draw(SEED))[0].failure
    assert failure is not None
    assert failure.invariant == "self-check"
    assert "voted without a vote" in failure.objection


def test_what_a_machine_raises_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def step(_: Participation, given: object) -> list[object]:
        raise KeyError(type(given).__name__)

    monkeypatch.setattr(Participation, "step", step)
    failure = play(draw(SEED))[0].failure
    assert failure is not None
    assert failure.invariant == "crash"
    assert failure.objection.startswith("KeyError")
