"""nats-servers for the benchmarks: on the loopback interface, in a folder of their own, ended with the block."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from tutti.bus.embedded.binary import find_binary
from tutti.bus.nats import NatsOptions

START_SECONDS: Final = 10.0


class Server(msgspec.Struct, frozen=True):
    url: str
    monitor_url: str
    synced: bool

    @property
    def name(self) -> str:
        return "synced" if self.synced else "unsynced"

    @property
    def options(self) -> NatsOptions:
        """How Tutti connects to it. What the server says about syncing is asked, not assumed."""
        return NatsOptions(urls=(self.url,), monitor_url=self.monitor_url, durable=self.synced)


@contextlib.contextmanager
def running(*, synced: bool) -> Iterator[Server]:
    """A server with JetStream. `synced`: every write is on the disk before it is acknowledged."""
    with tempfile.TemporaryDirectory(prefix="tutti-bench-") as folder:
        port, monitor = free_port(), free_port()
        sync = "always" if synced else "2m"
        configuration = Path(folder, "server.conf")
        configuration.write_text(
            f'listen: "127.0.0.1:{port}"\nhttp: "127.0.0.1:{monitor}"\n'
            f'jetstream {{ store_dir: "{folder}/data", sync_interval: "{sync}" }}\n'
        )
        process = subprocess.Popen(
            [str(find_binary()), "-c", str(configuration)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            wait_for(port)
            yield Server(f"nats://127.0.0.1:{port}", f"http://127.0.0.1:{monitor}", synced)
        finally:
            process.terminate()
            process.wait(START_SECONDS)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return
