"""The baseline: two-phase commit over both databases, written by hand in the process that wants it. No messages, no
journal: if this process dies between the two phases, nobody knows what to do with what is prepared."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from typing import Any, Self

import asyncpg

from benchmarks.journeys import CONCURRENCY, INSERT, TRAVELLER


class ByHand:
    """A pool for each database, as large as ours, and warm."""

    def __init__(self, databases: tuple[str, ...]) -> None:
        self._databases = databases
        self._pools: list[Any] = []
        self.done = 0
        self._run = secrets.token_hex(4)

    async def __aenter__(self) -> Self:
        for url in self._databases:
            self._pools.append(await asyncpg.create_pool(url, min_size=CONCURRENCY, max_size=CONCURRENCY))
        return self

    async def __aexit__(self, *_: object) -> None:
        for pool in self._pools:
            await pool.close()

    async def one(self) -> float:
        """When it was committed on both. Giving the connections back is not waited for."""
        self.done += 1
        number = self.done
        gids = [f"by-hand-{self._run}-{number}-{place}" for place in range(len(self._pools))]
        async with contextlib.AsyncExitStack() as stack:
            connections = [await stack.enter_async_context(pool.acquire()) for pool in self._pools]
            both = list(zip(connections, gids, strict=True))
            await asyncio.gather(*(_prepare(connection, gid, number) for connection, gid in both))
            await asyncio.gather(*(connection.execute(f"COMMIT PREPARED '{gid}'") for connection, gid in both))
            return time.perf_counter()


async def _prepare(connection: Any, gid: str, number: int) -> None:
    await connection.execute("BEGIN")
    await connection.execute(INSERT, number, TRAVELLER)
    await connection.execute(f"PREPARE TRANSACTION '{gid}'")
