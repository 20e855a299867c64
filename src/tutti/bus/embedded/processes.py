"""Processes of earlier supervisors: found, proved to be ours, ended. A pid alone proves nothing: it may be reused."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from tutti.bus.embedded.folder import Folder, ServerRecord
from tutti.bus.embedded.locks import is_locked
from tutti.bus.embedded.supervisor import HAS_PROC, SILENCE_STEP_MAX_SECONDS, free_bytes, ps, start_mark
from tutti.errors import EmbeddedError

GRACEFUL_SECONDS: Final = 5.0
KILLED_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.02


def end_orphan(folder: Folder, last: ServerRecord | None) -> None:
    """After this no nats-server of this folder runs. Only for who holds the supervisor's lock."""
    for number, patience in ((signal.SIGTERM, GRACEFUL_SECONDS), (signal.SIGKILL, KILLED_SECONDS)):
        if not is_locked(folder.server_lock):
            return
        for pid, started in _candidates(folder, last):
            _signal_if(pid, number, partial(is_server_of, pid, started, folder))
        deadline = time.monotonic() + patience
        while is_locked(folder.server_lock):
            if time.monotonic() > deadline:
                break
            time.sleep(_POLL_SECONDS)
        else:
            return
    raise EmbeddedError(
        f"a nats-server of {folder.data} still runs without its supervisor, and could not be ended",
        hint=f"find it (its command line has {folder.config}) and end it; was it started in another container?",
    )


class Pulse:
    """The heartbeat of the supervisor, as seen by one user who looks again and again."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._seen: tuple[int, bytes] | None = None
        self._looked_at = time.monotonic()
        self._silence = 0.0

    def silence(self) -> float:
        """Seconds without a beat, by our own clock and only while we looked: we may have been frozen, too."""
        now = time.monotonic()
        passed, self._looked_at = now - self._looked_at, now
        seen = self._look()
        if seen is None or seen != self._seen:
            self._seen, self._silence = seen, 0.0
        else:
            self._silence += min(passed, SILENCE_STEP_MAX_SECONDS)
        return self._silence

    def _look(self) -> tuple[int, bytes] | None:
        try:
            return self._folder.health.stat().st_mtime_ns, self._folder.health.read_bytes()
        except OSError:
            return None


def end_hung_supervisor(folder: Folder, pulse: Pulse) -> bool:
    """Kill the supervisor if its heart stands still; whether it was. Its lock is free then, and who wins that replaces
    it. It is killed rather than passed over: it could wake up later and meddle with its successor's server."""
    silence = pulse.silence()
    record = folder.record()
    if record is None or silence <= record.silence or free_bytes(folder.path) < record.disk_min_bytes:
        return False  # on a full disk nothing could be started in its place
    last = folder.heartbeat()
    if last is None:
        return False
    return _signal_if(last.pid, signal.SIGKILL, partial(is_supervisor_of, last.pid, last.started, folder))


def is_supervisor_of(pid: int, started: str, folder: Folder) -> bool:
    """The process has the recorded start and supervises this very folder."""
    return bool(started) and start_mark(pid) == started and f"supervisor.py {folder.path} " in _command_line(pid)


def is_server_of(pid: int, started: str, folder: Folder) -> bool:
    """The process has the recorded start (if one is known) and serves this very folder."""
    if started and start_mark(pid) != started:
        return False
    return f" -c {folder.config} -p " in _command_line(pid)


def _candidates(folder: Folder, last: ServerRecord | None) -> list[tuple[int, str]]:
    """The supervisor's note, and the server's own: the supervisor may have died before it wrote its."""
    found = [(last.pid, last.started)] if last is not None and last.pid else []
    with contextlib.suppress(FileNotFoundError, ValueError):
        found.append((int(folder.pid_file.read_text(encoding="ascii")), ""))
    return found


def _signal_if(pid: int, number: signal.Signals, is_ours: Callable[[], bool]) -> bool:
    """Whether it was signalled."""
    try:
        if sys.platform == "linux":
            handle = os.pidfd_open(pid)  # names this process for good: the pid cannot be reused between look and signal
            try:
                ours = is_ours()
                if ours:
                    signal.pidfd_send_signal(handle, number)
            finally:
                os.close(handle)
        elif ours := is_ours():
            os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return ours


def _command_line(pid: int) -> str:
    if HAS_PROC:
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            return ""
    return ps(pid, "command")
