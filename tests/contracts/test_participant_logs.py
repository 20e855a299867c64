"""Every participants' log of ours passes the contract that it ships."""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tutti.errors import DeclarationError, JournalUnfit
from tutti.journal import ParticipantLog
from tutti.journal.postgres import PostgresParticipantLog
from tutti.journal.sqlite import SqliteJournal, SqliteParticipantLog
from tutti.resources.embedded_postgres import EmbeddedPostgres
from tutti.testing.clock import ManualClock
from tutti.testing.contracts.participants import ParticipantLogContract, ParticipantLogPlace, row_of


class SqlitePlace:
    """The clock stands still until the test moves it, for every connection alike."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._clock = ManualClock()
        self._logs: list[SqliteParticipantLog] = []

    async def open(self) -> ParticipantLog:
        log = SqliteParticipantLog(self._path, clock=self._clock.wall)
        await log.start()
        self._logs.append(log)
        return log

    async def pass_time(self, seconds: float) -> None:
        self._clock.advance(seconds)

    async def close(self) -> None:
        for log in self._logs:
            await log.close()


class TestSqliteParticipantLog(ParticipantLogContract):
    @pytest.fixture
    async def place(self, tmp_path: Path) -> AsyncIterator[ParticipantLogPlace]:
        place = SqlitePlace(tmp_path / "participants.db")
        yield place
        await place.close()


class PostgresPlace:
    """A schema of its own. The clock is the server's: it can only be waited for."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._schema = f"participants_{secrets.token_hex(4)}"
        self._logs: list[PostgresParticipantLog] = []

    async def open(self) -> ParticipantLog:
        log = PostgresParticipantLog(self._url, schema=self._schema)
        await log.start()
        self._logs.append(log)
        return log

    async def pass_time(self, seconds: float) -> None:
        end = await self._logs[0].now() + seconds
        while await self._logs[0].now() < end:
            await asyncio.sleep(0.01)

    async def close(self) -> None:
        for log in self._logs:
            await log.close()


class TestPostgresParticipantLog(ParticipantLogContract):
    @pytest.fixture
    async def place(self, postgres: EmbeddedPostgres) -> AsyncIterator[ParticipantLogPlace]:
        place = PostgresPlace(postgres.url())
        yield place
        await place.close()


async def test_journal_and_log_may_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "both.db"
    journal, log = SqliteJournal(path), SqliteParticipantLog(path)
    await journal.start()
    await log.start()
    await log.write(row_of("j-1"))
    await journal.renew("m1")
    await log.close()
    await journal.close()


async def test_a_row_that_cannot_be_read_is_named_not_guessed(tmp_path: Path) -> None:
    path = tmp_path / "participants.db"
    log = SqliteParticipantLog(path)
    await log.start()
    await log.write(row_of("j-1"))
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE participant_rows SET body = x'00'")
    connection.close()
    with pytest.raises(JournalUnfit, match="cannot be read"):
        await log.open_rows("hotel")
    await log.close()


def test_a_schema_that_is_no_name_is_refused() -> None:
    with pytest.raises(DeclarationError, match="cannot name the journal's schema"):
        PostgresParticipantLog("postgresql:///x", schema="no schema")
