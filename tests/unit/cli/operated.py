"""A session whose journal and log are in a folder, for the operator's commands."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.unit.cli.conftest import MemorySession
from tests.unit.runtime.transactions.operated import Site, site_in


@pytest_asyncio.fixture
async def site(
    session: MemorySession, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Site]:
    folder = tmp_path_factory.mktemp("journal")
    monkeypatch.setenv("TUTTI_JOURNAL", str(folder))
    async with site_in(folder) as site:
        yield site
