"""A clock that stands still until the test moves it."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count


class ManualClock:
    """Fits `tutti.bus.memory.Clock` and `tutti.runtime.clock.Clock`. Time passes only in `advance`, which calls back
    whoever is due, in order of their time, each at its own moment. What they wake runs when the test next awaits."""

    def __init__(self, *, wall: float = 1_700_000_000.0) -> None:
        self._now = 0.0
        self._wall_at_start = wall
        self._timers: list[tuple[float, int, ManualTimer]] = []
        self._order = count()

    def monotonic(self) -> float:
        return self._now

    def wall(self) -> float:
        return self._wall_at_start + self._now

    def call_at(self, when: float, callback: Callable[[], None]) -> ManualTimer:
        timer = ManualTimer(callback)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    @property
    def due(self) -> float | None:
        """When the next timer fires; None if nobody waits."""
        while self._timers and self._timers[0][2].cancelled:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def advance(self, seconds: float) -> None:
        end = self._now + seconds
        while self._timers and self._timers[0][0] <= end:
            when, _, timer = heapq.heappop(self._timers)
            self._now = max(self._now, when)
            timer.fire()
        self._now = end


class ManualTimer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self._callback = None

    @property
    def cancelled(self) -> bool:
        return self._callback is None

    def fire(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()
