"""Real nats-servers for tests: on free loopback ports, with a given configuration, killed and started again at will."""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

STARTED_SECONDS: Final = 15.0  # a busy machine


def binary() -> str:
    """The server that the package brings, or the one on the PATH."""
    own = Path(sys.executable).parent / "nats-server"
    found = str(own) if own.exists() else shutil.which("nats-server")
    assert found is not None, "nats-server is not installed"
    return found


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        return [int(sock.getsockname()[1]) for sock in sockets]
    finally:
        for sock in sockets:
            sock.close()


class NatsServer:
    """One server that keeps its port and its data over `kill` and `start`."""

    def __init__(self, folder: Path, *, synced: bool = True, extra: str = "", name: str = "n1") -> None:
        self.folder = folder
        self.port, self.monitor_port = free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None
        self._store = folder / name
        self._config = folder / f"{name}.conf"
        sync = "sync_interval: always" if synced else ""
        folder.mkdir(parents=True, exist_ok=True)
        self._config.write_text(
            f'server_name: {name}\nlisten: "127.0.0.1:{self.port}"\nhttp: "127.0.0.1:{self.monitor_port}"\n'
            f'jetstream {{ store_dir: "{self._store}", max_file_store: 1GB, {sync} }}\n{extra}\n'
        )

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def monitor_url(self) -> str:
        return f"http://127.0.0.1:{self.monitor_port}"

    async def start(self) -> None:
        """Returns when the server takes connections and, alone, has found its streams."""
        log = self.folder / "server.log"
        self._process = self._launched(log)
        deadline = asyncio.get_running_loop().time() + STARTED_SECONDS
        while not await self._answers("/healthz?js-enabled-only=true"):
            assert self._process.poll() is None, log.read_text()[-2_000:]
            assert asyncio.get_running_loop().time() < deadline, log.read_text()[-2_000:]
            await asyncio.sleep(0.02)

    def _launched(self, log: Path) -> subprocess.Popen[bytes]:
        return subprocess.Popen([binary(), "-c", str(self._config), "-l", str(log)])

    def forget(self) -> None:
        """Everything it stored is lost."""
        shutil.rmtree(self._store)

    async def _answers(self, path: str) -> bool:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.monitor_port)
        except OSError:
            return False
        try:
            writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
            return b" 200 " in await reader.readline()
        finally:
            writer.close()
            await writer.wait_closed()

    async def healthy(self) -> None:
        """Waits until streams and their leaders are there."""
        deadline = asyncio.get_running_loop().time() + STARTED_SECONDS
        while not await self._answers("/healthz"):
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.05)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def pause(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGCONT)  # a paused one would not hear the other
            process.send_signal(how)
            process.wait(STARTED_SECONDS)


async def start_cluster(folder: Path, *, synced: bool = False) -> Sequence[NatsServer]:
    """Three servers that know each other, with a leader for their streams."""
    routes = free_ports(3)
    links = ", ".join(f'"nats://127.0.0.1:{port}"' for port in routes)
    servers = [
        NatsServer(
            folder / f"s{number}",
            synced=synced,
            name=f"s{number}",
            extra=f'cluster {{ name: trio, listen: "127.0.0.1:{port}", routes: [{links}] }}',
        )
        for number, port in enumerate(routes, 1)
    ]
    try:
        await asyncio.gather(*(server.start() for server in servers))
        await asyncio.gather(*(server.healthy() for server in servers))
    except BaseException:
        for server in servers:
            server.kill()
        raise
    return servers
