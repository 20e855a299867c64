"""A time limit for one call after another.

`asyncio.timeout` sets a timer for every call and takes it back after it, which costs more than most handlers. Here a
timer that is set stays: when it goes off it looks whether the call under way is late, and is set anew if it is not.
"""

from __future__ import annotations

import asyncio
from math import inf
from types import TracebackType
from typing import Self


class TimeLimit:
    """For one task, which enters it around each call:

        with limit:
            await something()

    raises `TimeoutError` out of the block if it took longer than `seconds`, and `expired` then says that it was this
    limit. After the last call it must be closed."""

    __slots__ = ("_cancelling", "_deadline", "_loop", "_task", "_time", "_timer", "expired", "seconds")

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self.expired = False
        self._loop = asyncio.get_running_loop()
        self._time = self._loop.time
        self._task = asyncio.current_task()
        self._cancelling = 0
        self._deadline = inf  # no call is under way
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        self.expired = False
        if self.seconds is not None and self._task is not None:
            self._cancelling = self._task.cancelling()
            self._deadline = self._time() + self.seconds
            if self._timer is None:
                self._timer = self._loop.call_at(self._deadline, self._look)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._deadline = inf
        if (
            self.expired
            and self._task is not None
            and self._task.uncancel() <= self._cancelling
            and kind is asyncio.CancelledError
        ):
            raise TimeoutError from error

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        if self._deadline == inf:
            return  # the next call sets it
        if self._deadline > self._loop.time():
            self._timer = self._loop.call_at(self._deadline, self._look)
        elif self._task is not None:
            self._deadline = inf
            self.expired = True
            self._task.cancel()
