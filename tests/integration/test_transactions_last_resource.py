"""SQLite as a publisher's last resource, whose process is killed with SIGKILL around its commit: the marker decides."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.integration.transaction_stage import Stage, all_idle, decision, serving, until
from tutti.resources.sqlite import SqliteResource

ROOT: Final = Path(__file__).parents[2]
PUBLISHER: Final = """
import asyncio, os, signal, sys
import tutti
from tests.integration.transaction_stage import Invitation, meeting
from tutti.resources.sqlite import SqliteResource, SqliteWork

url, namespace, journal, path, when = sys.argv[1:]
commit_last = SqliteWork.commit_last

async def dies(work):
    if when == "after":
        await commit_last(work)
    os.kill(os.getpid(), signal.SIGKILL)

async def main():
    options = tutti.NatsOptions(urls=(url,), synced=True)
    async with tutti.connect(url, namespace=namespace, options=options, journal=journal) as bus:
        await bus.advertise(Invitation)
        notes = SqliteResource("notes", path)
        async with meeting(bus, 1) as tx:
            await (await tx.enlist(notes)).execute("insert into booked values ('mine')")
            await tx.publish(Invitation("FW26"))
            SqliteWork.commit_last = dies
            print(tx.id, flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize(("when", "outcome"), [("before", "abort"), ("after", "commit")])
async def test_the_marker_decides_for_a_publisher_that_was_killed(stage: Stage, when: str, outcome: str) -> None:
    path, journal = stage.folder / "notes.db", stage.folder / "journal"
    with sqlite3.connect(path) as database:
        database.execute("create table booked (room text)")
    member, served = await stage.member("rooms"), await stage.bus()
    async with serving(served, member):
        words = (stage.url, stage.namespace, str(journal), str(path), when)
        publisher = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PUBLISHER, *words, cwd=ROOT, stdout=asyncio.subprocess.PIPE
        )
        said, _ = await publisher.communicate()
        assert publisher.returncode == -signal.SIGKILL
        tx = said.decode().strip()
        notes = SqliteResource("notes", path)
        successor = await stage.bus(resources=(notes,))
        await successor.coordinator()

        async def decided() -> bool:
            return await decision(successor, tx) == outcome

        await until(decided, "the successor reads the marker")
        await all_idle(served)
    committed = outcome == "commit"
    assert await member.booked() == (["FW26"] if committed else [])
    with sqlite3.connect(path) as database:
        assert database.execute("select room from booked").fetchall() == ([("mine",)] if committed else [])
