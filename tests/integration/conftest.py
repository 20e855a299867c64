"""Servers that tests of transactions share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.integration.nats_server import NatsServer
from tests.integration.transaction_stage import Stage
from tutti.resources.embedded_postgres import EmbeddedPostgres


@pytest.fixture(scope="session")
def mediator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """One synced NATS server for the session: whoever uses it takes a namespace of its own, and never stops it."""
    server = NatsServer(tmp_path_factory.mktemp("mediator"))
    asyncio.run(server.start())
    yield server
    server.stop()


@pytest.fixture
async def stage(mediator: NatsServer, postgres: EmbeddedPostgres, tmp_path: Path) -> AsyncIterator[Stage]:
    stage = Stage(mediator.url, postgres, tmp_path)
    yield stage
    await stage.close()
