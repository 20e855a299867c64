"""Purging old events: by age and size as the user wants, never what a durable subscriber has still to read."""

from __future__ import annotations

import asyncio
import logging
import math
import random

import msgspec

from tutti.bus.port import StreamInfo
from tutti.errors import BusError
from tutti.limits import RETENTION_SWEEP_SECONDS
from tutti.model.decoding import UNDECODABLE
from tutti.runtime.catalogue import Stream
from tutti.runtime.context import Context
from tutti.runtime.positions import Positions, Registration, first_at
from tutti.runtime.transactions.holding import Holding

log = logging.getLogger("tutti.retention")


class Retention:
    """Every open bus sweeps now and then; purging twice removes nothing more."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._holding = Holding(context)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._work())
        self._task.add_done_callback(self._ended)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._context.failed(task)

    async def _work(self) -> None:
        while True:
            await asyncio.sleep(RETENTION_SWEEP_SECONDS * (0.5 + random.random()))  # processes take turns
            try:
                await self.sweep()
            except BusError as error:
                log.info("no sweep now: %s", error.what)
            except UNDECODABLE as error:  # who cannot be read may need anything: nothing is purged
                self._context.report(f"retention: a record of the state is unreadable: {error}")

    async def sweep(self) -> dict[str, int]:
        """Purge what may go; tells how many events went, by stream."""
        gone = {}
        for name, settings in (await self._context.catalogue.streams()).items():
            stream = self._context.layout.event_stream(name)
            info = await self._context.transport.stream_info(stream)
            if info is None or not info.messages or (settings.max_age is None and settings.max_bytes is None):
                continue
            below = min(await self._too_old(info, settings), await self._needed_from(stream, info.last + 1))
            if below > info.first:
                below = await self._holding.needed_from(name, info.first, below, await self._readers_on_commit())
            if below > info.first:
                gone[name] = await self._context.transport.purge(stream, below=below)
                log.info("stream %s: purged %d events below sequence %d", name, gone[name], below)
        return gone

    async def _too_old(self, info: StreamInfo, settings: Stream) -> int:
        """The first sequence that the user wants to keep."""
        keep = info.first
        if settings.max_age is not None:
            oldest = self._context.clock.wall() - settings.max_age
            keep = await first_at(self._context.transport, info.name, oldest)
        if settings.max_bytes is not None and info.bytes > settings.max_bytes:
            mean = info.bytes / info.messages
            keep = max(keep, info.first + math.ceil((info.bytes - settings.max_bytes) / mean))
        return keep

    async def _needed_from(self, stream: str, end: int) -> int:
        """The first sequence that some durable subscription has not read yet."""
        needed = end
        for registration in await registrations(self._context):
            if registration.stream == stream:
                position = await position_of(self._context, registration)
                needed = min(needed, position + 1) if position < end else 0  # beyond the end: of an earlier stream
        return needed

    async def _readers_on_commit(self) -> list[tuple[Registration, int]]:
        found = [known for known in await registrations(self._context) if known.scale > 1]
        return [(known, await position_of(self._context, known)) for known in found]


async def registrations(context: Context) -> list[Registration]:
    entries = await context.transport.state_list("subscription")
    return [msgspec.json.decode(entry.value, type=Registration) for entry in entries]


async def position_of(context: Context, registration: Registration) -> int:
    """Up to here the subscription has read in every partition."""
    entries = await context.transport.state_list(f"position.{registration.subscriber}")
    found = [msgspec.json.decode(entry.value, type=Positions).at for entry in entries]
    at = [positions[registration.subscription] for positions in found if registration.subscription in positions]
    return min(at) if len(at) == registration.partitions else min([registration.start, *at])
