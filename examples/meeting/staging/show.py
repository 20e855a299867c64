"""The play, from beginning to end."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from examples.meeting.staging.episodes import EPISODES, Episode
from examples.meeting.staging.stage import Stage
from examples.meeting.staging.theatre import Theatre
from examples.meeting.staging.timeline import STAGED, Entry, rows
from examples.meeting.staging.verdict import Verdict, verdict

LATE_SECONDS: Final = 0.4  # so long a log record may take to reach us, without appearing in the wrong place
_TICK_SECONDS: Final = 0.1


class Show:
    def __init__(self, folder: Path, stage: Stage) -> None:
        self._folder = folder
        self._stage = stage
        self._waiting: list[Entry] = []
        self._theatre = Theatre(folder, self._waiting.append)

    async def play(self) -> list[Verdict]:
        self._stage.introduce()
        began = time.monotonic()
        async with self._theatre as theatre:
            self._stage.ready(time.monotonic() - began)
            self._waiting.clear()
            return [await self._play(theatre, episode) for episode in EPISODES]

    async def _play(self, theatre: Theatre, episode: Episode) -> Verdict:
        theatre.turn_page()
        self._stage.begin(episode)
        before = await theatre.databases.rows(episode.starts)
        async with self._live():
            wrong = await episode.play(theatre, episode.starts)
            await self._settled(theatre, episode)
        after = await theatre.databases.rows(episode.starts)
        prepared = await theatre.databases.prepared()
        found = verdict(episode, after, prepared, theatre.history(), wrong)
        self._stage.end(episode, before, after, found, theatre.notes)
        return found

    async def _settled(self, theatre: Theatre, episode: Episode) -> None:
        """Decisions travel for a moment after the organiser was told. What has not settled by then is left to the
        verdict."""
        deadline = time.monotonic() + 15.0
        while time.monotonic() < deadline:
            if await theatre.databases.rows(episode.starts) == episode.rows and not await theatre.databases.prepared():
                return
            await asyncio.sleep(_TICK_SECONDS)

    @contextlib.asynccontextmanager
    async def _live(self) -> AsyncIterator[None]:
        """Show what comes in while the block runs, in the order in which it happened."""
        ticking = asyncio.create_task(self._tick())
        try:
            yield
            await asyncio.sleep(LATE_SECONDS)
        finally:
            ticking.cancel()
            await asyncio.gather(ticking, return_exceptions=True)
            self._flush(time.time())

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            self._flush(time.time() - LATE_SECONDS)

    def _flush(self, until: float) -> None:
        due = [entry for entry in self._waiting if entry.time <= until]
        if due:
            self._waiting[:] = [entry for entry in self._waiting if entry.time > until]
            ours = [entry for entry in due if entry.tx == self._theatre.tx or entry.step in STAGED]
            self._stage.show(rows(ours, self._theatre.cast))
