"""The keeper, with small programs in the place of PostgreSQL."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tutti.resources import postgres_keeper

PATIENCE = 10.0


def kept(*program: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-I", "-S", postgres_keeper.__file__, str(os.geteuid()), str(os.getegid()), *program]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def test_it_ends_with_the_status_of_its_program() -> None:
    with kept("sh", "-c", "exit 7") as keeper:
        assert keeper.wait(PATIENCE) == 7


def test_it_ends_its_program_when_its_starter_hangs_up() -> None:
    with kept("sleep", "600") as keeper:
        assert keeper.stdout is not None
        assert keeper.stdin is not None
        pid = int(keeper.stdout.readline())
        assert alive(pid)
        keeper.stdin.close()
        assert keeper.wait(PATIENCE) == 128 + signal.SIGINT
        assert not alive(pid)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a killed keeper leaves its program behind")
def test_its_program_does_not_outlive_a_killed_keeper() -> None:
    with kept("sleep", "600") as keeper:
        assert keeper.stdout is not None
        pid = int(keeper.stdout.readline())
        keeper.kill()
    deadline = time.monotonic() + PATIENCE
    while alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)
