"""Connections that are lent, for drivers that bring no pool of their own.

1. At most `size` are lent for work. Who finishes something that others wait for (`urgent`) may have `spare` more, so
   that it never waits for those who wait for it.
2. The connection that came back last is lent first: the others may be closed by whoever closes idle ones.
3. A pool does not look whether an idle connection lives. Who finds one dead discards it, and says whether the others
   are likely to be dead too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Pool(Generic[T]):
    """`wait`: seconds that `acquire` waits for a free one before it raises TimeoutError."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[T]],
        disconnect: Callable[[T], Awaitable[None]],
        *,
        size: int,
        spare: int,
        wait: float,
    ) -> None:
        self._connect = connect
        self._disconnect = disconnect
        self._size = size
        self._spare = spare
        self._wait = wait
        self._idle: list[T] = []
        self._lent = 0
        self._freed = asyncio.Event()

    async def acquire(self, *, urgent: bool) -> T:
        limit = self._size + (self._spare if urgent else 0)
        async with asyncio.timeout(self._wait):
            while self._lent >= limit:
                self._freed.clear()
                await self._freed.wait()
        self._lent += 1
        if self._idle:
            return self._idle.pop()
        try:
            return await self._connect()
        except BaseException:
            self._count_back()
            raise

    async def release(self, connection: T) -> None:
        try:
            if len(self._idle) < self._size:
                self._idle.append(connection)
            else:
                await self._disconnect(connection)
        finally:
            self._count_back()

    async def discard(self, connection: T, *, others_too: bool = False) -> None:
        doomed, self._idle = ([connection, *self._idle], []) if others_too else ([connection], self._idle)
        try:
            for each in doomed:
                await self._disconnect(each)
        finally:
            self._count_back()

    async def close(self) -> None:
        """Of those that are not lent."""
        idle, self._idle = self._idle, []
        for connection in idle:
            await self._disconnect(connection)

    def _count_back(self) -> None:
        """Never waits: who is cancelled while it gives back a connection must not keep its place."""
        self._lent -= 1
        self._freed.set()
