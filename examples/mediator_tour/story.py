"""The acts, in order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import tutti
from examples.mediator_tour.company import Player, Report
from examples.mediator_tour.events import EXCHANGES, TradeDone
from examples.mediator_tour.ledger import Ledger, Letter, Verdict
from examples.mediator_tour.stage import Stage
from tutti.bus.embedded import inspect
from tutti.model.cloudevents import to_headers
from tutti.model.envelope import Envelope
from tutti.model.subjects import partition_of

DESK_PROCESSES: Final = ("archive", "archive", "ibm", "blocks", "settlement")
DESKS_MODULE: Final = "examples.mediator_tour.desks"
TICK_SECONDS: Final = 0.05


class Cancelled(Exception):
    """A process ended too early, or something took too long."""


@dataclass
class Outage:
    """The server's death: who was killed, and how long nothing was acknowledged."""

    killed: int = 0
    successor: int = 0
    seconds: float = 0.0


class Story:
    def __init__(self, data: Path, ledger: Ledger, stage: Stage, seconds: float) -> None:
        self._data = data
        self._ledger = ledger
        self._stage = stage
        self._seconds = seconds
        self._outage = Outage()
        self._players: list[Player] = []

    async def tell(self) -> list[Verdict]:
        """Play it from beginning to end; returns what held and what did not."""
        async with contextlib.AsyncExitStack() as stack:
            self._stage.act("1 Curtain", "a server is started in an empty folder; five desks take their seats")
            bus = await stack.enter_async_context(tutti.connect(data=self._data, name="director"))
            await bus.advertise(TradeDone)
            stack.push_async_callback(self._end_players)
            await self._start_desks()
            reading = asyncio.create_task(self._read_letters(bus))
            stack.push_async_callback(_cancel, reading)
            await self._trade(bus)
        return [*self._ledger.verdicts(), *await self._epilogue()]

    async def _start_desks(self) -> None:
        desks = [
            await self._start(f"{desk}-{i}", "tutti.cli", "run", f"{DESKS_MODULE}:{desk}", "--json", stays=True)
            for i, desk in enumerate(DESK_PROCESSES)
        ]
        await self._until(lambda: all(desk.ready.is_set() for desk in desks), "the desks are ready", 20)

    async def _trade(self, bus: tutti.Bus) -> None:
        count = str(self._ledger.count)
        self._stage.act("2 Trading", "three exchanges publish; what each desk gets is decided by its filter")
        for exchange in EXCHANGES:
            command = ("examples.mediator_tour.exchange", exchange, "--count", count, "--seconds", str(self._seconds))
            await self._start(exchange, *command)
        await self._until(lambda: self._share() > 0.15, "trading begins", 20)
        self._stage.act("3 Poison", "a program of somebody else publishes a trade whose price is “a lot”")
        await publish_poison(bus)
        await self._until(lambda: self._share() > 0.4, "trading goes on", 20)
        await self._kill_server()
        await self._until(lambda: self._share() == 1, "everything is published", 40)
        self._stage.act("5 Finale", "everything is acknowledged; the desks finish what is left")
        await self._until(lambda: self._ledger.complete, "everything is handled", 20, strict=False)

    async def _kill_server(self) -> None:
        """SIGKILL: no farewell, no flush. Its supervisor starts another one; publishers and desks connect again."""
        loop = asyncio.get_running_loop()
        state = inspect(self._data)
        if state is None or not state.pid:
            raise Cancelled("there is no server to kill")
        stored = self._ledger.published
        self._stage.act("4 Disaster", f"nats-server, pid {state.pid}, is killed with SIGKILL in the middle of it all")
        os.kill(state.pid, signal.SIGKILL)
        began = loop.time()
        await self._until(lambda: self._ledger.published > stored + 3 * len(EXCHANGES), "it comes back", 20)
        found = inspect(self._data)
        self._outage = Outage(state.pid, found.pid if found is not None else 0, loop.time() - began)
        self._stage.act(
            "  Recovery",
            f"pid {self._outage.successor} took over; trades flow again after {self._outage.seconds:.1f} s",
        )

    async def _epilogue(self) -> list[Verdict]:
        """Everybody has left: the server, too?"""
        outage = self._outage
        gone = False
        for _ in range(200):
            state = await asyncio.to_thread(inspect, self._data)
            if gone := state is None or not (state.pid or state.supervisor_pid):
                break
            await asyncio.sleep(TICK_SECONDS)
        return [
            Verdict(
                bool(outage.killed and outage.successor and outage.killed != outage.successor),
                f"server {outage.killed} was killed, {outage.successor} took over in {outage.seconds:.1f} seconds",
            ),
            Verdict(
                gone, "every process has ended, the server with its last user" if gone else "the server is still there"
            ),
        ]

    # Listening

    def _hear(self, report: Report) -> None:
        if "stored" in report:
            self._ledger.note_stored(report["exchange"], report["stored"])
        elif "desk" in report:
            self._ledger.note_handled(report["desk"], report["exchange"], report["number"], report["symbol"])

    async def _read_letters(self, bus: tutti.Bus) -> None:
        while True:
            with contextlib.suppress(tutti.BusError):  # the server is away for a moment
                self._ledger.letters = [letter async for letter in _letters(bus)]
            await asyncio.sleep(0.3)

    # Processes

    async def _start(self, name: str, *command: str, stays: bool = False) -> Player:
        player = await Player.start(name, *command, data=self._data, hear=self._hear, stays=stays)
        self._players.append(player)
        return player

    async def _end_players(self) -> None:
        await asyncio.gather(*(player.end() for player in self._players))

    def _share(self) -> float:
        return self._ledger.published / self._ledger.total

    async def _until(self, reached: Callable[[], bool], what: str, seconds: float, *, strict: bool = True) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while not reached():
            self._stage.look()
            broken = [player for player in self._players if player.failed]
            if broken:
                raise Cancelled(
                    f"{broken[0].name} ended with {broken[0].exit_code}:\n{broken[0].log.read_text()[-2000:]}"
                )
            if loop.time() > deadline:
                if strict:
                    raise Cancelled(f"it took longer than {seconds:g} seconds until {what}")
                return
            await asyncio.sleep(TICK_SECONDS)


async def publish_poison(bus: tutti.Bus) -> None:
    """As a program without our class would: right headers, right subject, and a price that is none."""
    envelope = Envelope(
        id="poison-1",
        source="/somebody-else",
        type="TradeDone",
        data=b'{"symbol": "ACME", "exchange": "nowhere", "number": 1, "price": "a lot", "quantity": 1}',
    )
    partition = str(partition_of("somebody-else"))
    subject = bus.context.layout.event("events", "TradeDone", "_", partition, ("ACME",))
    await bus.context.transport.append(subject, to_headers(envelope), envelope.data, timeout=10)


async def _letters(bus: tutti.Bus) -> AsyncIterator[Letter]:
    async for letter in bus.dead.each():
        reason = letter.reason.partition("\n")[0]
        yield Letter(letter.subscriber, letter.event_id, f"{reason} (after {letter.attempts} attempts)")


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
