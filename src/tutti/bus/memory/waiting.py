"""How one waits here: at a bell that somebody rings, or for the outcome of a future."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from tutti.bus.memory.clock import NEVER, Clock
from tutti.errors import BusError

_Result = TypeVar("_Result")


class Bell:
    """Wakes everybody who waits at it; who is woken looks again for what they wait for."""

    __slots__ = ("_sleepers",)

    def __init__(self) -> None:
        self._sleepers: set[asyncio.Future[None]] = set()

    @property
    def awaited(self) -> bool:
        return bool(self._sleepers)

    def ring(self) -> None:
        if self._sleepers:
            for sleeper in self._sleepers:
                if not sleeper.done():
                    sleeper.set_result(None)
            self._sleepers.clear()

    async def wait(self, clock: Clock, deadline: float | None, other: Bell | None = None) -> None:
        """Returns when this bell (or the other) rings, or at the deadline."""
        sleeper: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        bells = (self,) if other is None else (self, other)
        for bell in bells:
            bell._sleepers.add(sleeper)
        timer = NEVER if deadline is None else clock.call_at(deadline, lambda: conclude(sleeper, None))
        try:
            await sleeper
        finally:
            timer.cancel()
            for bell in bells:
                bell._sleepers.discard(sleeper)


def conclude(future: asyncio.Future[_Result], outcome: _Result | BusError) -> None:
    if future.done():
        return
    if isinstance(outcome, BusError):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
