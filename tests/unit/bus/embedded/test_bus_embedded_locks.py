from __future__ import annotations

import errno
import fcntl
import gc
import os
import subprocess
from pathlib import Path
from typing import NoReturn

import pytest

from tutti.bus.embedded.locks import is_locked, try_lock
from tutti.errors import EmbeddedError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "some.lock"


def test_one_holder_at_a_time(path: Path) -> None:
    first = try_lock(path)
    assert first is not None
    assert try_lock(path) is None
    assert try_lock(path, shared=True) is None
    assert is_locked(path)
    first.close()
    assert not is_locked(path)
    with try_lock(path) or pytest.fail("it is free again") as second:
        assert second.held
    assert not second.held


def test_many_share_and_keep_the_exclusive_out(path: Path) -> None:
    first, second = try_lock(path, shared=True), try_lock(path, shared=True)
    assert first is not None
    assert second is not None
    assert not is_locked(path), "shared is not exclusive"
    first.close()
    assert try_lock(path) is None
    second.close()
    assert try_lock(path) is not None


def test_a_forgotten_lock_is_given_back(path: Path) -> None:
    assert try_lock(path) is not None
    gc.collect()
    assert not is_locked(path)


def test_asking_makes_no_file(path: Path) -> None:
    assert not is_locked(path)
    assert not path.exists()
    assert not is_locked(path / "below")


def test_a_lock_on_a_removed_file_is_none(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between opening and locking, somebody removes the folder."""
    original = fcntl.flock

    def remove_and_lock(fd: int, operation: int) -> None:
        path.unlink(missing_ok=True)
        original(fd, operation)

    monkeypatch.setattr(fcntl, "flock", remove_and_lock)
    assert try_lock(path) is None


def test_a_forked_child_does_not_hold_it(path: Path) -> None:
    lock = try_lock(path)
    assert lock is not None
    ready, end = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.write(ready[1], b"+" if not lock.held else b"-")
        os.read(end[0], 1)
        os._exit(0)
    try:
        assert os.read(ready[0], 1) == b"+"
        assert is_locked(path), "the parent still holds it"
        lock.close()
        assert not is_locked(path), "the child must not"
    finally:
        os.write(end[1], b".")
        os.waitpid(child, 0)
        for fd in (*ready, *end):
            os.close(fd)


def test_an_executed_child_does_not_hold_it(path: Path) -> None:
    lock = try_lock(path)
    assert lock is not None
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=False) as child:  # noqa: S607  any cat will do
        lock.close()
        assert not is_locked(path)
        child.communicate(b"")


def test_who_is_handed_the_file_keeps_the_lock(path: Path) -> None:
    lock = try_lock(path)
    assert lock is not None
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=(lock.fileno(),)) as heir:  # noqa: S607  the same
        lock.close()
        assert is_locked(path)
        heir.communicate(b"")
    assert not is_locked(path)
    with pytest.raises(ValueError, match="given back"):
        lock.fileno()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_locks(path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(fcntl, "flock", _failing(number))
    with pytest.raises(EmbeddedError, match="has no file locks") as caught:
        try_lock(path)
    assert "local disk" in caught.value.hint


def test_other_failures_are_not_hidden(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", _failing(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        try_lock(path)


def _failing(number: int) -> object:
    def flock(_fd: int, _operation: int) -> NoReturn:
        raise OSError(number, os.strerror(number))

    return flock
