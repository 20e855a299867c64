from __future__ import annotations

import ast
import json
import os
import socket
import sys
from pathlib import Path

import pytest

from tutti.bus.embedded import supervisor
from tutti.bus.embedded.supervisor import (
    HOST,
    PORTS,
    Inquiry,
    Supervisor,
    ailment,
    free_bytes,
    free_port,
    greeting_version,
    is_free,
    ps,
    start_mark,
    version_in_greeting,
    version_key,
    write_atomically,
)


@pytest.fixture
def kept(tmp_path: Path) -> Supervisor:
    record = {"port": 0, "monitor_port": 0, "grace": 0.0, "state": "starting", "reason": "", "from the future": True}
    record |= {"launch": "l", "silence": 0.5, "disk_min_bytes": 0}
    (tmp_path / "server.json").write_text(json.dumps(record))
    return Supervisor(tmp_path)


def test_it_needs_the_standard_library_only() -> None:
    """It is run by its path, without site-packages."""
    tree = ast.parse(Path(supervisor.__file__).read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names | {"__future__"}


@pytest.mark.parametrize(
    ("lower", "higher"), [("2.9.9", "2.15.0"), ("v2.14.3", "2.14.4"), ("", "0.0.1"), ("2.15.9", "3.0.0-RC.1")]
)
def test_versions_are_compared_by_number(lower: str, higher: str) -> None:
    assert version_key(lower) < version_key(higher)


@pytest.mark.parametrize(
    ("line", "version"),
    [
        (b'INFO {"server_name":"n","jetstream":true,"version":"2.15.1"} \r\n', "2.15.1"),
        (b'INFO {"server_name":"other","jetstream":true,"version":"2.15.1"}\r\n', ""),
        (b'INFO {"server_name":"n","version":"2.15.1"}\r\n', ""),
        (b"INFO []\r\n", ""),
        (b'INFO {"server_na', ""),
        (b"HTTP/1.1 400 Bad Request\r\n", ""),
        (b"", ""),
    ],
)
def test_only_our_server_with_jetstream_is_recognised(line: bytes, version: str) -> None:
    assert version_in_greeting(line, "n") == version


def test_a_port_is_free_until_somebody_listens() -> None:
    port = free_port()
    assert port in PORTS
    assert greeting_version(port, "n") == ""
    with socket.create_server((HOST, port)):
        assert not is_free(port)
    assert is_free(port)


def test_the_port_of_before_is_kept_waited_for_and_given_up(kept: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    kept.record["port"] = port
    assert kept.choose_port("port", patient=True) == port
    with socket.create_server((HOST, port)):
        assert kept.choose_port("port", patient=True) is None
        assert kept.choose_port("port", patient=False) not in {None, port}
        monkeypatch.setattr(supervisor, "PORT_PATIENCE_SECONDS", 0.0)
        assert kept.choose_port("port", patient=True) not in {None, port}


def test_a_start_mark_names_one_process() -> None:
    assert start_mark(os.getpid()) == start_mark(os.getpid()) != ""
    assert start_mark(2**22 + 1) == ""
    assert "python" in ps(os.getpid(), "command")


def test_what_it_does_not_know_is_carried_along(kept: Supervisor, tmp_path: Path) -> None:
    kept.write("running", version="9")
    written = json.loads((tmp_path / "server.json").read_bytes())
    assert written["from the future"] is True
    assert (written["state"], written["version"], written["supervisor_pid"]) == ("running", "9", os.getpid())


def test_a_note_that_cannot_be_written_ends_nothing(
    kept: Supervisor, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept.folder = tmp_path / "gone"
    kept.write("running")
    assert "was not written" in capsys.readouterr().out
    assert kept.evicted()


def test_last_words_are_of_this_start_and_not_idle_talk(kept: Supervisor, tmp_path: Path) -> None:
    (tmp_path / "nats.log").write_text("[FTL] of an earlier start\n")
    kept.log_before = (tmp_path / "nats.log").stat().st_size
    with (tmp_path / "nats.log").open("a") as log:
        log.write("[INF] hello\n[FTL] no room\n")
    assert kept.last_words() == "\n    [FTL] no room"


def test_output_does_not_grow_for_ever(kept: Supervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "OUTPUT_MAX_BYTES", 10)
    (tmp_path / "supervisor.log").write_text("x" * 11)
    kept.trim_output()
    assert (tmp_path / "supervisor.log").read_text() == ""


WRITE_ERROR = b"JetStream stream '$G > kept' write error: write 1.blk: no space left on device"


@pytest.mark.parametrize(
    ("answer", "sick"),
    [
        (b'HTTP/1.0 200 OK\r\n\r\n{"status":"ok"}', ""),
        (b'HTTP/1.0 503 Service Unavailable\r\n\r\n{"error":"' + WRITE_ERROR + b'"}', WRITE_ERROR.decode()),
        (b'HTTP/1.0 503 Service Unavailable\r\n\r\n{"error":"JetStream stream is not current"}', ""),
        (b"HTTP/1.0 503 Service Unavailable\r\n\r\nwrite error", ""),
        (b"HTTP/1.0 503 Service Unavailable\r\n\r\n[]", ""),
        (b"who is there?", ""),
    ],
)
def test_only_a_write_error_is_an_ailment(answer: bytes, sick: str) -> None:
    assert ailment(answer) == sick


def test_an_answer_is_complete_when_the_server_has_ended_it() -> None:
    with socket.create_server((HOST, 0)) as server:
        inquiry = Inquiry(server.getsockname()[1], "/secret")
        connection, _ = server.accept()
        with connection:
            assert connection.recv(4096).startswith(b"GET /secret/healthz HTTP/1.0\r\n")
            connection.sendall(b"HTTP/1.0 200")
            assert inquiry.answer() is None
        while inquiry.answer() is None:
            pass
        assert inquiry.answer() == b"HTTP/1.0 200"
        inquiry.close()


class Dead:
    """A server's process that ends when it is told to."""

    pid = 77
    returncode: int | None = None

    def poll(self) -> int | None:
        return self.returncode

    def kill(self) -> None:
        self.returncode = -9

    def send_signal(self, number: int) -> None:
        self.returncode = -number

    def wait(self) -> int:
        return self.returncode or 0


@pytest.fixture
def served(kept: Supervisor, tmp_path: Path) -> Supervisor:
    (tmp_path / "secret.json").write_text('{"monitor_path": "/secret"}')
    kept.server = Dead()  # type: ignore[assignment]  # as much of a process as is needed
    kept.ready = kept.answered = True
    kept.record["restarts"] = 0
    return kept


def test_silence_is_counted_in_small_steps(served: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor that was frozen, and its server with it, sees a long time pass at once."""
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    monkeypatch.setattr(served, "inquire", lambda: None)
    served.record["silence"] = 2.0
    served.look_after_server()
    now += 3600.0
    served.look_after_server()
    assert served.server is not None
    assert served.server.poll() is None
    now += 0.5
    served.look_after_server()
    assert served.server.poll() == -9
    served.bury_server()
    assert "(pid 77) did not answer for 2 s and was killed" in served.record["reason"]


def test_a_server_that_cannot_write_is_ended_when_there_is_room_and_less_and_less_often(
    served: Supervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    served.note_ailment("write error")
    assert json.loads((tmp_path / "health.json").read_bytes())["sick"] == "write error"
    served.record["disk_min_bytes"] = free_bytes(tmp_path) * 2
    served.cure()
    assert served.server is not None
    assert served.server.poll() is None, "there is no room"

    served.record["disk_min_bytes"] = 0
    ended_at = []
    for _ in range(300):
        served.cure()
        assert served.server is not None
        if served.server.poll() is not None:
            ended_at.append(now - 1000.0)
            served.bury_server()
            assert "there is room on the disk now: write error" in served.record["reason"]
            assert served.sick == ""
            served.server = Dead()  # type: ignore[assignment]  # as above
            served.note_ailment("write error")
        now += 1.0
    assert ended_at == [0, 1, 3, 7, 15, 31, 63, 123, 183, 243]


def test_the_heart_beats_in_place(kept: Supervisor, tmp_path: Path) -> None:
    kept.beat()
    first = (tmp_path / "health.json").stat()
    kept.beat()
    assert json.loads((tmp_path / "health.json").read_bytes())["beats"] == 1, "not yet due"
    kept.beat(now=True)
    said = json.loads((tmp_path / "health.json").read_bytes())
    assert said == {"launch": "l", "pid": os.getpid(), "started": start_mark(os.getpid()), "beats": 2, "sick": ""}
    assert ((tmp_path / "health.json").stat().st_ino, first.st_size) == (first.st_ino, supervisor.BEAT_BYTES)


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"one")
    write_atomically(path, b"two")
    assert path.read_bytes() == b"two"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]
