"""Where the drivers get the time from, so that a test can own it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    def monotonic(self) -> float:
        """Seconds that never go back: for waiting."""
        ...

    def wall(self) -> float:
        """Seconds since the epoch: for what people and other machines read."""
        ...

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Call back once `monotonic()` reaches `when`."""
        ...


class SystemClock:
    """The machine's own clock."""

    monotonic = staticmethod(time.monotonic)
    wall = staticmethod(time.time)

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        loop = asyncio.get_running_loop()
        return loop.call_later(max(0.0, when - time.monotonic()), callback)
