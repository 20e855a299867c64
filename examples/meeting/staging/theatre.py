"""Everything that an episode needs: the databases, the processes, the wires between them, and the clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

from examples.meeting.staging.company import Player
from examples.meeting.staging.databases import Databases
from examples.meeting.staging.timeline import STAGED, Cast, Entry, entry
from examples.meeting.staging.wire import Wire
from tutti.bus.embedded import Embedded
from tutti.resources.embedded_postgres import EmbeddedPostgres

SUBSCRIBERS: Final = {
    "rooms": "examples.meeting.rooms:rooms",
    "ann": "examples.meeting.invitees:ann",
    "bob": "examples.meeting.invitees:bob",
    "tickets": "examples.meeting.tickets:tickets",
}
WAIT_SECONDS: Final = 40.0  # for anything; on a busy machine, too


class Cancelled(Exception):
    """A process ended too early, or something took too long."""


class Theatre:
    """`tell` hears of every entry as it comes."""

    def __init__(self, folder: Path, tell: Callable[[Entry], None]) -> None:
        self._folder = folder
        self._tell = tell
        self._server: Embedded | None = None
        self._news = asyncio.Event()
        self.databases = Databases(EmbeddedPostgres(folder / "postgres"))
        self.players: dict[str, Player] = {}
        self.wires: dict[str, Wire] = {}
        self.notes: list[str] = []  # of this episode, for the audience
        self._entries: list[Entry] = []
        self._page = 0
        self.cast = Cast()

    # Life

    async def __aenter__(self) -> Self:
        try:
            server, _ = await asyncio.gather(Embedded.acquire(self._folder / "bus"), self.databases.open())
            self._server = server
            place = urlsplit(server.url)
            for name in SUBSCRIBERS:
                self.wires[name] = Wire(place.hostname or "127.0.0.1", place.port or 0)
                await self.wires[name].start()
            await asyncio.gather(*(self.serve(name) for name in SUBSCRIBERS), self._stand_by())
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._close()

    async def _close(self) -> None:
        await asyncio.gather(*(player.end() for player in self.players.values()))
        for wire in self.wires.values():
            await wire.close()
        await self.databases.close()
        if self._server is not None:
            await self._server.release()

    # Processes

    async def serve(self, name: str) -> Player:
        """A subscriber, as anybody would start it; its wire to the server is one that can be cut."""
        assert self._server is not None  # noqa: S101  for the type checker: it is entered
        user = urlsplit(self._server.url).netloc.rpartition("@")[0]
        url = f"nats://{user}@127.0.0.1:{self.wires[name].port}"
        environment = {"TUTTI_URL": url, "TUTTI_MONITOR_URL": self._server.monitor_url}
        command = ("tutti.cli", "run", SUBSCRIBERS[name], "--json", "--log", "json")
        player = await self._start(name, *command, environment=environment)
        await self._until(player.ready.is_set, f"{name} is ready")
        return player

    async def _stand_by(self) -> None:
        """A manager as a service, as anybody would start it; it shares the organiser's journal, and its database."""
        command = ("tutti.cli", "up", "--resource", "examples.meeting.organiser:calendar", "--json")
        deputy = await self._start("deputy", "examples.meeting.staging.perform", *command)
        await self._until(deputy.ready.is_set, "the deputy is ready")

    async def organise(self, subject: str, starts: datetime, room: str, *, by_train: bool) -> Player:
        """A publisher: a new process for each meeting."""
        options = ("--by-train",) if by_train else ()
        command = ("examples.meeting.organiser", subject, starts.isoformat(), room, *options)
        return await self._start("organiser", "examples.meeting.staging.perform", *command)

    async def _start(self, name: str, *command: str, environment: Mapping[str, str] | None = None) -> Player:
        own = {
            "TUTTI_DATA": str(self._folder / "bus"),
            "TUTTI_JOURNAL": str(self._folder / "bus"),
            "TUTTI_URL": "",
            "MEETING_POSTGRES": str(self._folder / "postgres"),
        }
        player = await Player.start(name, *command, hear=self._hear, environment=own | dict(environment or {}))
        self.players[name] = player
        return player

    def _hear(self, who: str, record: Mapping[str, Any]) -> None:
        found = entry(who, record)
        if found is not None:
            self._add(found)

    def stage(self, *who: str, sentence: str, died: bool = False) -> None:
        """Something that we do to them, or see of them."""
        if who:
            self._add(Entry(time.time(), who[0], "killed" if died else "staged", sentence, also=who[1:]))

    def _add(self, one: Entry) -> None:
        self.cast.meet(one)
        self._entries.append(one)
        self._tell(one)
        self._news.set()

    # The history

    def turn_page(self) -> None:
        """An episode begins. What is still said of earlier transactions is not part of it."""
        self._page = len(self._entries)
        self.notes.clear()

    @property
    def tx(self) -> str:
        """The transaction of this episode; empty before it began."""
        page = self._entries[self._page :]
        return next((one.tx for one in page if (one.who, one.step) == ("organiser", "invited")), "")

    @property
    def transactions(self) -> set[str]:
        """All that there were. Of earlier ones there may still be talk."""
        return {one.tx for one in self._entries if one.tx}

    def history(self) -> list[Entry]:
        tx = self.tx
        return [one for one in self._entries[self._page :] if one.tx == tx or one.step in STAGED]

    # Waiting

    async def until(self, who: str, step: str, **said: str) -> Entry:
        """The first such entry of this episode's transaction, when it is there."""

        def found() -> Entry | None:
            return next(
                (
                    one
                    for one in self.history()
                    if (one.who, one.step) == (who, step) and all(one.said.get(k) == v for k, v in said.items())
                ),
                None,
            )

        await self._until(lambda: found() is not None, f"{who}: {step}")
        one = found()
        assert one is not None  # noqa: S101  for the type checker: that was waited for
        return one

    async def _until(self, reached: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not reached():
            for player in self.players.values():
                if player.exit_code not in {None, 0, 1, -9}:
                    raise Cancelled(f"{player.name} ended with {player.exit_code}: {player.trouble}")
            if time.monotonic() > deadline:
                trouble = "; ".join(f"{p.name}: {p.trouble}" for p in self.players.values() if p.trouble)
                raise Cancelled(f"it took longer than {WAIT_SECONDS:g} seconds until {what}. {trouble}")
            self._news.clear()
            try:
                async with asyncio.timeout(0.1):
                    await self._news.wait()
            except TimeoutError:
                continue
