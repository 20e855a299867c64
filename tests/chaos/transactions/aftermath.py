"""When everybody is back: waiting until every transaction has ended, and reading what stands where."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import asyncpg
import msgspec

from tests.chaos.transactions.workload import BANKS, DATABASES, RECEIPTS, SUBSCRIBERS, TABLES, Settings
from tutti.journal import Entry
from tutti.journal.sqlite import SqliteJournal, SqliteParticipantLog
from tutti.model.transaction import Outcome
from tutti.resources.embedded_postgres import EmbeddedPostgres
from tutti.runtime.transactions.opening import JOURNAL_FILE
from tutti.runtime.transactions.own_log import FILE as LOG_FILE

LOOK_SECONDS: Final = 0.25
PATIENCE_SECONDS: Final = 90.0  # then what has not ended is read as it is


class Entered(msgspec.Struct, frozen=True, array_like=True):
    """A row of a business table."""

    key: str
    tx: str
    amount: int = 0
    kind: str = ""


class Found(msgspec.Struct, frozen=True):
    """What stands in the databases, the journal and the participants' log."""

    entries: Mapping[str, list[Entered]]  # by bank, and orders
    receipts: list[Entered]
    voided: list[Entered]
    total: int  # of all balances
    prepared: list[str]  # gids that are left
    outcomes: Mapping[str, Outcome]  # as the journal tells, by transaction
    unfinished: list[str]  # transactions that the journal does not call finished
    unsent: int  # statuses in the outbox
    open_rows: list[str]  # of participants
    parked: list[str]  # compensations that wait for an operator
    undecided_seconds: float  # the longest from registration to decision


async def create_databases(server: EmbeddedPostgres) -> dict[str, str]:
    urls = {}
    for name in DATABASES:
        urls[name] = await asyncio.to_thread(server.create_database, name)
        connection = await asyncpg.connect(urls[name])
        for statement in TABLES[name]:
            await connection.execute(statement)
        await connection.close()
    return urls


class Aftermath:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def quiet(self) -> float:
        """Seconds until nothing was under way any more, in vain or not."""
        started = time.monotonic()
        while time.monotonic() < started + PATIENCE_SECONDS:
            found = await self.found()
            if not (found.prepared or found.unfinished or found.unsent or found.open_rows):
                break
            await asyncio.sleep(LOOK_SECONDS)
        return time.monotonic() - started

    async def found(self) -> Found:
        entries, balances, prepared = {}, 0, []
        for name in DATABASES:
            connection = await asyncpg.connect(self._settings.urls[name])
            try:
                gids = await connection.fetch("select gid from pg_prepared_xacts where database = current_database()")
                prepared += [row["gid"] for row in gids]
                if name == RECEIPTS:
                    receipts = await _rows(connection, "select key, tx, 0, kind from receipts")
                    voided = await _rows(connection, "select key, tx, 0, kind from voided")
                else:
                    entries[name] = await _rows(connection, "select key, tx, amount from entries")
                if name in BANKS:
                    balances += await connection.fetchval("select sum(balance)::bigint from accounts")
            finally:
                await connection.close()
        return Found(
            entries=entries,
            receipts=receipts,
            voided=voided,
            total=balances,
            prepared=prepared,
            **await self._journal(),
            **await self._log(),
        )

    async def _journal(self) -> dict[str, Any]:
        journal = SqliteJournal(Path(self._settings.data) / JOURNAL_FILE)
        await journal.start()
        try:
            entries: list[Entry] = []
            while page := await journal.entries(after=entries[-1].number if entries else 0):
                entries += page
            return {
                "outcomes": {entry.record.tx: entry.decision.outcome for entry in entries if entry.decision},
                "unfinished": [entry.record.tx for entry in entries if not entry.finished],
                "unsent": len(await journal.unsent()),
                "undecided_seconds": max((e.decided_at - e.registered_at for e in entries if e.decision), default=0.0),
            }
        finally:
            await journal.close()

    async def _log(self) -> dict[str, Any]:
        log = SqliteParticipantLog(Path(self._settings.data) / LOG_FILE)
        await log.start()
        try:
            rows = [row for name in SUBSCRIBERS for row in await log.open_rows(name)]
            return {
                "open_rows": [f"{row.subscriber}: {row.tx} {row.record.state}" for row in rows],
                "parked": [f"{one.subscriber}: {one.tx} ({one.reason})" for one in await log.parked()],
            }
        finally:
            await log.close()


async def _rows(connection: asyncpg.Connection, statement: str) -> list[Entered]:
    return [Entered(*row) for row in await connection.fetch(statement)]
