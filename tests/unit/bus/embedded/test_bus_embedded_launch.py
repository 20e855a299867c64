from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tutti.bus.embedded import launch as launching
from tutti.bus.embedded import supervisor
from tutti.bus.embedded.folder import Folder, ServerRecord, UserRecord
from tutti.bus.embedded.launch import launch
from tutti.bus.embedded.locks import HeldLock, is_locked, try_lock
from tutti.errors import EmbeddedError


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path)
    folder.create()
    return folder


@pytest.fixture
def election(folder: Folder) -> HeldLock:
    return try_lock(folder.supervisor_lock) or pytest.fail("nobody else holds it")


def test_a_failed_launch_gives_the_election_back(
    folder: Folder, election: HeldLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "")
    monkeypatch.setattr(launching, "find_binary", lambda: Path("server"))
    monkeypatch.setattr(launching, "binary_version", lambda _: "2.15.1")
    with pytest.raises(EmbeddedError, match=r"sys\.executable"):
        launch(folder, election, sync=True)
    assert not is_locked(folder.supervisor_lock)


def test_a_supervisor_that_does_not_boot_is_told(
    folder: Folder, election: HeldLock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(supervisor, "__file__", str(tmp_path / "absent.py"))
    with pytest.raises(EmbeddedError, match="did not start") as caught:
        launch(folder, election, sync=True)
    assert str(folder.supervisor_log) in caught.value.hint
    assert not is_locked(folder.supervisor_lock)


def test_what_outlives_a_server_is_carried_over(
    folder: Folder, election: HeldLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its port, its name, the newest version; and the durability that those who are there asked for."""
    monkeypatch.setattr(launching, "_spawn", lambda *_: None)
    launch(folder, election, sync=False)
    first = _record(folder)
    assert (first.state, first.sync, first.port) == ("starting", False, 0)

    path = folder.path / "server.json"
    path.write_text(
        json.dumps({**json.loads(path.read_bytes()), "port": 7, "monitor_port": 8, "newest_version": "2.1.0"})
    )
    membership = folder.join(UserRecord(pid=1, program="strict", sync=True, keep=False))
    again = try_lock(folder.supervisor_lock)
    assert membership is not None
    assert again is not None
    launched = launch(folder, again, sync=False)
    second = _record(folder)
    assert second.launch == launched != first.launch
    assert (second.name, second.port, second.monitor_port, second.newest_version) == (first.name, 7, 8, "2.1.0")
    assert second.sync
    assert "always" in folder.config.read_text()
    membership.close()


def _record(folder: Folder) -> ServerRecord:
    return folder.record() or pytest.fail("no record")
