from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from tutti.bus.embedded.configuration import configuration, store_max_bytes, stored_bytes
from tutti.bus.embedded.folder import Folder, Secret
from tutti.errors import EmbeddedError
from tutti.limits import EVENT_MAX_BYTES

SECRET = Secret(password="pass", monitor_path="/path")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path)
    folder.create()
    return folder


def test_what_the_server_is_told(folder: Folder) -> None:
    told = json.loads(configuration(folder, name="n", secret=SECRET, sync=True, store_max_bytes=5))
    assert told["host"] == "127.0.0.1"
    assert told["jetstream"] == {"store_dir": str(folder.path), "max_file_store": 5, "sync_interval": "always"}
    assert told["authorization"] == {"user": "tutti", "password": "pass"}
    assert told["max_payload"] > EVENT_MAX_BYTES
    assert not {"mqtt", "websocket", "leafnodes", "cluster", "gateway", "port"} & told.keys()


def test_without_sync_the_server_keeps_its_own_interval(folder: Folder) -> None:
    told = json.loads(configuration(folder, name="n", secret=SECRET, sync=False, store_max_bytes=5))
    assert "sync_interval" not in told["jetstream"]


def test_a_path_that_is_no_text(tmp_path: Path) -> None:
    folder = Folder(tmp_path / os.fsdecode(b"\xff"))
    with pytest.raises(EmbeddedError, match="not valid text"):
        configuration(folder, name="n", secret=SECRET, sync=True, store_max_bytes=5)


def test_room_is_what_is_stored_and_most_of_what_is_free(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder.store / "deep").mkdir(parents=True)
    (folder.store / "deep" / "1.blk").write_bytes(bytes(1000))
    (folder.store / "2.blk").write_bytes(bytes(24))
    assert stored_bytes(folder.store) == 1024
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10**9))
    assert store_max_bytes(folder) == 1024 + 9 * 10**8


def test_a_full_disk_is_told_before_the_start(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1_000))
    with pytest.raises(EmbeddedError, match="is full: 1,000 bytes are free"):
        store_max_bytes(folder)
