"""Threads for the plain functions of one subscriber: as many as its policies let run at once.

They are not asyncio's own, which are few and which look up host names too: a handler that hangs holds up nobody else. A
thread cannot be stopped. One that is given up is replaced, and Python does not wait for it when the process ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from tutti.limits import THREADS_LOST_MAX_COUNT

THREAD_NAME: Final = "tutti-handler"


class Call:
    """A function on its way through a thread. `ended` tells what it raised, or None."""

    __slots__ = ("_loop", "_raised", "_work", "begun_at", "ended", "given_up", "returned")

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._loop = asyncio.get_running_loop()
        self._raised: BaseException | None = None
        self.begun_at: float | None = None  # by the system's monotonic clock
        self.ended: asyncio.Future[BaseException | None] = self._loop.create_future()
        self.given_up = self.returned = False  # guarded by the threads' lock

    def left(self, seconds: float) -> float:
        """How much of so many seconds it has left; they begin when the function does."""
        return seconds if self.begun_at is None else self.begun_at + seconds - time.monotonic()

    def run(self) -> None:
        self.begun_at = time.monotonic()
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 whoever called decides what it means
            self._raised = error
        del self._work  # what the handler was given is not kept until the next call

    def tell(self) -> None:
        """Tell whoever waits that it has run."""
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile: nobody waits
            self._loop.call_soon_threadsafe(self._tell, self._raised)

    def _tell(self, raised: BaseException | None) -> None:
        if not self.ended.done():
            self.ended.set_result(raised)


class Threads:
    """At most `most` at once, made when they are needed. After `close` the idle ones end, the others when they can."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._changed = threading.Condition()  # guards all that follows
        self._waiting: deque[Call] = deque()
        self._count = 0
        self._idle = 0
        self._lost = 0  # those of calls that were given up
        self._closed = False

    def call(self, work: Callable[[], object]) -> Call:
        call = Call(work)
        with self._changed:
            self._waiting.append(call)
            self._engage()
        return call

    def give_up(self, call: Call) -> None:
        """Nobody waits for it any more. If it has not begun, it never will; else another thread takes its place."""
        with self._changed:
            if call in self._waiting:
                self._waiting.remove(call)
            elif not call.returned:
                call.given_up = True
                self._lost += 1
                self._engage()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify_all()

    def _engage(self) -> None:
        self._changed.notify()
        room = self._count - self._lost < self._most and self._lost < THREADS_LOST_MAX_COUNT
        if len(self._waiting) > self._idle and room and not self._closed:
            self._count += 1
            threading.Thread(target=self._work, name=THREAD_NAME, daemon=True).start()

    def _work(self) -> None:
        call: Call | None = None
        while (call := self._next(call)) is not None:
            call.run()

    def _next(self, done: Call | None) -> Call | None:
        """Whoever waits for `done` is told when this thread is free again, so that the next call finds it so."""
        with self._changed:
            if done is not None:
                done.returned = True
                self._lost -= done.given_up
            replaced = self._count - self._lost > self._most
            self._idle += not replaced
            if done is not None:
                done.tell()
            if not replaced:
                while not self._waiting and not self._closed:
                    self._changed.wait()
                self._idle -= 1
                if self._waiting:
                    return self._waiting.popleft()
            self._count -= 1
            return None
