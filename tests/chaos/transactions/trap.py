"""Killing at an exact moment: a process that reaches a step of a transaction kills whom its trap names.

Every process writes each step that the account of transactions tells (`tutti.runtime.transactions.account`) to a file,
and looks for a trap of its own. The step is told before its effects are carried out: with `after=0` a member dies
before its vote leaves, a manager before its proposal reaches the journal. The victim is often the process itself.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
from pathlib import Path

import msgspec

from tests.chaos.workload import Marks, NewLines


class Trap(msgspec.Struct, frozen=True):
    """`outcome`: of the step, where it matters. `victim`: a process id; 0 is the process itself."""

    name: str  # of the aim
    role: str  # whose steps: "manager", or a subscriber
    steps: tuple[str, ...]
    outcome: str = ""
    victim: int = 0
    after: float = 0.0  # seconds


class Sprung(msgspec.Struct, frozen=True):
    """Written right before the signal is sent."""

    name: str
    run: str
    tx: str
    step: str
    victim: int
    time: float


class Step(msgspec.Struct, frozen=True, array_like=True):
    time: float
    role: str
    tx: str
    word: str
    detail: str


def trap_file(marks: Path, run: str) -> Path:
    return marks / f"trap-{run}"


def set_trap(marks: Path, run: str, trap: Trap) -> None:
    """Whole or not at all."""
    draft = marks / f"draft-{run}"
    draft.write_bytes(msgspec.json.encode(trap))
    draft.rename(trap_file(marks, run))


def lift_trap(marks: Path, run: str) -> None:
    trap_file(marks, run).unlink(missing_ok=True)


def claim(marks: Path, name: str) -> bool:
    """Whether nobody has claimed it before: of several traps for one aim only one springs, and none that was given
    up."""
    try:
        os.close(os.open(marks / f"claimed-{name}", os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return False
    return True


class Watch(logging.Handler):
    """Of one process."""

    def __init__(self, marks: Path, run: str) -> None:
        super().__init__(logging.INFO)
        self._marks = marks
        self._run = run
        self._steps = Marks(marks / f"steps-{run}")
        self._sprung = Marks(marks / f"sprung-{run}")

    def emit(self, record: logging.LogRecord) -> None:
        given = vars(record)
        word = given.get("step")
        if not word:
            return
        outcome = given.get("vote") or given.get("outcome") or ""
        detail = outcome if word != "undone" else f"undone {given.get('reason', '')}"
        step = Step(round(time.monotonic(), 4), given["role"], given["tx"], word, detail)
        self._steps.add(step)
        trap = self._trap()
        if trap is None or trap.role != step.role or word not in trap.steps or trap.outcome not in {"", outcome}:
            return
        lift_trap(self._marks, self._run)
        if not claim(self._marks, trap.name):
            return
        if trap.after:
            threading.Timer(trap.after, self._spring, (trap, step)).start()
        else:
            self._spring(trap, step)

    def _trap(self) -> Trap | None:
        try:
            return msgspec.json.decode(trap_file(self._marks, self._run).read_bytes(), type=Trap)
        except FileNotFoundError:
            return None

    def _spring(self, trap: Trap, step: Step) -> None:
        victim = trap.victim or os.getpid()
        self._sprung.add(Sprung(trap.name, self._run, step.tx, step.word, victim, time.monotonic()))
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)


def steps_of(marks: Path) -> list[Step]:
    decode = msgspec.json.Decoder(Step).decode
    return sorted((decode(line) for line in NewLines(marks, "steps-*")), key=lambda step: step.time)
