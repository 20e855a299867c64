"""The tasks that call handlers: as many as calls may run at once, each carrying out one call after another."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from tutti.flow.dispatcher import Run
from tutti.runtime.timelimit import TimeLimit


class Crew:
    """`work` carries out calls, which it takes from the line itself, within the time limit; it returns when the line is
    empty or its slice of time is over. `ended` hears of every task that ends. Whoever makes a crew must close it."""

    def __init__(
        self,
        most: int,
        handler_timeout: float | None,
        work: Callable[[deque[Run], TimeLimit], Awaitable[None]],
        ended: Callable[[asyncio.Task[None]], None],
    ) -> None:
        self._most = most
        self._handler_timeout = handler_timeout
        self._work = work
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
            worker = asyncio.get_running_loop().create_task(self._serve())
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)
            worker.add_done_callback(self._ended)

    async def close(self) -> None:
        workers = list(self._workers)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

    async def _serve(self) -> None:
        limit = TimeLimit(self._handler_timeout)
        try:
            while True:
                if self._runs:
                    await self._work(self._runs, limit)
                    if self._runs:
                        await asyncio.sleep(0)  # handlers that never wait must not starve the loop
                else:
                    idle: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    self._idle.append(idle)
                    await idle
        finally:
            limit.close()
