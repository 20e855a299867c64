"""The manager as a service, for real: `tutti up`, a publisher without a journal, PostgreSQL; what kills do to it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psycopg
import pytest

from tests.end_to_end.test_cli import PATIENCE_SECONDS, Running, Shop
from tutti.resources.embedded_postgres import EmbeddedPostgres

MODULE: Final = """
import asyncio
import os
import sys

import tutti
from tutti.resources.postgres.asyncpg import AsyncpgResource


class Step(tutti.Event):
    slow: bool = False


class Pledge(tutti.TxType, events=[Step]):
    pass


orders = AsyncpgResource("orders", os.environ["ORDERS"])
team = tutti.Subscriber("team")


@team.join(Pledge)
async def always(_):
    return True


@team.on(Step)
async def step(event, tx):
    while event.slow:
        await asyncio.sleep(1)


def say(word):
    print('{"publisher": "%s"}' % word, flush=True)


async def publish(slow):
    async with tutti.connect(manager="service", resources=[orders]) as bus:
        await bus.advertise(Step)
        try:
            async with bus.transaction(Pledge(), census=tutti.Census(at_most=1)) as tx:
                db = await tx.enlist(orders)
                await db.execute("insert into orders values ($1)", tx.id)
                await tx.publish(Step(slow))
                say("published")
                await tx.commit(timeout=50)
                say("committed")
        except tutti.TransactionAborted as error:
            say("aborted: " + error.reason)


if __name__ == "__main__":
    asyncio.run(publish(sys.argv[1] == "slow"))
"""


@pytest.fixture(scope="module")
def database(postgres: EmbeddedPostgres) -> str:
    postgres.create_database("serviced")
    with psycopg.connect(postgres.url("serviced"), autocommit=True) as connection:
        connection.execute("create table orders (tx text)")
    return postgres.url("serviced")


@pytest.fixture
def shop(tmp_path: Path, database: str) -> Shop:
    shop = Shop(tmp_path)
    shop.environment["ORDERS"] = database
    (tmp_path / "pledge.py").write_text(MODULE)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("truncate orders")
    return shop


@contextmanager
def publishing(shop: Shop, pace: str) -> Iterator[Running]:
    process = subprocess.Popen(
        [sys.executable, "pledge.py", pace], cwd=shop.folder, env=shop.environment, stdout=subprocess.PIPE, text=True
    )
    running = Running(process)
    try:
        yield running
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        running.out.close()


UP: Final = ("up", "--resource", "pledge:orders")


def rows(database: str, query: str) -> list[str]:
    with psycopg.connect(database, autocommit=True) as connection:
        return [str(row[0]) for row in connection.execute(query).fetchall()]


def wait_for(database: str, query: str, count: int) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while len(rows(database, query)) != count:
        assert time.monotonic() < until, f"{query}: {rows(database, query)}"
        time.sleep(0.02)


PREPARED: Final = "select gid from pg_prepared_xacts where database = 'serviced'"


def test_a_publisher_without_a_journal_commits(shop: Shop, database: str) -> None:
    with shop.start(*UP) as up, shop.start("run", "pledge:team") as team:
        assert up.line()["journal"]
        assert team.line()["ready"]
        with publishing(shop, "quick") as publisher:
            assert publisher.line() == {"publisher": "published"}
            assert publisher.line() == {"publisher": "committed"}
        wait_for(database, "select tx from orders", 1)
        assert rows(database, PREPARED) == []
        assert team.end() == 0
        assert up.end(signal.SIGINT) == 0


def test_a_publisher_that_is_killed_is_finished_by_the_service(shop: Shop, database: str) -> None:
    with shop.start(*UP) as up, shop.start("run", "pledge:team") as team:
        assert up.line()["ready"]
        assert team.line()["ready"]
        with publishing(shop, "slow") as publisher:
            assert publisher.line() == {"publisher": "published"}
            wait_for(database, PREPARED, 1)
            publisher.end(signal.SIGKILL)
        wait_for(database, PREPARED, 0)
        assert rows(database, "select tx from orders") == []
        team.end(signal.SIGKILL)
        up.end()


def test_a_service_that_is_killed_is_succeeded_by_another(shop: Shop, database: str) -> None:
    with shop.start(*UP) as other, shop.start("run", "pledge:team") as team:
        assert other.line()["ready"]
        assert team.line()["ready"]
        with shop.start(*UP) as up:
            assert up.line()["ready"]
            with publishing(shop, "slow") as publisher:
                assert publisher.line() == {"publisher": "published"}
                wait_for(database, PREPARED, 1)
                up.end(signal.SIGKILL)
                other.end(signal.SIGKILL)  # whichever of them managed it
                with shop.start(*UP) as third:
                    assert third.line()["ready"]
                    assert publisher.line() == {"publisher": "aborted: its manager is gone"}
                    wait_for(database, PREPARED, 0)
                    assert rows(database, "select tx from orders") == []
                    team.end(signal.SIGKILL)
                    third.end()
