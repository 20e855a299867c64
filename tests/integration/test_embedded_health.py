"""The embedded server when it is not dead but not well either: hung, or on a full disk."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import nats
import nats.errors
import nats.js
import nats.js.errors
import pytest

from tests.integration.test_embedded_processes import (
    eventually,
    gone,
    looked_at,
    servers_of,
    serves,
    supervisors_of,
)
from tutti.bus.embedded import Embedded, ailment_of, configuration, launch, processes, supervisor

pytestmark = pytest.mark.skipif(not supervisor.HAS_PROC, reason="processes are counted in /proc")

DISK_BYTES: Final = 24_000_000
DISK_MIN_BYTES: Final = 8_000_000


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "data"
    for pid in (*supervisors_of(tmp_path / "data"), *servers_of(tmp_path / "data")):
        os.kill(pid, signal.SIGKILL)  # of a test that failed: what is stopped would stay for ever


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "EMBEDDED_GRACE_SECONDS", 0.2)
    monkeypatch.setattr(launch, "EMBEDDED_SILENCE_SECONDS", 2.0)


# Hung


async def hang(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    threads = Path(f"/proc/{pid}/task")  # each stops when it next runs, and may answer somebody until then
    await eventually(
        lambda: all((thread / "stat").read_text().rpartition(")")[2].split()[0] == "T" for thread in threads.iterdir())
    )


async def test_a_hung_server_is_killed_and_started_again_while_it_has_users(data: Path) -> None:
    async with await Embedded.acquire(data) as server:
        url, pid = server.url, server.pid
        await hang(pid)
        await eventually(lambda: looked_at(data).state == "running" and looked_at(data).pid not in {0, pid})
        await serves(lambda: url)
        assert servers_of(data) == [looked_at(data).pid]
        assert "did not answer for 2 s and was killed" in (data / "server" / "supervisor.log").read_text()
    await gone(data)


async def test_a_hung_supervisor_is_killed_and_replaced_by_its_users(data: Path) -> None:
    async with await Embedded.acquire(data) as server:
        hung = server.supervisor_pid
        await hang(hung)
        os.kill(server.pid, signal.SIGKILL)
        await eventually(lambda: looked_at(data).state == "running" and looked_at(data).supervisor_pid != hung)
        await serves(server.current_url)
        assert supervisors_of(data) == [looked_at(data).supervisor_pid]
        assert servers_of(data) == [looked_at(data).pid]
    await gone(data)


async def test_a_newcomer_replaces_a_hung_supervisor_and_its_hung_server(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "GRACEFUL_SECONDS", 0.3)
    monkeypatch.setattr(launch, "EMBEDDED_GRACE_SECONDS", 60.0)  # they are still there when they are stopped
    first = await Embedded.acquire(data)
    await first.release()
    monkeypatch.setattr(launch, "EMBEDDED_GRACE_SECONDS", 0.2)
    hung = first.supervisor_pid
    await hang(hung)
    await hang(first.pid)
    async with await Embedded.acquire(data) as second:
        assert second.supervisor_pid != hung
        assert servers_of(data) == [second.pid]
    await gone(data)


# A full disk


@pytest.fixture
def small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root on Linux can make a small disk")
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(disk)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("this root may not mount")
    monkeypatch.setattr(launch, "EMBEDDED_DISK_MIN_BYTES", DISK_MIN_BYTES)
    monkeypatch.setattr(configuration, "EMBEDDED_DISK_MIN_BYTES", DISK_MIN_BYTES)
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)  # noqa: S607  root's own PATH


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"x" * 4096):
            pass


async def publish_many(stream: nats.js.JetStreamContext, count: int) -> None:
    for _ in range(count):
        await stream.publish("kept.two", b"x" * 4000, timeout=0.5)


async def test_a_server_on_a_disk_that_was_full_stores_again(small_disk: Path) -> None:
    data = small_disk / "data"
    async with await Embedded.acquire(data) as server:
        client = await nats.connect(server.url)
        stream = client.jetstream()
        await stream.add_stream(name="kept", subjects=["kept.>"])
        await stream.publish("kept.one", b"before")
        fill(small_disk / "filler")
        with pytest.raises((nats.errors.TimeoutError, nats.js.errors.APIError)):
            await publish_many(stream, 100)
        await eventually(lambda: looked_at(data).state == "sick")
        state = looked_at(data)
        assert state.running
        assert "the disk is full, 0 bytes are free and 8,000,000 are needed" in state.reason
        assert "no space left on device" in state.reason

        assert "no space left on device" in await asyncio.to_thread(ailment_of, data)

        (small_disk / "filler").unlink()
        await eventually(lambda: looked_at(data).state == "running" and looked_at(data).restarts == 1)
        await eventually(lambda: client.is_connected)
        assert await stream.publish("kept.three", b"after")
        assert (await stream.get_msg("kept", seq=1)).data == b"before"
        await client.close()
        assert await asyncio.to_thread(ailment_of, data) == ""
    await gone(data)
