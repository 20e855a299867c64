"""The processes of a run: starting them, setting traps, noticing who died, starting again."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from tests.chaos.transactions.process import name_of
from tests.chaos.transactions.schedule import INSTANCES, MANAGER, PUBLISHER
from tests.chaos.transactions.trap import lift_trap

ROOT: Final = Path(__file__).parents[3]
POLL_SECONDS: Final = 0.01
READY_SECONDS: Final = 60.0  # to start, also while a server is coming back
STOP_SECONDS: Final = 45.0  # what is under way may end first


def module_of(role: str) -> str:
    return role if role in {PUBLISHER, MANAGER} else "subscriber"


class Crew:
    """`runs`: by instance, the run that is at work."""

    def __init__(self, marks: Path) -> None:
        self._marks = marks
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._starts: dict[str, int] = {}
        self.runs: dict[str, str] = {}
        self.crashed: list[str] = []

    def start(self, instance: str, role: str) -> None:
        number = self._starts[instance] = self._starts.get(instance, 0) + 1
        run = f"{instance}-{number}"
        command = [sys.executable, "-m", f"tests.chaos.transactions.{module_of(role)}", str(self._marks), run]
        with (self._marks / f"output-{instance}").open("ab") as output:
            self._processes[run] = subprocess.Popen(
                command, cwd=ROOT, stdout=output, stderr=output, stdin=subprocess.DEVNULL
            )
        self.runs[instance] = run

    def start_role(self, role: str) -> None:
        for instance in INSTANCES[role]:
            self.start(instance, role)

    async def ready(self) -> None:
        """Everybody who is at work has said so."""
        deadline = time.monotonic() + READY_SECONDS
        while waiting := [run for run in self.runs.values() if not (self._marks / f"ready-{run}").exists()]:
            self.look_for_crashes()
            if time.monotonic() > deadline or self.crashed:
                raise RuntimeError(f"{', '.join(waiting)} did not start; {self.crashed}; see {self._marks}")
            await asyncio.sleep(POLL_SECONDS)

    def pid(self, instance: str) -> int:
        return self._processes[self.runs[instance]].pid

    def is_dead(self, run: str) -> bool:
        return self._processes[run].poll() is not None

    def look_for_crashes(self) -> None:
        """Whoever ended otherwise than by a trap or by `kill`."""
        for instance, run in list(self.runs.items()):
            code = self._processes[run].poll()
            if code is not None and code != -signal.SIGKILL:
                self.crashed.append(f"{run} ended by itself with {code}")
                del self.runs[instance]

    def kill(self, instance: str) -> None:
        os.kill(self.pid(instance), signal.SIGKILL)

    async def bury(self, instance: str) -> str:
        """Wait for the end of a process that was killed; its run."""
        run = self.runs.pop(instance)
        while self._processes[run].poll() is None:
            await asyncio.sleep(POLL_SECONDS)
        lift_trap(self._marks, run)
        return run

    async def end(self, role: str) -> None:
        """In order; who does not end is killed, and that is told."""
        mine = [run for instance, run in self.runs.items() if instance in INSTANCES[role]]
        for run in mine:
            self._processes[run].terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for run in mine:
            while self._processes[run].poll() is None and time.monotonic() < deadline:
                await asyncio.sleep(POLL_SECONDS)
            code = self._processes[run].poll()
            if code != 0:
                self.crashed.append(f"{run} did not end when told to" if code is None else f"{run} ended with {code}")
            del self.runs[name_of(run)]

    def end_all(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()


def role_of_instance(instance: str) -> str:
    return next(role for role, instances in INSTANCES.items() if instance in instances)
