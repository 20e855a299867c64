"""The tasks that call handlers: as many as calls may run at once, each taking one call after another."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from tutti.flow.dispatcher import Run
from tutti.limits import HANDLE_SLICE_SECONDS
from tutti.runtime.clock import Clock
from tutti.runtime.timelimit import TimeLimit


class Crew:
    """`call` carries out one call within the time limit and returns when it ended; `ended` hears of every task that
    ends. Whoever makes a crew must close it."""

    def __init__(
        self,
        most: int,
        handler_timeout: float | None,
        clock: Clock,
        call: Callable[[Run, TimeLimit], Awaitable[float]],
        ended: Callable[[asyncio.Task[None]], None],
    ) -> None:
        self._most = most
        self._handler_timeout = handler_timeout
        self._clock = clock
        self._call = call
        self._ended = ended
        self._runs: deque[Run] = deque()
        self._workers: set[asyncio.Task[None]] = set()
        self._idle: list[asyncio.Future[None]] = []

    def take(self, run: Run) -> None:
        """Carry it out, as soon as a worker is free. Never more at once than there may be workers."""
        self._runs.append(run)
        if self._idle:
            idle = self._idle.pop()
            if not idle.done():
                idle.set_result(None)
        elif len(self._workers) < self._most:
            worker = asyncio.get_running_loop().create_task(self._work())
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)
            worker.add_done_callback(self._ended)

    async def close(self) -> None:
        workers = list(self._workers)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

    async def _work(self) -> None:
        limit = TimeLimit(self._handler_timeout)
        slice_ends = 0.0
        try:
            while True:
                if not self._runs:
                    idle: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    self._idle.append(idle)
                    await idle
                    slice_ends = self._clock.monotonic() + HANDLE_SLICE_SECONDS
                    continue
                now = await self._call(self._runs.popleft(), limit)
                if now > slice_ends:  # handlers that never wait must not starve the loop
                    await asyncio.sleep(0)
                    slice_ends = self._clock.monotonic() + HANDLE_SLICE_SECONDS
        finally:
            limit.close()
