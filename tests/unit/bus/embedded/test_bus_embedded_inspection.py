from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import msgspec
import pytest

from tutti.bus.embedded import inspection
from tutti.bus.embedded.folder import FORMAT, Folder, Heartbeat, ServerRecord
from tutti.bus.embedded.inspection import ServerState, ailment_of, inspect
from tutti.bus.embedded.locks import HeldLock, try_lock
from tutti.bus.embedded.supervisor import HOST
from tutti.errors import EmbeddedError

RECORD = ServerRecord(
    format=FORMAT,
    tutti="0",
    launch="l",
    name="n",
    state="running",
    binary="b",
    sync=True,
    grace=1.0,
    pid=3,
    supervisor_pid=2,
    port=7,
    version="2.15.1",
    newest_version="2.15.1",
)


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "find_binary", lambda: Path("server"))
    monkeypatch.setattr(inspection, "binary_version", lambda _: "2.15.1")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path)
    folder.create()
    return folder


def lock(path: Path) -> HeldLock:
    return try_lock(path) or pytest.fail("free")


def seen(folder: Folder) -> ServerState:
    return inspect(folder.data) or pytest.fail("no state")


def test_a_folder_without_a_server(tmp_path: Path) -> None:
    assert inspect(tmp_path) is None
    assert inspect(tmp_path / "absent") is None
    assert list(tmp_path.iterdir()) == [], "to look makes no files"


@pytest.mark.parametrize(
    ("recorded", "supervised", "served", "state"),
    [
        ("running", True, True, "running"),
        ("restarting", True, False, "restarting"),
        ("starting", True, True, "starting"),
        ("running", False, True, "orphaned"),
        ("running", False, False, "stopped"),
        ("stopped", False, False, "stopped"),
        ("failed", False, False, "failed"),
    ],
)
def test_the_locks_say_whether_the_record_still_holds(
    folder: Folder, recorded: str, supervised: bool, served: bool, state: str
) -> None:
    folder.write_record(msgspec.structs.replace(RECORD, state=recorded))
    with contextlib.ExitStack() as locks:
        if supervised:
            locks.enter_context(lock(folder.supervisor_lock))
        if served:
            locks.enter_context(lock(folder.server_lock))
        found = seen(folder)
    assert found.state == state
    assert found.running == (state == "running")
    assert found.pid == (3 if served else 0)
    assert found.supervisor_pid == (2 if supervised else 0)


@pytest.mark.parametrize(
    ("needed", "launch", "state", "words"),
    [
        (2**60, "l", "sick", "the disk is full, "),
        (0, "l", "sick", "it could not write, and is started anew within a minute: write error"),
        (0, "another", "running", ""),
    ],
)
def test_a_server_that_cannot_write_is_sick(folder: Folder, needed: int, launch: str, state: str, words: str) -> None:
    folder.write_record(msgspec.structs.replace(RECORD, disk_min_bytes=needed))
    folder.health.write_bytes(msgspec.json.encode(Heartbeat(launch, 2, "s", 1, "write error")).ljust(4096))
    with lock(folder.supervisor_lock), lock(folder.server_lock):
        found = seen(folder)
    assert (found.state, found.running) == (state, True)
    assert found.reason.startswith(words)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, None),
        ({"sync": False}, "power cut"),
        ({"version": "2.14.5", "newest_version": "2.14.5"}, "2.15.1 takes over at the next start"),
        ({"version": "2.16.0", "newest_version": "2.16.0"}, "2.15.1 will not be started on it"),
        ({"version": "2.14.0", "newest_version": "2.14.0"}, "known holes"),
    ],
)
def test_what_deserves_attention_is_noted(folder: Folder, change: dict[str, object], words: str | None) -> None:
    folder.write_record(msgspec.structs.replace(RECORD, **change))
    with lock(folder.supervisor_lock), lock(folder.server_lock):
        notes = seen(folder).notes
    assert (words is None and notes == ()) or any(words in note for note in notes if words)


def test_the_server_is_asked_how_it_is(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "_HEALTH_SECONDS", 0.1)
    assert ailment_of(folder.data) == "", "there never was a server"
    folder.create_secret()
    with socket.create_server((HOST, 0)) as server:
        folder.write_record(msgspec.structs.replace(RECORD, monitor_port=server.getsockname()[1]))
        assert "within 0.1 s" in ailment_of(folder.data)
    assert "Connection refused" in ailment_of(folder.data)


def test_no_program_is_noted(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Path:
        raise EmbeddedError("none")

    monkeypatch.setattr(inspection, "find_binary", missing)
    folder.write_record(RECORD)
    assert seen(folder).installed_version == ""
    assert "cannot be started again" in seen(folder).notes[0]
