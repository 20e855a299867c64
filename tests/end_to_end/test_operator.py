"""A participant is killed after its yes. The operator sees it, finishes its branch by hand, and sees what it was worth:
real processes, a real server, a real PostgreSQL."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

from tests.end_to_end.test_cli import PATIENCE_SECONDS, Running, Shop
from tutti.resources.embedded_postgres import EmbeddedPostgres

MODULE: Final = """
import asyncio
import os

import tutti
from tutti.resources.postgres.psycopg import PsycopgResource


class Invitation(tutti.Event):
    room: str


class Meeting(tutti.TxType, events=[Invitation]):
    subject: str


calendar = PsycopgResource("calendar", os.environ["CALENDAR"])
rooms = tutti.Subscriber("rooms", resources=[calendar])


@rooms.join(Meeting)
async def always(_):
    return True


@rooms.on(Invitation)
async def book(event, tx):
    db = await tx.enlist(calendar)
    await db.execute("insert into booked values (%s)", (event.room,))


async def publish():
    async with tutti.connect() as bus:
        await bus.advertise(Invitation)
        async with bus.transaction(Meeting("DSOnline"), census=tutti.Census(at_most=1), deadline=600) as tx:
            await tx.publish(Invitation("FW26"), last=True)
            print('{"tx": "%s"}' % tx.id, flush=True)
            await asyncio.to_thread(input)  # it makes up its mind for a long time
            try:
                await tx.commit()
            except tutti.TransactionAborted as error:
                print('{"aborted": "%s"}' % error.reason, flush=True)


if __name__ == "__main__":
    asyncio.run(publish())
"""


@pytest.fixture
def database(postgres: EmbeddedPostgres) -> str:
    postgres.create_database("operated")
    with psycopg.connect(postgres.url("operated"), autocommit=True) as connection:
        connection.execute("create table booked (room text)")
    return postgres.url("operated")


@pytest.fixture
def shop(tmp_path: Path, database: str) -> Shop:
    shop = Shop(tmp_path)
    shop.environment["CALENDAR"] = database
    (tmp_path / "meeting.py").write_text(MODULE)
    return shop


@contextmanager
def publishing(shop: Shop) -> Iterator[Running]:
    process = subprocess.Popen(
        [sys.executable, "meeting.py"],
        cwd=shop.folder,
        env=shop.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    running = Running(process)
    try:
        yield running
    finally:
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()
        running.out.close()


def asked(database: str, query: str) -> list[str]:
    with psycopg.connect(database, autocommit=True) as connection:
        return [str(row[0]) for row in connection.execute(query).fetchall()]


def until(question: Callable[[], Any], wanted: Callable[[Any], object]) -> Any:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not wanted(answer := question()):
        assert time.monotonic() < deadline, answer
        time.sleep(0.05)
    return answer


PREPARED: Final = "select gid from pg_prepared_xacts where database = 'operated'"


def test_a_branch_in_doubt_is_resolved_shown_and_forgotten(shop: Shop, database: str) -> None:
    def listed() -> list[Any]:
        found: list[Any] = shop.ask("tx", "ls")["transactions"]
        return found

    with shop.start("up") as up:
        assert up.line()["ready"]
        with shop.start("run", "meeting:rooms") as rooms:
            assert rooms.line()["ready"]
            with publishing(shop) as publisher:
                tx = publisher.line()["tx"]
                until(lambda: asked(database, PREPARED), lambda found: found == [f"tutti:rooms:{tx}:calendar-1"])
                until(listed, lambda found: [part["state"] for part in found[0]["parts"]] == ["in doubt"])
                assert listed()[0]["state"] == "active", "everybody lives"
                rooms.process.kill()

                [seen] = until(listed, lambda found: found[0]["state"] == "in doubt")
                assert (seen["tx"], seen["type"], seen["members"]) == (tx, "Meeting", 1)
                assert (seen["parts"][0]["subscriber"], seen["parts"][0]["lives"]) == ("rooms", False)
                with shop.start("tx", "watch") as watch:
                    assert watch.line()["transaction"]["tx"] == tx
                    assert watch.end(signal.SIGINT) == 130

                waiting = shop.run("tx", "resolve", tx, "commit")
                assert (waiting.returncode, asked(database, PREPARED) != []) == (1, True)
                assert "--resources" in waiting.stdout
                done = shop.ask("tx", "resolve", tx, "commit", "--resources", "meeting:calendar")
                assert [(one["place"], one["done"]) for one in done["branches"]] == [("rooms", True)]
                assert (asked(database, PREPARED), asked(database, "select room from booked")) == ([], ["FW26"])
                assert listed()[0]["heuristics"] == ["rooms"]
                assert shop.run("tx", "forget", tx).returncode == 1, "the decision is to be compared with it"

                assert shop.ask("tx", "abort", tx, "--reason", "enough")["told"]
                assert publisher.process.stdin is not None
                publisher.process.stdin.write("\n")
                publisher.process.stdin.flush()
                assert "enough" in publisher.line()["aborted"]

        with shop.start("run", "meeting:rooms") as rooms:
            assert rooms.line()["ready"]
            shown = until(lambda: shop.ask("tx", "show", tx), lambda found: found["resolutions"][0]["decided"])
            assert shown["exceptions"] == ["rooms was finished by hand as commit; decided was abort"]
            assert "resolved to commit by" in json.dumps(shown["moments"])
            assert rooms.end() == 0
        assert up.end(signal.SIGINT) == 0

    # Nothing runs any more: the journal alone answers.
    assert [one["heuristics"] for one in listed()] == [["rooms"]]
    assert "decided was abort" in shop.run("tx", "show", tx).stdout
    assert shop.ask("tx", "forget", tx)["places"] == ["rooms"]
    assert tx not in [one["tx"] for one in listed() if one["heuristics"]]
    assert shop.ask("tx", "show", tx)["resolutions"] == []
