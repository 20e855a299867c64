"""A record is removed from the log behind Tutti's back: that must be noticed, and told which.

Two ways to meet the hole: a subscriber that reads on across it, and one that begins anew right behind it, so that it
has nothing to compare with but the log itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

import msgspec

import tutti
from tests.chaos.workload import STREAM, Tick

PUBLISHED: Final = 30
REMOVED: Final = 14  # the number of the event
NOTICED_SECONDS: Final = 10.0

How = Literal["reads across it", "begins behind it"]


class Loss(msgspec.Struct, frozen=True):
    how: How
    missing: int  # tutti_missing_total
    handled: tuple[int, ...]
    told: tuple[str, ...]  # what the log says

    @property
    def ok(self) -> bool:
        """One event is missing, said so once, by name; the others were handled in order."""
        expected = tuple(number for number in range(1, PUBLISHED + 1) if number != REMOVED)
        return self.missing == 1 and self.handled == expected and len(self.told) == 1


class _Told(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


async def run(folder: Path) -> list[Loss]:
    return [await _lose(folder / "across", "reads across it"), await _lose(folder / "behind", "begins behind it")]


async def _lose(folder: Path, how: How) -> Loss:
    told = _Told()
    logger = logging.getLogger("tutti.continuity")
    logger.addHandler(told)
    logger.propagate = False
    handled: list[int] = []
    reader = tutti.Subscriber("reader")

    @reader.on(Tick, start="earliest")
    async def tick(event: Tick) -> None:
        handled.append(event.number)

    try:
        async with tutti.connect(data=folder, name="writer") as bus:
            await bus.advertise(Tick)
            if how == "begins behind it":
                async with bus.serve(reader):
                    await _publish(bus, 1, REMOVED - 1)
                    await _until(lambda: len(handled) == REMOVED - 1)
                await _publish(bus, REMOVED, PUBLISHED)
            else:
                await _publish(bus, 1, PUBLISHED)
            stream = bus.context.layout.event_stream(STREAM)
            assert await bus.context.transport.remove(stream, REMOVED)
            async with bus.serve(reader):
                await _until(lambda: len(handled) >= PUBLISHED - 1 and bool(told.lines))
            return Loss(how, bus.metrics.total("tutti_missing_total"), tuple(handled), tuple(told.lines))
    finally:
        logger.removeHandler(told)
        logger.propagate = True


async def _publish(bus: tutti.Bus, first: int, last: int) -> None:
    """All on one subject: alone in the log, an event's number is its sequence."""
    for number in range(first, last + 1):
        await bus.publish(Tick("alps", "a0", "writer", number))


async def _until(condition: Callable[[], bool]) -> None:
    """Wait for it, but not for ever: what did not come is for the checker to say."""
    deadline = asyncio.get_running_loop().time() + NOTICED_SECONDS
    while not condition() and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(0.01)
