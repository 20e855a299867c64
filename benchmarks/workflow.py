"""The same two writes as a DBOS workflow, in a process of its own: durable, each of them once, and without one outcome.

`python -m benchmarks.workflow WAY SYSTEM URL URL` writes "ready"; then, for each line of its input with a number of
seconds, how many workflows a second it ran, CONCURRENCY at a time. WAY is one of two that the documentation of DBOS
recommends: "datasource" (a transaction that records its result beside the row) or "steps" (asyncpg in a step).
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

import asyncpg
import sqlalchemy as sa
from dbos import DBOS, AsyncSQLAlchemyDatasource, DBOSConfig

from benchmarks.journeys import CONCURRENCY, INSERT, TRAVELLER

Workflow = Callable[[int], Awaitable[None]]


async def with_datasources(urls: list[str]) -> Workflow:
    insert = sa.text("INSERT INTO booking (number, traveller) VALUES (:number, :traveller)")
    settings = {"pool_size": CONCURRENCY, "max_overflow": 0}
    sources = [
        await AsyncSQLAlchemyDatasource.create(
            url.replace("postgresql:", "postgresql+asyncpg:"), engine_kwargs=settings
        )
        for url in urls
    ]

    def booking(source: AsyncSQLAlchemyDatasource, name: str) -> Workflow:
        @source.transaction(name=name)
        async def book(number: int) -> None:
            await source.sql_session().execute(insert, {"number": number, "traveller": TRAVELLER})

        return book

    first, second = (booking(source, f"book-{number}") for number, source in enumerate(sources))

    @DBOS.workflow()
    async def journey(number: int) -> None:
        await asyncio.gather(first(number), second(number))

    return journey


async def with_steps(urls: list[str]) -> Workflow:
    pools = [await asyncpg.create_pool(url, min_size=CONCURRENCY, max_size=CONCURRENCY) for url in urls]

    def booking(pool: Any, name: str) -> Workflow:
        @DBOS.step(name=name)
        async def book(number: int) -> None:
            await pool.execute(INSERT, number, TRAVELLER)

        return book

    first, second = (booking(pool, f"book-{number}") for number, pool in enumerate(pools))

    @DBOS.workflow()
    async def journey(number: int) -> None:
        await asyncio.gather(first(number), second(number))

    return journey


WAYS = {"datasource": with_datasources, "steps": with_steps}


async def serve(way: str, urls: list[str]) -> None:
    journey = await WAYS[way](urls)
    DBOS.launch()
    numbers = count(1)
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        started = time.perf_counter()
        until, done = started + float(line), 0

        async def work(until: float = until) -> int:
            done = 0
            while time.perf_counter() < until:
                await journey(next(numbers))
                done += 1
            return done

        done = sum(await asyncio.gather(*(work() for _ in range(CONCURRENCY))))
        print(done, done / (time.perf_counter() - started), flush=True)


def main() -> int:
    way, system, *urls = sys.argv[1:]
    config: DBOSConfig = {
        "name": "tutti-bench",
        "system_database_url": system.replace("postgresql:", "postgresql+psycopg:"),
        "sys_db_pool_size": CONCURRENCY,
        "log_level": "ERROR",
        "application_version": "1",
    }
    DBOS(config=config)
    asyncio.run(serve(way, urls))
    DBOS.destroy()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
