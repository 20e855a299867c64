"""What happens next: the world's one clock, and everything that is due. Ties are kept in the order of their entry."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class Agenda:
    """`steps` counts what has happened."""

    __slots__ = ("_due", "_ticket", "now", "steps")

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._ticket = 0
        self.now = 0.0
        self.steps = 0

    def at(self, time: float, act: Callable[[], None]) -> None:
        self._ticket += 1
        heapq.heappush(self._due, (max(time, self.now), self._ticket, act))

    def later(self, delay: float, act: Callable[[], None]) -> None:
        self.at(self.now + delay, act)

    def step(self, until: float) -> bool:
        """Whether there was something to do before `until`; if not, it is `until` now."""
        if not self._due or self._due[0][0] > until:
            self.now = max(self.now, until)
            return False
        self.now, _, act = heapq.heappop(self._due)
        self.steps += 1
        act()
        return True
