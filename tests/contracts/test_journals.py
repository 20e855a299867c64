"""Every journal of ours passes the contract that it ships."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tutti.journal import Journal
from tutti.journal.postgres import PostgresJournal
from tutti.journal.sqlite import SqliteJournal
from tutti.resources.embedded_postgres import EmbeddedPostgres
from tutti.testing.clock import ManualClock
from tutti.testing.contracts.journal import JournalContract, JournalPlace


class SqlitePlace:
    """The clock stands still until the test moves it, for every connection alike."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._clock = ManualClock()
        self._journals: list[SqliteJournal] = []

    async def open(self) -> Journal:
        journal = SqliteJournal(self._path, clock=self._clock.wall)
        await journal.start()
        self._journals.append(journal)
        return journal

    async def pass_time(self, seconds: float) -> None:
        self._clock.advance(seconds)

    async def close(self) -> None:
        for journal in self._journals:
            await journal.close()


class TestSqliteJournal(JournalContract):
    @pytest.fixture
    async def place(self, tmp_path: Path) -> AsyncIterator[JournalPlace]:
        place = SqlitePlace(tmp_path / "journal.db")
        yield place
        await place.close()


class PostgresPlace:
    """A schema of its own. The clock is the server's: it can only be waited for."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._schema = f"journal_{secrets.token_hex(4)}"
        self._journals: list[PostgresJournal] = []

    async def open(self) -> Journal:
        journal = PostgresJournal(self._url, schema=self._schema)
        await journal.start()
        self._journals.append(journal)
        return journal

    async def pass_time(self, seconds: float) -> None:
        end = await self._journals[0].now() + seconds
        while await self._journals[0].now() < end:
            await asyncio.sleep(0.01)

    async def close(self) -> None:
        for journal in self._journals:
            await journal.close()


class TestPostgresJournal(JournalContract):
    @pytest.fixture
    async def place(self, postgres: EmbeddedPostgres) -> AsyncIterator[JournalPlace]:
        place = PostgresPlace(postgres.url())
        yield place
        await place.close()
