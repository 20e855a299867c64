"""One publisher: `python -m tests.chaos.transactions.publisher <marks folder> <run>`.

A few transactions at a time, spread over the time of the run; after a kill it goes on behind the last number that it
had tried. What it was told of each stands in its file, synced, before the next one begins.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any, Final

import tutti
from tests.chaos.transactions.process import Process, name_of, process
from tests.chaos.transactions.schedule import VISITORS
from tests.chaos.transactions.workload import (
    GROUP,
    ORDERS,
    SUBSCRIBERS,
    Booking,
    Deal,
    Invited,
    Said,
    Standing,
    Told,
    Transfer,
    Tried,
    said,
)
from tests.chaos.workload import Marks
from tutti.errors import GroupUnfit, JournalError
from tutti.resources.postgres.asyncpg import AsyncpgResource

AT_ONCE: Final = 3
DEADLINE_SECONDS: Final = 20.0
COMMIT_SECONDS: Final = 12.0
PAUSE_SECONDS: Final = 0.3  # after a transaction that could not begin
ENOUGH: Final = "enough"  # a file: whoever has done its share may stop


class Diary:
    """What must survive the publisher."""

    def __init__(self, marks: Path, run: str) -> None:
        self._path = marks / f"said-{run}"
        self._marks = Marks(self._path)

    def write(self, *words: Said) -> None:
        self._marks.add(*words)
        descriptor = os.open(self._path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


class Publisher:
    def __init__(self, here: Process, bus: tutti.Bus, orders: AsyncpgResource) -> None:
        self._here, self._bus, self._orders = here, bus, orders
        self._name = name_of(here.run)
        self._diary = Diary(here.marks, here.run)
        self._number = _last_number(here.marks, self._name)
        self._started, self._first = time.monotonic(), self._number

    async def run(self) -> None:
        async with asyncio.TaskGroup() as workers:
            for _ in range(AT_ONCE):
                workers.create_task(self._work())

    async def _work(self) -> None:
        settings = self._here.settings
        while not self._here.ended.is_set() and not self._is_enough():
            self._number += 1
            await self._deal(Deal.drawn(settings.seed, self._name, self._number))
            due = self._started + settings.seconds / settings.quota * (self._number - self._first)
            await asyncio.sleep(max(0.0, min(due - time.monotonic(), 1.0)))

    def _is_enough(self) -> bool:
        return self._number >= self._here.settings.quota and (self._here.marks / ENOUGH).exists()

    async def _deal(self, deal: Deal) -> None:
        key = deal.transfer.key
        self._diary.write(Tried(key, time.monotonic()))
        tx = self._transaction(deal)
        begun = False
        try:
            async with tx:
                begun = True
                self._diary.write(Tried(key, time.monotonic(), tx.id))
                await self._work_on(deal, tx)
                await tx.commit(timeout=COMMIT_SECONDS)
        except tutti.TransactionAborted as error:
            self._told(key, tx.id, "aborted", error.reason)
        except tutti.UncheckedTransaction as error:
            self._told(key, tx.id, "unchecked", str(error))
        except (tutti.CensusFailed, GroupUnfit) as error:
            self._told(key, "", "failed", error.what)
            await asyncio.sleep(PAUSE_SECONDS)
        except (tutti.TuttiError, OSError) as error:
            # Not begun, or something went wrong in the block: then leaving it has aborted, or nobody knows.
            word = "lost" if begun or isinstance(error, JournalError) else "failed"
            self._told(key, tx.id if begun else "", word, f"{type(error).__name__}: {error}")
            await asyncio.sleep(PAUSE_SECONDS)
        else:
            self._told(key, tx.id, "committed", "")

    def _transaction(self, deal: Deal) -> tutti.Transaction:
        key = deal.transfer.key
        if deal.census:
            count = len(SUBSCRIBERS)
            rule = tutti.Census(at_least=count, at_most=count, within=2.0)
            return self._bus.transaction(Invited(key), scope=deal.scope, census=rule, deadline=DEADLINE_SECONDS)
        return self._bus.transaction(Standing(key), scope=deal.scope, group=GROUP, deadline=DEADLINE_SECONDS)

    async def _work_on(self, deal: Deal, tx: tutti.Transaction) -> None:
        if deal.own:
            db = await tx.enlist(self._orders)
            await db.execute("insert into entries values ($1, $2, $3)", deal.transfer.key, tx.id, deal.transfer.amount)
        await tx.publish(deal.transfer, last=deal.last)

    def _told(self, key: str, tx: str, word: str, why: str) -> None:
        self._diary.write(Told(key, tx, word, time.monotonic(), why[:300]))


def _last_number(marks: Path, name: str) -> int:
    numbers = [int(word.key.rpartition("-")[2]) for word in said(marks) if word.key.rpartition("-")[0] == name]
    return max(numbers, default=0)


async def main(marks: str, run: str) -> None:
    async with process(marks, run) as here:
        orders = here.settings.resource(ORDERS)
        await orders.start()
        try:
            place: Any = "service" if name_of(run) in VISITORS else "here"
            async with tutti.connect(data=here.data, name=run, resources=[orders], manager=place) as bus:
                await bus.advertise(Transfer, Booking)
                here.ready()
                await Publisher(here, bus, orders).run()
                await here.ended.wait()
                here.leave(bus)
        finally:
            await orders.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
