"""What a test may leave behind: nothing. Threads, children, tasks and foreign connections, as values to compare."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

GRACE_SECONDS: Final = 2.0  # what is ending already may end; a clean test never waits
PROCESS_GRACE_SECONDS: Final = 15.0  # a detached supervisor first notices that its last user is gone
_PROC: Final = Path("/proc")

# Threads that belong to somebody else, by the start of their name.
TOLERATED_THREADS: Final = {
    "asyncio_": "the executor of an event loop that lives longer than one test; its loop joins it",
    "pytest_timeout": "pytest-timeout's own timer",
}
TOLERATED_CHILDREN: Final = {
    "resource_tracker": "multiprocessing's own helper; ends with the process",
    "postgres_keeper.py": "the session's PostgreSQL, started by the first test that needs it; looked for at the end",
}


def threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if not thread.name.startswith(tuple(TOLERATED_THREADS))}


def threads_left(before: set[threading.Thread]) -> list[str]:
    deadline = time.monotonic() + GRACE_SECONDS
    for thread in threads() - before:
        thread.join(max(0.0, deadline - time.monotonic()))
    return sorted(f"thread {thread.name!r}" for thread in threads() - before if thread.is_alive())


def children() -> set[int]:
    """The children of this process; empty where the system does not list them."""
    listings = _PROC.glob(f"{os.getpid()}/task/*/children")
    return {int(pid) for listing in listings for pid in _text(listing).split()}


def children_left(before: set[int]) -> list[str]:
    def left() -> list[str]:
        lines = {pid: command_line(pid) for pid in children() - before}
        return [
            f"process {pid}: {line}"
            for pid, line in sorted(lines.items())
            if line and not any(name in line for name in TOLERATED_CHILDREN)
        ]

    return _until_none(left, GRACE_SECONDS)


def processes_left(folder: Path) -> list[str]:
    """Processes, detached ones too, that work in `folder` or were started with a path in it."""

    def left() -> list[str]:
        pids = (int(entry.name) for entry in _PROC.glob("[0-9]*") if int(entry.name) != os.getpid())
        return [f"process {pid}: {command_line(pid)}" for pid in pids if _works_in(pid, str(folder))]

    return _until_none(left, PROCESS_GRACE_SECONDS)


async def tasks_left(before: set[asyncio.Task[Any]]) -> list[str]:
    tasks = asyncio.all_tasks() - before - {asyncio.current_task()}
    if not tasks:
        return []
    _, pending = await asyncio.wait(tasks, timeout=GRACE_SECONDS)
    return sorted(f"task {task.get_name()!r} in {getattr(task.get_coro(), '__qualname__', '?')}" for task in pending)


def leaves_machine(address: object) -> bool:
    """Whether this socket address is outside the loopback interface. Names are not resolved."""
    if not isinstance(address, tuple) or not address:
        return False  # a Unix socket
    host = str(address[0]).partition("%")[0]
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"


def command_line(pid: int) -> str:
    return _text(_PROC / str(pid) / "cmdline").replace("\0", " ").strip()


def _works_in(pid: int, folder: str) -> bool:
    try:
        inside = str((_PROC / str(pid) / "cwd").readlink()).startswith(folder)
    except OSError:
        inside = False
    return inside or folder in command_line(pid)


def _until_none(left: Callable[[], list[str]], seconds: float) -> list[str]:
    deadline = time.monotonic() + seconds
    for _ in _ticks(deadline):
        if not (found := left()):
            return []
    return found


def _ticks(deadline: float) -> Iterator[None]:
    yield
    while time.monotonic() < deadline:
        time.sleep(0.02)
        yield


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:  # it ended while we looked
        return ""
