"""The contract of every transport, on a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.integration.nats_server import NatsServer
from tutti.bus.nats import NatsOptions, NatsTransport
from tutti.bus.port import Transport
from tutti.model.subjects import Layout
from tutti.testing.contracts import TransportContract, TransportFactory


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    asyncio.run(server.start())
    yield server
    server.kill()


class TestNatsTransport(TransportContract):
    silence = 0.3

    @pytest.fixture
    async def transport_factory(self, layout: Layout, server: NatsServer) -> AsyncIterator[TransportFactory]:
        transports: list[Transport] = []
        options = NatsOptions(urls=(server.url,), monitor_url=server.monitor_url, queue_silence=self.silence)

        async def started() -> Transport:
            transport = NatsTransport(options, layout)
            await transport.start()
            transports.append(transport)
            return transport

        yield started
        for transport in transports:
            await transport.close()
