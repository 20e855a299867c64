"""A bus in memory with a journal and a log in a folder, as an operator finds them: a subscriber, and one that died."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

import tutti
from tutti.journal import LogRow
from tutti.journal.sqlite import SqliteJournal, SqliteParticipantLog
from tutti.model.transaction import Consumed, LogState, ParticipantRecord, TransactionRecord, member_hash
from tutti.resources import BranchId
from tutti.resources.memory import MemoryResource, MemoryStore
from tutti.runtime.bus import Bus
from tutti.runtime.transactions.books import Books, Place
from tutti.runtime.transactions.keys import keep_journal_key
from tutti.runtime.transactions.opening import JOURNAL_FILE, KEY_FILE
from tutti.runtime.transactions.own_log import FILE

EVENT = Consumed("manager", "Invitation", 1, 1)


class Invitation(tutti.Event):
    room: str


class Meeting(tutti.TxType, events=[Invitation]):
    subject: str


class Site:
    """`store` is the database of `rooms`, reached through `calendar`."""

    def __init__(self, folder: Path, journal: SqliteJournal, log: SqliteParticipantLog) -> None:
        self.folder = folder
        self.journal = journal
        self.log = log
        self.store = MemoryStore()
        self.calendar = MemoryResource("calendar", self.store)
        self.key = keep_journal_key(folder / KEY_FILE)
        self._count = 0

    @property
    def books(self) -> Books:
        return Books(Place(str(self.folder), self.folder), self.journal, self.log, self.key)

    async def begun(self, *, manager_lives: bool = True, **fields: Any) -> str:
        """A registered transaction with `rooms` as its member."""
        self._count += 1
        tx = f"{self.journal.id}-r1-{self._count}"
        given: dict[str, Any] = {
            "deadline": await self.journal.now() + 60,
            "manager": f"m{self._count}",
            "epoch": 1,
            "members": (member_hash(tx, "p1"), member_hash(tx, "p2")),
            "vital": (member_hash(tx, "p1"),),
            "keys": ("k1", "k2"),
        } | fields
        await self.journal.register(TransactionRecord(tx, "Meeting", **given), lease=60)
        if not manager_lives:
            await self.journal.release(given["manager"])
        return tx

    def row(self, tx: str, state: LogState = "voted", **fields: Any) -> LogRow:
        record = ParticipantRecord(
            tx, "p1", "k1", state, 1, 1, 0.0, consumed=(EVENT,), branches=(1,), compensatable=fields.pop("alone", False)
        )
        given = {"resources": ("calendar 1",), "instance": "rooms-0", "type": "Meeting"} | fields
        return LogRow("rooms", tx, record, b"seed", **given)

    async def voted(self, tx: str, **fields: Any) -> None:
        """`rooms` has prepared, voted yes and died."""
        await self.prepare("rooms", tx)
        await self.log.write(self.row(tx, **fields))

    async def prepare(self, owner: str, tx: str) -> None:
        work = await self.calendar.begin(BranchId(owner, tx, "calendar-1"))
        work.connection.put(tx, owner)
        await work.prepare()

    async def closed(self, tx: str, state: LogState) -> None:
        record = msgspec.structs.replace(self.row(tx).record, state=state)
        await self.log.close_row("rooms", tx, record)


@asynccontextmanager
async def site_in(folder: Path) -> AsyncIterator[Site]:
    journal, log = SqliteJournal(folder / JOURNAL_FILE), SqliteParticipantLog(folder / FILE)
    await journal.start()
    await log.start()
    try:
        yield Site(folder, journal, log)
    finally:
        await log.close()
        await journal.close()


@asynccontextmanager
async def bus_of(folder: Path) -> AsyncIterator[Bus]:
    async with tutti.connect("memory://", journal=folder) as bus:
        await bus.advertise(Invitation)
        yield bus
