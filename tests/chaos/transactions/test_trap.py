"""A trap springs at its step, once, and nowhere else."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.chaos.transactions.trap import Sprung, Trap, Watch, claim, set_trap, steps_of, trap_file
from tests.chaos.workload import NewLines

log = logging.getLogger("tests.chaos.trap")


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Path]:
    watch = Watch(tmp_path, "north-1-1")
    log.addHandler(watch)
    log.setLevel(logging.INFO)
    yield tmp_path
    log.removeHandler(watch)


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def say(step: str, **more: str) -> None:
    log.info("t1: north %s", step, extra={"tx": "t1", "role": "north", "step": step} | more)


def test_steps_are_written_down(watched: Path) -> None:
    say("handled")
    say("voted", vote="yes")
    log.info("something else")
    assert [(step.role, step.word, step.detail) for step in steps_of(watched)] == [
        ("north", "handled", ""),
        ("north", "voted", "yes"),
    ]


@pytest.mark.parametrize("after", [0.0, 0.01])
def test_it_kills_its_victim_at_the_step_and_says_so_before(
    watched: Path, victim: subprocess.Popen[bytes], after: float
) -> None:
    set_trap(watched, "north-1-1", Trap("aim", "north", ("voted",), "yes", victim.pid, after))
    say("handled")
    say("voted", vote="no")
    assert trap_file(watched, "north-1-1").exists()
    say("voted", vote="yes")
    assert victim.wait(10) == -9
    (line,) = NewLines(watched, "sprung-*")
    assert b'"voted"' in line
    assert not trap_file(watched, "north-1-1").exists()
    say("voted", vote="yes")
    assert list(NewLines(watched, "sprung-*")) == [line]


def test_a_trap_for_others_is_left_alone(watched: Path) -> None:
    set_trap(watched, "south-1-1", Trap("aim", "north", ("voted",)))
    set_trap(watched, "north-1-1", Trap("aim", "manager", ("voted",)))
    say("voted", vote="yes")
    assert list(NewLines(watched, "sprung-*")) == []


def test_of_several_traps_for_one_aim_only_one_springs(watched: Path, victim: subprocess.Popen[bytes]) -> None:
    assert claim(watched, "aim")
    set_trap(watched, "north-1-1", Trap("aim", "north", ("voted",), victim=victim.pid))
    say("voted", vote="yes")
    assert list(NewLines(watched, "sprung-*")) == []
    assert victim.poll() is None


def test_when_it_was_is_known(watched: Path, victim: subprocess.Popen[bytes]) -> None:
    before = time.monotonic()
    set_trap(watched, "north-1-1", Trap("aim", "north", ("voted",), victim=victim.pid))
    say("voted", vote="yes")
    (line,) = NewLines(watched, "sprung-*")
    assert before <= msgspec.json.decode(line, type=Sprung).time <= time.monotonic()
