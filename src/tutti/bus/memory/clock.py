"""Where the cluster gets its time from."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, Protocol


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    """Where the cluster gets its time from; `tutti.testing.clock.ManualClock` is one that a test moves."""

    def monotonic(self) -> float: ...
    def wall(self) -> float: ...
    def call_at(self, when: float, callback: Callable[[], None]) -> Timer: ...


class LoopClock:
    """The clock of the event loop, and the machine's own for what people read."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        return time.time()

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        return asyncio.get_running_loop().call_at(when, callback)


class _Never:
    """A timer that was never set."""

    def cancel(self) -> None:
        return None


NEVER: Final[Timer] = _Never()
