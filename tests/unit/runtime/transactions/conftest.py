"""A bus in memory with a journal beside it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.runtime.transactions.staged import Office, journal_in
from tutti.testing.kit import BusKit


@pytest.fixture
async def office(tutti_bus: BusKit, tmp_path: Path) -> AsyncIterator[Office]:
    journal = await journal_in(tmp_path)
    yield Office.at(tutti_bus, journal)
    await journal.close()
