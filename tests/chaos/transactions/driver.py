"""Starts everybody, sets a trap for each aim of the schedule, makes good what was killed, and waits for the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import msgspec

from tests import leftovers
from tests.chaos.evidence import Complaint
from tests.chaos.transactions.aftermath import Aftermath, create_databases
from tests.chaos.transactions.crew import Crew, role_of_instance
from tests.chaos.transactions.evidence import Evidence, Killed
from tests.chaos.transactions.publisher import ENOUGH
from tests.chaos.transactions.schedule import (
    INSTANCES,
    MANAGER,
    MANAGER_STEPS,
    MEMBER_STEPS,
    POSTGRES,
    PUBLISHER,
    SELF_MANAGING,
    SERVER,
    Aim,
    Plan,
)
from tests.chaos.transactions.trap import Sprung, Trap, claim, lift_trap, set_trap, steps_of
from tests.chaos.transactions.workload import (
    RECEIPTS,
    SOUTH,
    SUBSCRIBERS,
    Deal,
    Leaving,
    Settings,
    Told,
    Tried,
    said,
    write_settings,
)
from tests.chaos.workload import NewLines
from tutti.bus.embedded import Embedded, inspect
from tutti.resources.embedded_postgres import EmbeddedPostgres

POLL_SECONDS: Final = 0.01
OCCASION_SECONDS: Final = 15.0  # that a trap waits for its step
AGAIN_SECONDS: Final = 60.0  # for a server to come back
STILL_SECONDS: Final = 60.0  # no transaction was tried for so long: something hangs


class Progress(msgspec.Struct):
    """How far it is, for whoever watches."""

    told: int = 0  # transactions that ended for their publisher
    aimed: int = 0  # kills that are done, or found no occasion
    note: str = ""


Watch = Callable[[Progress], None]


class Chaos:
    """One run in a folder of its own."""

    def __init__(self, folder: Path, plan: Plan, watch: Watch) -> None:
        self._data = folder / "data"
        self._marks = folder / "marks"
        self._marks.mkdir(parents=True)
        self._plan, self._watch = plan, watch
        self._progress = Progress()
        self._postgres = EmbeddedPostgres(folder / "postgres")
        self._crew = Crew(self._marks)
        self._killed: list[Killed] = []
        self._missed: list[str] = []
        self._new_sprung = NewLines(self._marks, "sprung-*")
        self._new_said = NewLines(self._marks, "said-*")

    async def run(self) -> Evidence:
        await asyncio.to_thread(self._postgres.start)
        try:
            return await self._run()
        finally:
            self._crew.end_all()
            await asyncio.to_thread(self._postgres.stop)

    async def _run(self) -> Evidence:
        urls = await create_databases(self._postgres)
        quota = -(-self._plan.transactions // len(INSTANCES[PUBLISHER]))
        settings = Settings(str(self._data), self._plan.seed, urls, quota, self._plan.seconds)
        write_settings(self._marks, settings)
        aftermath = Aftermath(settings)
        async with await Embedded.acquire(self._data):
            for role in (*SUBSCRIBERS, MANAGER):
                self._crew.start_role(role)
            await self._crew.ready()
            self._crew.start_role(PUBLISHER)
            await self._crew.ready()
            started = time.monotonic()
            await self._work()
            seconds = time.monotonic() - started
            await self._crew.end(PUBLISHER)
            quiet = await aftermath.quiet()
            for role in (*SUBSCRIBERS, MANAGER):
                await self._crew.end(role)
        return await self._evidence(settings, aftermath, seconds, quiet)

    # Transactions and kills

    async def _work(self) -> None:
        before, moved_at = -1, time.monotonic()
        aims = list(self._plan.aims)
        while aims or self._progress.told < self._plan.transactions:
            self._look()
            if self._progress.told != before:
                before, moved_at = self._progress.told, time.monotonic()
            elif time.monotonic() > moved_at + STILL_SECONDS:
                self._crew.crashed.append(f"nothing was said of any transaction for {STILL_SECONDS:.0f} s")
                break
            share = self._progress.told / self._plan.transactions
            if aims and share >= aims[0].at:
                await self._strike(aims.pop(0))
                self._progress.aimed += 1
            await asyncio.sleep(POLL_SECONDS)
        (self._marks / ENOUGH).touch()

    def _look(self) -> None:
        self._crew.look_for_crashes()
        decode = msgspec.json.Decoder(Tried | Told).decode
        self._progress.told += sum(bool(word.tx) for word in map(decode, self._new_said) if isinstance(word, Told))
        self._watch(self._progress)

    async def _strike(self, aim: Aim) -> None:
        self._progress.note = f"{aim.role} in {aim.phase}"
        self._watch(self._progress)
        sprung = await self._lure(aim)
        if sprung is None:
            self._missed.append(f"{aim.role} in {aim.phase}")
            return
        works = [self._make_good(aim, sprung)]
        if aim.also:
            works.append(self._kill_also(aim))
        await asyncio.gather(*works)
        await self._crew.ready()

    async def _lure(self, aim: Aim) -> Sprung | None:
        """Set the traps, and wait until one of them has sprung."""
        list(self._new_sprung)
        witnesses, trap = self._trap(aim)
        for run in witnesses:
            set_trap(self._marks, run, trap)
        try:
            deadline = time.monotonic() + OCCASION_SECONDS
            while time.monotonic() < deadline or not claim(self._marks, aim.name):
                self._look()
                for line in self._new_sprung:
                    sprung = msgspec.json.decode(line, type=Sprung)
                    if sprung.name == aim.name:
                        return sprung
                await asyncio.sleep(POLL_SECONDS)
        finally:
            for run in witnesses:
                lift_trap(self._marks, run)
        return None

    def _trap(self, aim: Aim) -> tuple[list[str], Trap]:
        """Where to set it: with the victim itself, or with somebody who sees the phase."""
        runs = self._crew.runs
        instances = SELF_MANAGING if aim.role == PUBLISHER else INSTANCES.get(aim.role, ())
        if aim.phase == "compensating" or aim.role in {SERVER, POSTGRES}:
            role = RECEIPTS if aim.phase == "compensating" else SOUTH
            trap = Trap(aim.name, role, MEMBER_STEPS[aim.phase], victim=self._pid(aim, instances), after=aim.after)
            return [runs[one] for one in INSTANCES[role]], trap
        if aim.role in {PUBLISHER, MANAGER}:
            return [runs[one] for one in instances], Trap(
                aim.name, "manager", MANAGER_STEPS[aim.phase], after=aim.after
            )
        outcome = "yes" if aim.phase == "voting" else ""
        return [runs[one] for one in instances], Trap(
            aim.name, aim.role, MEMBER_STEPS[aim.phase], outcome, after=aim.after
        )

    def _pid(self, aim: Aim, instances: Iterable[str]) -> int:
        if aim.role == SERVER:
            state = inspect(self._data)
            if state is None:
                raise RuntimeError(f"no server works in {self._data}")
            if aim.away:  # a supervisor that is as slow as on the worst of machines
                os.kill(state.supervisor_pid, signal.SIGSTOP)
            return state.pid
        if aim.role == POSTGRES:
            return self._postgres.pid
        if aim.role == RECEIPTS:
            return 0
        return self._crew.pid(next(iter(instances)))

    # Making good

    async def _make_good(self, aim: Aim, sprung: Sprung) -> None:
        match aim.role:
            case role if role == SERVER:
                await asyncio.sleep(aim.away)
                await self._server_back()
            case role if role == POSTGRES:
                await asyncio.to_thread(self._postgres.kill)
                await asyncio.to_thread(self._postgres.start)
            case _:
                dead = await self._dead(sprung)
                await self._replace(dead, aim.away)
        self._killed.append(
            Killed(aim.role, aim.phase, sprung.time, time.monotonic(), aim.name, sprung.tx, sprung.step)
        )

    async def _dead(self, sprung: Sprung) -> str:
        """Which instance the signal has reached."""
        while True:
            for instance in self._crew.runs:
                if self._crew.pid(instance) == sprung.victim:
                    return instance
            await asyncio.sleep(POLL_SECONDS)

    async def _replace(self, instance: str, away: float) -> None:
        await self._crew.bury(instance)
        await asyncio.sleep(away)
        self._crew.start(instance, role_of_instance(instance))
        await self._crew.ready()

    async def _server_back(self) -> None:
        state = inspect(self._data)
        if state is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(state.supervisor_pid, signal.SIGCONT)
        deadline = time.monotonic() + AGAIN_SECONDS
        while (state := inspect(self._data)) is None or not state.running:
            if time.monotonic() > deadline:
                raise RuntimeError(f"the server in {self._data} does not come back")
            await asyncio.sleep(POLL_SECONDS)

    async def _kill_also(self, aim: Aim) -> None:
        instance = INSTANCES[aim.also][-1]
        killed_at = time.monotonic()
        self._crew.kill(instance)
        await self._replace(instance, aim.away)
        self._killed.append(Killed(aim.also, "", killed_at, time.monotonic(), ""))

    # What is found

    async def _evidence(self, settings: Settings, aftermath: Aftermath, seconds: float, quiet: float) -> Evidence:
        words = said(self._marks)
        found = await aftermath.found()
        await asyncio.to_thread(self._postgres.stop)
        return Evidence(
            wanted=self._plan.transactions,
            seconds=seconds,
            quiet_seconds=quiet,
            said=words,
            owned=frozenset(word.tx for word in words if isinstance(word, Tried) and word.tx and _owns(settings, word)),
            steps=steps_of(self._marks),
            kills=sorted(self._killed, key=lambda killed: killed.time),
            missed=self._missed,
            found=found,
            leaving=[msgspec.json.decode(line, type=Leaving) for line in NewLines(self._marks, "leaving-*")],
            complaints=[msgspec.json.decode(line, type=Complaint) for line in NewLines(self._marks, "log-*")],
            crashed=self._crew.crashed,
            left=leftovers.processes_left(self._data.parent),
        )


def _owns(settings: Settings, tried: Tried) -> bool:
    publisher, _, number = tried.key.rpartition("-")
    return Deal.drawn(settings.seed, publisher, int(number)).own
