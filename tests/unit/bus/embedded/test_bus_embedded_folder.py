from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from tutti.bus.embedded.folder import (
    FORMAT,
    Folder,
    ServerRecord,
    UserRecord,
    client_url,
    default_folder,
    explain,
    monitor_url,
    require_platform,
)
from tutti.bus.embedded.locks import try_lock
from tutti.errors import EmbeddedError

RECORD = ServerRecord(
    format=FORMAT, tutti="1.2.3", launch="a", name="n", state="running", binary="b", sync=True, grace=1.0, port=7
)
ME = UserRecord(pid=os.getpid(), program="test", sync=True, keep=False)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path / "data")
    folder.create()
    return folder


def test_a_folder_is_made_for_its_owner_alone(folder: Folder) -> None:
    for path in (folder.data, folder.path, folder.users):
        assert path.stat().st_mode & 0o777 == 0o700
    folder.create()
    assert folder.record() is None


def test_two_names_of_one_folder(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder.data)
    assert Folder(tmp_path / "link").config == folder.config


def test_a_record_is_read_as_it_was_written(folder: Folder) -> None:
    folder.write_record(RECORD)
    assert folder.record() == RECORD
    assert [path.name for path in folder.path.glob("*.new")] == []


@pytest.mark.parametrize("text", ["", "{", '"text"', '{"format": 1}', '{"format": "one"}'])
def test_an_unreadable_record_is_ignored_and_told(folder: Folder, text: str, caplog: pytest.LogCaptureFixture) -> None:
    (folder.path / "server.json").write_text(text)
    assert folder.record() is None
    assert "cannot be read" in caplog.text


def test_a_newer_format_is_refused_wherever_it_is_read(folder: Folder) -> None:
    (folder.path / "server.json").write_text('{"format": 99}')
    for read in (folder.record, folder.create):
        with pytest.raises(EmbeddedError, match="format 99") as caught:
            read()
        assert caught.value.hint == "upgrade Tutti"


def test_a_secret_is_made_once_and_shown_to_nobody(folder: Folder) -> None:
    secret = folder.create_secret()
    assert folder.create_secret() == folder.secret() == secret
    assert (folder.path / "secret.json").stat().st_mode & 0o777 == 0o600
    assert secret.password not in repr(secret)
    assert client_url(RECORD, secret) == f"nats://tutti:{secret.password}@127.0.0.1:7"
    assert monitor_url(RECORD, secret).endswith(secret.monitor_path)


def test_users_are_those_who_hold_their_note(folder: Folder) -> None:
    first, second = folder.join(ME), folder.join(ME)
    assert first is not None
    assert second is not None
    (folder.users / "1-dead.json").write_bytes(b'{"pid":1,"program":"dead","sync":true,"keep":false}')
    assert folder.live_users() == (ME, ME)
    first.close()
    first.close()
    assert folder.live_users() == (ME,)
    second.close()
    assert [path.name for path in folder.users.iterdir()] == ["1-dead.json"]


def test_nobody_joins_while_the_server_is_ended(folder: Folder) -> None:
    with try_lock(folder.users_lock) or pytest.fail("free"):
        assert folder.join(ME) is None
    membership = folder.join(ME)
    assert membership is not None
    assert membership.held
    membership.close()
    assert not membership.held


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EROFS, "cannot be written (Read-only file system)"),
        (errno.EACCES, "cannot be written (Permission denied)"),
        (errno.ENOTDIR, "is a file"),
        (errno.ENOSPC, "is full"),
        (errno.EDQUOT, "is full"),
        (errno.ENAMETOOLONG, "too long"),
        (errno.EIO, "cannot be used"),
    ],
)
def test_what_the_system_says_is_explained(number: int, words: str) -> None:
    error = explain(OSError(number, os.strerror(number)), Path("some/where"))
    assert words in error.what
    assert "some/where" in error.what
    assert "TUTTI_DATA" in error.hint


def test_a_path_that_is_too_long(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedError, match="too long"):
        Folder(tmp_path / ("x" * 300)).create()


def test_the_default_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TUTTI_DATA", raising=False)
    assert default_folder() == tmp_path / ".tutti"
    monkeypatch.setenv("TUTTI_DATA", "")
    assert default_folder() == tmp_path / ".tutti"
    monkeypatch.setenv("TUTTI_DATA", "elsewhere")
    assert default_folder() == tmp_path / "elsewhere"


def test_windows_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    require_platform()
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(EmbeddedError, match="Windows"):
        require_platform()
