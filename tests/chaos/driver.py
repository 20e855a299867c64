"""Starts everybody, kills by the schedule, starts again, waits until all is handled, ends everybody."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Final

import msgspec

import tutti
from tests import leftovers
from tests.chaos.evidence import Evidence, InstanceKilled, Killed, ServerKilled, marks_of
from tests.chaos.schedule import Kill, instances
from tests.chaos.workload import PUBLISHERS, STREAM, SUBSCRIBERS, Acknowledged, Handling, NewLines, Tick, complaints_to
from tutti.bus.embedded import ServerState, inspect
from tutti.errors import BusError
from tutti.limits import LEASE_TTL_SECONDS
from tutti.runtime.positions import Positions

ROOT: Final = Path(__file__).parents[2]
POLL_SECONDS: Final = 0.02
READY_SECONDS: Final = 30.0
STILL_SECONDS: Final = 30.0  # no progress for so long: something hangs, and the checker will say what is missing
LOOK_SECONDS: Final = LEASE_TTL_SECONDS / 2  # after a kill, positions read within it are those the killed one left


class Progress(msgspec.Struct):
    """How far it is, for whoever watches."""

    events: int
    acknowledged: int = 0
    handled: int = 0  # by every subscriber
    kills: int = 0
    note: str = ""


Watch = Callable[[Progress], None]


class Chaos:
    """One run in a folder of its own."""

    def __init__(self, folder: Path, events: int, kills: list[Kill], seconds: float, watch: Watch) -> None:
        self._data = folder / "data"
        self._marks = folder / "marks"
        self._marks.mkdir(parents=True)
        self._kills = kills
        self._seconds = seconds
        self._watch = watch
        self._progress = Progress(events)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}  # subscribers, by run
        self._runs: dict[str, str] = {}  # the run of each instance that is at work
        self._starts: dict[str, int] = {}
        self._killed: list[Killed] = []
        self._crashed: list[str] = []
        self._under_way: set[asyncio.Task[None]] = set()
        self._new_acknowledged = NewLines(self._marks, "acknowledged-*")
        self._new_handled = NewLines(self._marks, "handled-*")
        self._handled: dict[str, set[tuple[str, int]]] = {plan.name: set() for plan in SUBSCRIBERS}
        self._bus = tutti.connect(data=self._data, name="driver")

    async def run(self) -> Evidence:
        started = time.monotonic()
        with complaints_to(self._marks / "log-driver"):
            async with self._bus:
                await self._bus.advertise(Tick)
                try:
                    await self._start_subscribers()
                    await self._publish_and_kill()
                    seconds = time.monotonic() - started
                    self._end_subscribers()
                finally:
                    self._end_all()
                info = await self._bus.context.transport.stream_info(self._bus.context.layout.event_stream(STREAM))
                letters = [letter async for letter in self._bus.dead.each()]
        acknowledged, handled, counters, complaints = marks_of(self._marks)
        return Evidence(
            events=self._progress.events,
            seconds=seconds,
            acknowledged=acknowledged,
            handled=handled,
            kills=sorted(self._killed, key=lambda killed: killed.time),
            counters=counters,
            complaints=complaints,
            stored=info.messages if info is not None else 0,
            dead_letters=len(letters),
            crashed=self._crashed,
            left=leftovers.processes_left(self._data),
        )

    # The way of a run

    async def _start_subscribers(self) -> None:
        for instance in instances():
            self._start(instance)
        deadline = time.monotonic() + READY_SECONDS
        while not all((self._marks / f"ready-{run}").exists() for run in self._runs.values()):
            self._look_for_crashes()
            if time.monotonic() > deadline or self._crashed:
                raise RuntimeError(f"the subscribers do not start: {self._crashed or 'no answer'}; see {self._marks}")
            await asyncio.sleep(POLL_SECONDS)

    async def _publish_and_kill(self) -> None:
        publishers = self._start_publishers()
        kills = deque(self._kills)
        try:
            await self._drive(publishers, kills)
        finally:
            for process in publishers:
                process.kill()
                process.wait()
        for kill in kills:  # publishing ended first; they are owed all the same
            await self._kill(kill)
        await asyncio.gather(*self._under_way)
        await self._until_still(lambda: self._progress.handled >= self._progress.acknowledged)

    async def _drive(self, publishers: list[subprocess.Popen[bytes]], kills: deque[Kill]) -> None:
        moved_at, before = time.monotonic(), -1
        while any(process.poll() is None for process in publishers):
            self._look()
            share = self._progress.acknowledged / self._progress.events
            if kills and share >= kills[0].at:
                await self._kill(kills.popleft())
            if self._progress.acknowledged != before:
                moved_at, before = time.monotonic(), self._progress.acknowledged
            elif time.monotonic() > moved_at + STILL_SECONDS:
                self._crashed.append(f"publishing stood still for {STILL_SECONDS:.0f} s")
                return
            await asyncio.sleep(POLL_SECONDS)
        self._look()
        self._crashed += [f"publisher ended with {p.returncode}" for p in publishers if p.returncode]

    async def _until_still(self, done: Callable[[], bool]) -> None:
        """Wait as long as it goes on."""
        moved_at, before = time.monotonic(), -1
        while not done() and time.monotonic() < moved_at + STILL_SECONDS:
            self._look()
            now = sum(map(len, self._handled.values()))
            if now != before:
                moved_at, before = time.monotonic(), now
            await asyncio.sleep(POLL_SECONDS)

    def _look(self) -> None:
        self._look_for_crashes()
        progress = self._progress
        for line in self._new_acknowledged:
            msgspec.json.decode(line, type=Acknowledged)
            progress.acknowledged += 1
        for line in self._new_handled:
            mark = msgspec.json.decode(line, type=Handling)
            self._handled[mark.subscriber].add((mark.publisher, mark.number))
        progress.handled = min(map(len, self._handled.values()))
        progress.kills = len(self._killed)
        self._watch(progress)

    def _look_for_crashes(self) -> None:
        for instance, run in list(self._runs.items()):
            code = self._processes[run].poll()
            if code is not None:
                self._crashed.append(f"{run} ended by itself with {code}")
                del self._runs[instance]

    # Processes

    def _start(self, instance: str) -> None:
        start = self._starts[instance] = self._starts.get(instance, 0) + 1
        name, run = instance.rsplit("-", 1)[0], f"{instance}-{start}"
        self._processes[run] = self._spawn("subscriber", run, name, run)
        self._runs[instance] = run

    def _start_publishers(self) -> list[subprocess.Popen[bytes]]:
        processes, left = [], self._progress.events
        for number, plan in enumerate(PUBLISHERS, 1):
            last = number == len(PUBLISHERS)
            count = left if last else round(self._progress.events * plan.share)
            left -= count
            processes.append(self._spawn("publisher", plan.name, plan.name, str(count), str(self._seconds)))
        return processes

    def _spawn(self, module: str, label: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"tests.chaos.{module}", str(self._data), str(self._marks), *arguments]
        with (self._marks / f"output-{label}").open("ab") as output:
            return subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output, stdin=subprocess.DEVNULL)

    async def _kill(self, kill: Kill) -> None:
        self._progress.note = kill.target
        if kill.is_server:
            await self._kill_server(kill.away)
            return
        if kill.target not in self._runs:  # it is still away after the last time
            await asyncio.gather(*self._under_way)
        if kill.target in self._runs:
            self._kill_instance(kill)

    async def _kill_server(self, away: float) -> None:
        state = inspect(self._data)
        while state is None or not state.running:  # it is still coming back from the last time
            await asyncio.sleep(POLL_SECONDS)
            state = inspect(self._data)
        if away:  # a supervisor that is as slow as on the worst of machines
            os.kill(state.supervisor_pid, signal.SIGSTOP)
        os.kill(state.pid, signal.SIGKILL)
        self._in_background(self._await_server(time.monotonic(), away, state))

    async def _await_server(self, killed_at: float, away: float, state: ServerState) -> None:
        try:
            await asyncio.sleep(max(away, POLL_SECONDS))
        finally:
            os.kill(state.supervisor_pid, signal.SIGCONT)
        await self._answer("type.Tick")
        self._killed.append(ServerKilled(killed_at, time.monotonic(), state.pid))

    def _kill_instance(self, kill: Kill) -> None:
        run = self._runs.pop(kill.target)
        process = self._processes[run]
        process.kill()
        process.wait()
        self._in_background(self._replace(kill, run, time.monotonic()))

    async def _replace(self, kill: Kill, run: str, killed_at: float) -> None:
        subscriber = kill.target.rsplit("-", 1)[0]
        positions = {}
        for plan in PUBLISHERS:
            value = await self._answer(f"position.{subscriber}.{plan.partition}")
            known = msgspec.json.decode(value, type=Positions) if value else Positions()
            positions[plan.partition] = known.at.get("tick", 0)
        in_time = time.monotonic() <= killed_at + LOOK_SECONDS
        self._killed.append(InstanceKilled(killed_at, subscriber, run, positions if in_time else None))
        await asyncio.sleep(kill.away)
        self._start(kill.target)

    async def _answer(self, key: str) -> bytes | None:
        """What the state says, as soon as there is a server to say it."""
        while True:
            with contextlib.suppress(BusError):
                entry = await self._bus.context.transport.state_get(key)
                return entry.value if entry is not None else None
            await asyncio.sleep(POLL_SECONDS)

    def _in_background(self, work: Coroutine[None, None, None]) -> None:
        self._under_way.add(asyncio.get_running_loop().create_task(work))

    def _end_subscribers(self) -> None:
        """Gracefully; who does not end is killed, and that is told."""
        for run in self._runs.values():
            self._processes[run].terminate()
        for run in self._runs.values():
            try:
                code = self._processes[run].wait(STILL_SECONDS)
            except subprocess.TimeoutExpired:
                self._crashed.append(f"{run} does not end when told to")
            else:
                self._crashed += [f"{run} ended with {code}"] * (code != 0)

    def _end_all(self) -> None:
        for task in self._under_way:
            task.cancel()
        for process in self._processes.values():
            process.kill()
            process.wait()
