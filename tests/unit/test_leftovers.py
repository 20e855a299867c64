"""The guards of the suite are tests too: each must be able to fail."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests import leftovers


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "GRACE_SECONDS", 0.05)
    monkeypatch.setattr(leftovers, "PROCESS_GRACE_SECONDS", 0.05)


def test_a_thread_is_noticed_until_it_ends(impatient: None) -> None:
    before, end = leftovers.threads(), threading.Event()
    thread = threading.Thread(target=end.wait, name="forgotten")
    thread.start()
    try:
        assert leftovers.threads_left(before) == ["thread 'forgotten'"]
    finally:
        end.set()
        thread.join()
    assert leftovers.threads_left(before) == []


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="only Linux lists the children of a process")
def test_a_child_is_noticed_by_parentage_and_by_folder(impatient: None, tmp_path: Path) -> None:
    before = leftovers.children()
    program = "import sys; print('here', flush=True); sys.stdin.read()"
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path
    )
    try:
        assert child.stdout is not None
        child.stdout.readline()  # until it runs its own program, the system shows a child without a command line
        assert [line.split(":")[0] for line in leftovers.children_left(before)] == [f"process {child.pid}"]
        assert [line.split(":")[0] for line in leftovers.processes_left(tmp_path)] == [f"process {child.pid}"]
    finally:
        child.communicate()
    assert leftovers.children_left(before) == []
    assert leftovers.processes_left(tmp_path) == []


async def test_a_task_is_noticed_until_it_ends(impatient: None) -> None:
    before, end = asyncio.all_tasks(), asyncio.Event()
    task = asyncio.create_task(end.wait(), name="forgotten")
    assert await leftovers.tasks_left(before) == ["task 'forgotten' in Event.wait"]
    end.set()
    await task
    assert await leftovers.tasks_left(before) == []


@pytest.mark.parametrize(
    "address", [("127.0.0.1", 4222), ("127.9.9.9", 1), ("::1", 4222, 0, 0), ("localhost", 1), "/run/socket"]
)
def test_the_loopback_interface_is_ours(address: object) -> None:
    assert not leftovers.leaves_machine(address)


EVERYWHERE = "0.0.0.0"  # noqa: S104  the point is that binding to it is refused


@pytest.mark.parametrize(
    "address", [("192.0.2.1", 4222), (EVERYWHERE, 0), ("", 0), ("::", 0, 0, 0), ("example.org", 80)]
)
def test_other_machines_are_not(address: object) -> None:
    assert leftovers.leaves_machine(address)


def test_a_connection_to_another_machine_is_refused_and_kept(connections_refused: list[str]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock, pytest.raises(PermissionError, match="loopback"):
        sock.connect(("192.0.2.1", 9))
    assert connections_refused == ["socket.connect(('192.0.2.1', 9))"]
    connections_refused.clear()


GUARDED = """
import asyncio, subprocess, sys, threading
KEPT = []

async def test_task():
    KEPT.append(asyncio.create_task(asyncio.Event().wait(), name="forgotten task"))

async def test_lost_exception():
    async def fails(): raise ValueError("nobody listens")
    asyncio.create_task(fails())
    await asyncio.sleep(0)

def test_thread():
    thread = threading.Thread(target=threading.Event().wait, daemon=True, name="forgotten thread")
    thread.start()
"""


def test_the_guards_fail_the_tests_that_need_it(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    (tmp_path / "conftest.py").write_text(
        "from tests.conftest import *\nfrom tests import leftovers\nleftovers.GRACE_SECONDS = 0.05\n"
    )
    (tmp_path / "test_guarded.py").write_text(GUARDED)
    arguments = [
        f"--rootdir={tmp_path}",
        "-c/dev/null",
        "-oasyncio_mode=auto",
        f"-opythonpath={root}",
        "-pno:cacheprovider",
        "-pno:tutti",
        "-q",
    ]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments, f"--basetemp={tmp_path / 'base'}", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "3 passed, 3 errors" in ran.stdout, ran.stdout + ran.stderr
    for line in (
        "left behind: task 'forgotten task' in Event.wait",
        "ValueError('nobody listens')",
        "left behind: thread 'forgotten thread'",
    ):
        assert line in ran.stdout
