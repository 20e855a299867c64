from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tutti.bus.embedded import processes
from tutti.bus.embedded.folder import FORMAT, Folder, Heartbeat, ServerRecord
from tutti.bus.embedded.locks import try_lock
from tutti.bus.embedded.processes import Pulse, end_hung_supervisor, end_orphan, is_server_of
from tutti.bus.embedded.supervisor import start_mark
from tutti.errors import EmbeddedError

_DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.setattr(processes, "GRACEFUL_SECONDS", 0.1)
    monkeypatch.setattr(processes, "KILLED_SECONDS", 5.0)
    folder = Folder(tmp_path)
    folder.create()
    return folder


@pytest.fixture
def orphan(folder: Folder) -> Iterator[subprocess.Popen[bytes]]:
    """A process with a server's command line that holds the server's lock, and does not hear SIGTERM."""
    lock = try_lock(folder.server_lock)
    assert lock is not None
    child = subprocess.Popen(
        [sys.executable, "-c", _DEAF, "-c", str(folder.config), "-p", "1"],
        pass_fds=(lock.fileno(),),
        stdout=subprocess.PIPE,
    )
    lock.close()
    assert child.stdout is not None
    child.stdout.readline()
    yield child
    child.kill()
    child.wait()
    child.stdout.close()


def record(pid: int, started: str) -> ServerRecord:
    return ServerRecord(
        format=FORMAT,
        tutti="",
        launch="",
        name="",
        state="running",
        binary="",
        sync=True,
        grace=1.0,
        pid=pid,
        started=started,
    )


def test_a_process_is_ours_by_start_and_command_line(folder: Folder, orphan: subprocess.Popen[bytes]) -> None:
    assert is_server_of(orphan.pid, start_mark(orphan.pid), folder)
    assert is_server_of(orphan.pid, "", folder)
    assert not is_server_of(orphan.pid, "another start", folder)
    assert not is_server_of(orphan.pid, "", Folder(folder.data / "other"))
    assert not is_server_of(os.getpid(), "", folder)


def test_an_orphan_of_the_record_is_ended(folder: Folder, orphan: subprocess.Popen[bytes]) -> None:
    end_orphan(folder, record(orphan.pid, start_mark(orphan.pid)))
    assert orphan.wait(5) == -9


def test_an_orphan_that_only_the_server_itself_noted_is_ended(folder: Folder, orphan: subprocess.Popen[bytes]) -> None:
    folder.pid_file.write_text(str(orphan.pid))
    end_orphan(folder, None)
    assert orphan.wait(5) == -9


def test_a_reused_pid_is_left_alone(
    folder: Folder, orphan: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "KILLED_SECONDS", 0.1)
    with pytest.raises(EmbeddedError, match="could not be ended") as caught:
        end_orphan(folder, record(orphan.pid, "another start"))
    assert str(folder.config) in caught.value.hint
    assert orphan.poll() is None


# A supervisor whose heart stands still


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    yield now
    monkeypatch.undo()


@pytest.fixture
def hung(folder: Folder) -> Iterator[subprocess.Popen[bytes]]:
    """A process with a supervisor's command line that beat once."""
    child = subprocess.Popen(
        [sys.executable, "-c", _DEAF, "supervisor.py", str(folder.path), "8"], stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    child.stdout.readline()
    folder.write_record(record(0, ""))
    beat(folder, child.pid, start_mark(child.pid))
    yield child
    child.kill()
    child.wait()
    child.stdout.close()


def beat(folder: Folder, pid: int, started: str, beats: int = 1) -> None:
    folder.health.write_bytes(msgspec.json.encode(Heartbeat("", pid, started, beats)))


def look(folder: Folder, pulse: Pulse, clock: list[float], seconds: int) -> bool:
    for _ in range(seconds):
        clock[0] += 1.0
        if end_hung_supervisor(folder, pulse):
            return True
    return False


def test_a_supervisor_that_does_not_beat_is_killed(
    folder: Folder, hung: subprocess.Popen[bytes], clock: list[float]
) -> None:
    pulse = Pulse(folder)
    assert not look(folder, pulse, clock, 9)
    beat(folder, hung.pid, start_mark(hung.pid), 2)
    assert not look(folder, pulse, clock, 11), "it beat once more"
    assert look(folder, pulse, clock, 1)
    assert hung.wait(5) == -9


def test_time_in_which_nobody_looked_does_not_count(
    folder: Folder, hung: subprocess.Popen[bytes], clock: list[float]
) -> None:
    pulse = Pulse(folder)
    assert not look(folder, pulse, clock, 1)
    clock[0] += 3600.0
    assert not look(folder, pulse, clock, 8)
    assert hung.poll() is None


def test_nobody_else_is_killed_for_a_heartbeat(
    folder: Folder, hung: subprocess.Popen[bytes], clock: list[float]
) -> None:
    for pid, started in ((hung.pid, "another start"), (hung.pid, ""), (os.getpid(), start_mark(os.getpid()))):
        beat(folder, pid, started)
        assert not look(folder, Pulse(folder), clock, 20)
    folder.health.unlink()
    assert not look(folder, Pulse(folder), clock, 20), "an older Tutti's supervisor has no heartbeat"
    assert hung.poll() is None


def test_nothing_is_killed_that_could_not_be_replaced(
    folder: Folder, hung: subprocess.Popen[bytes], clock: list[float]
) -> None:
    folder.write_record(msgspec.structs.replace(record(0, ""), disk_min_bytes=2**60))
    assert not look(folder, Pulse(folder), clock, 20)
    assert hung.poll() is None


def test_without_a_server_nobody_is_signalled(folder: Folder) -> None:
    folder.pid_file.write_text("no number")
    end_orphan(folder, record(os.getpid(), ""))
    end_orphan(folder, None)
