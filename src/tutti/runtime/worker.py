"""Handling messages of a queue: each goes to one taker, who settles it, hands it back, or buries it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence

from tutti.bus.port import Taken, Transport
from tutti.errors import BusError
from tutti.runtime.clock import Clock, Timer
from tutti.runtime.context import Context

log = logging.getLogger("tutti.queue")

WORKING_SECONDS = 1.5  # well below the silence after which a queue offers a message to somebody else

Verdict = float | None
"""None: the message is done, settle it. A number: hand it back, for another try after so many seconds."""


class Beat:
    """Says again and again, between `start` and `stop`, that somebody is at work on these messages: nobody else gets
    them."""

    def __init__(self, clock: Clock, taken: Sequence[Taken]) -> None:
        self._clock = clock
        self._taken = taken
        self._timer: Timer | None = None
        self._saying: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._timer = self._clock.call_at(self._clock.monotonic() + WORKING_SECONDS, self._beat)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._saying is not None:
            self._saying.cancel()

    def _beat(self) -> None:
        if self._saying is None or self._saying.done():  # else the bus is slow, or away
            self._saying = asyncio.get_running_loop().create_task(self._say())
        self.start()

    async def _say(self) -> None:
        with contextlib.suppress(BusError):  # then it will be offered again, and handled again
            await asyncio.gather(*(message.working() for message in self._taken))


class Hand:
    """What a worker has taken, to be handled together. A handler of lists may reach for more."""

    def __init__(self, worker: QueueWorker, taken: Sequence[Taken]) -> None:
        self._worker = worker
        self.taken = list(taken)

    async def more(self, most: int, wait: float) -> Sequence[Taken]:
        """At most `most` further messages, after at most `wait` seconds; none if the worker is to end."""
        taken = await self._worker.take(most, wait)
        self.taken.extend(taken)
        return taken


Handle = Callable[[Hand], Awaitable[Sequence[Verdict]]]
"""Handles what is in the hand, and says what becomes of each message, in the order in which they were taken."""


class QueueWorker:
    """Takes from one queue and calls `handle`, `concurrency` times side by side."""

    def __init__(self, context: Context, queue: str, handle: Handle, *, concurrency: int = 1, most: int = 1) -> None:
        self._context = context
        self._queue = queue
        self._handle = handle
        self._most = most
        self._concurrency = concurrency
        self._tasks: list[asyncio.Task[None]] = []
        self._holding = 0
        self._gathering = 0
        self._changed = asyncio.Event()
        self._ending = asyncio.Event()

    def start(self) -> None:
        for _ in range(self._concurrency):
            task = asyncio.get_running_loop().create_task(self._work())
            task.add_done_callback(self._ended)
            self._tasks.append(task)

    @property
    def idle(self) -> bool:
        """It holds no message."""
        return self._holding == 0

    @property
    def at_work(self) -> bool:
        """Messages are being handled, not only gathered."""
        return self._holding > self._gathering

    async def finish(self, timeout: float) -> bool:
        """Take nothing more, and wait for what is being handled."""
        self._ending.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self._holding:
                    self._changed.clear()
                    await self._changed.wait()
        finished = self._holding == 0
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        return finished

    async def take(self, most: int, wait: float) -> Sequence[Taken]:
        """For a hand that has room. Ends early when the worker is to end."""
        if self._ending.is_set():
            return ()
        loop = asyncio.get_running_loop()
        taking = loop.create_task(_taken(self._context.transport, self._queue, most, wait))
        ending = loop.create_task(self._ending.wait())
        self._gathering += 1
        try:
            await asyncio.wait([taking, ending], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._gathering -= 1
            ending.cancel()
            if not taking.done():
                taking.cancel()
        return taking.result() if taking.done() else ()

    async def _work(self) -> None:
        while not self._ending.is_set():
            try:
                taken = await self._context.transport.take(self._queue, max_messages=self._most)
            except BusError as error:
                log.warning("queue %s: %s; trying again", self._queue, error.what)
                await asyncio.sleep(0.5)
                continue
            if not taken:
                continue
            self._holding += 1
            try:
                await self._settle(Hand(self, taken))
            except BusError as error:
                log.warning("queue %s: %s; the message will be offered again", self._queue, error.what)
            finally:
                self._holding -= 1
                self._changed.set()

    async def _settle(self, hand: Hand) -> None:
        beat = Beat(self._context.clock, hand.taken)
        beat.start()
        try:
            verdicts = await self._handle(hand)
        except asyncio.CancelledError:
            await asyncio.shield(asyncio.gather(*(t.hand_back() for t in hand.taken), return_exceptions=True))
            raise
        finally:
            beat.stop()
        told = (_tell(message, verdict) for message, verdict in zip(hand.taken, verdicts, strict=True))
        for outcome in await asyncio.gather(*told, return_exceptions=True):
            if isinstance(outcome, BusError):
                log.warning("queue %s: %s; the message will be offered again", self._queue, outcome.what)
            elif outcome is not None:
                raise outcome

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._context.failed(task)


async def _taken(transport: Transport, queue: str, most: int, wait: float) -> Sequence[Taken]:
    try:
        return await transport.take(queue, max_messages=most, wait=wait)
    except BusError:
        return ()  # what is in the hand is handled without them


async def _tell(message: Taken, verdict: Verdict) -> None:
    if verdict is None:
        await message.settle()
    else:
        await message.hand_back(delay=verdict)
