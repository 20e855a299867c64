"""Locks between processes that cannot go stale: the kernel drops them with the process that holds them.

A lock belongs to this process alone. A program it executes does not get it (close-on-exec); a copy of it made by `fork`
would, so the copy closes it at once: `multiprocessing` children do not keep a server alive.
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from weakref import WeakSet

from tutti.errors import EmbeddedError

if sys.platform != "win32":
    import fcntl

_HELD_BY_ANOTHER: Final = frozenset({errno.EWOULDBLOCK, errno.EACCES})
_held: WeakSet[HeldLock] = WeakSet()


class HeldLock:
    """A lock that we hold, until `close` or the end of this process."""

    __slots__ = ("__weakref__", "_fd", "path")

    def __init__(self, fd: int, path: Path) -> None:
        self._fd: int | None = fd
        self.path = path
        _held.add(self)

    @property
    def held(self) -> bool:
        return self._fd is not None

    def fileno(self) -> int:
        if self._fd is None:
            raise ValueError(f"the lock {self.path} was given back")
        return self._fd

    def close(self) -> None:
        """Give it back. Who inherited its file (a supervisor) keeps it."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def __del__(self) -> None:
        self.close()  # a task cancelled between taking the lock and using it must not keep it

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def try_lock(path: Path, *, shared: bool = False) -> HeldLock | None:
    """The lock if it can be had now, else None. The file is made if there is none."""
    # Known to `_held` before it is locked, so that a thread that forks just now cannot leave it in the child.
    lock = HeldLock(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), path)
    got = False
    try:
        got = _try_flock(lock, shared=shared) and _still_names(path, lock)
    finally:
        if not got:
            lock.close()
    return lock if got else None


def is_locked(path: Path) -> bool:
    """Somebody holds it exclusively. Changes nothing."""
    try:
        lock = HeldLock(os.open(path, os.O_RDONLY | os.O_CLOEXEC), path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    with lock:
        return not _try_flock(lock, shared=True)


def _try_flock(lock: HeldLock, *, shared: bool) -> bool:
    try:
        fcntl.flock(lock.fileno(), (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _HELD_BY_ANOTHER:
            return False
        if error.errno in {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}:
            raise EmbeddedError(
                f"the file system of {lock.path.parent} has no file locks ({os.strerror(error.errno)})",
                hint="name a data folder on a local disk: connect(data=…) or TUTTI_DATA",
            ) from error
        raise
    return True


def _still_names(path: Path, lock: HeldLock) -> bool:
    """A lock on a file that was removed meanwhile would be a lock that nobody else sees."""
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    ours = os.fstat(lock.fileno())
    return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)


def _close_in_forked_child() -> None:
    for lock in list(_held):
        lock.close()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_close_in_forked_child)
