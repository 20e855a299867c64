"""Have we had this one?

The bus keeps an event that is published twice from being stored twice, within its own window. What slips through (a
publisher that tried again after that window, another stream, a replay) is filtered here, within a window of ours. One
`Duplicates` for each partition while it is ours: what is read again after a change of owner is not a duplicate.

1. An identity that was seen in the last `window` seconds has been had, and is not counted anew.
2. At most `limit` identities are remembered; the oldest go first.
3. Time never runs backwards here: an earlier `now` counts as the latest one.

The life of an identity: unknown → remembered → unknown (its time is over, or younger ones took its place).
"""

from __future__ import annotations

from collections import deque

from tutti.errors import invariant
from tutti.limits import DUPLICATE_WINDOW_SECONDS, DUPLICATES_MAX_COUNT


class Duplicates:
    __slots__ = ("_limit", "_line", "_now", "_remembered", "_window")

    def __init__(self, limit: int = DUPLICATES_MAX_COUNT, window: float = DUPLICATE_WINDOW_SECONDS) -> None:
        invariant(limit >= 1, f"a window for duplicates holds at least one identity, not {limit}")
        self._limit = limit
        self._window = window
        self._remembered: set[str] = set()
        self._line: deque[tuple[float, str]] = (
            deque()
        )  # the same identities, in the order in which they will be forgotten
        self._now = float("-inf")

    def __len__(self) -> int:
        return len(self._line)

    def seen(self, identity: str, now: float) -> bool:
        """Whether this one was there before. If not, it is from now on."""
        if now > self._now:
            self._now = now
            if self._line and self._line[0][0] <= now - self._window:
                self._forget(now - self._window)
        if identity in self._remembered:
            return True
        if len(self._line) >= self._limit:
            self._remembered.discard(self._line.popleft()[1])
        self._remembered.add(identity)
        self._line.append((self._now, identity))
        return False

    def _forget(self, before: float) -> None:
        line = self._line
        while line and line[0][0] <= before:
            self._remembered.discard(line.popleft()[1])

    def check(self) -> None:
        """Raises `InvariantViolated` if the state contradicts itself."""
        invariant(len(self._line) <= self._limit, "more identities than the limit")
        invariant({identity for _, identity in self._line} == self._remembered, "line and set differ")
        invariant(len(self._line) == len(self._remembered), "an identity stands in line twice")
        times = [time for time, _ in self._line]
        invariant(times == sorted(times), "the line is out of order")
        invariant(not times or times[0] > self._now - self._window, "an identity outlived the window")
