"""Keeps one nats-server alive for as long as somebody uses it, then ends it.

This file runs alone, as `python -I -S supervisor.py <server folder> <fd of the supervisor lock>`: it imports the
standard library only, so that it starts in a blink, stays small, and does not care how its starter found Tutti.

1. It is the supervisor while it holds `supervisor.lock`, which its starter won and handed down; the kernel drops it.
2. A server is started only with `server.lock`, which the server inherits: there are never two, whoever is killed.
3. A server that dies is started again, on its port, with a growing pause. One that never answered is given up.
4. Nobody holds `users.lock` for the length of the grace: it ends the server while it keeps newcomers out, then itself.
5. `server.json` says at any time what it knows. What else stands in that file is carried along.
6. It asks the server how it is. One that does not answer is killed; one that could not write to its disk, and would
   refuse for ever, is started anew once there is room.
7. `health.json` is its heartbeat, and says what ails the server. Users replace a supervisor whose heart stands still.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

if sys.platform != "win32":
    import fcntl

HOST: Final = "127.0.0.1"
# Below the range that Linux (32,768 up) and macOS (49,152 up) give to outgoing connections: a client that reconnects to
# a port of that range while the server is down can be connected to itself.
PORTS: Final = range(20_000, 32_768)

TICK_SECONDS: Final = 0.1  # how soon a death or the last user's leave is noticed
STARTING_TICK_SECONDS: Final = 0.01
START_ATTEMPTS_COUNT: Final = 3  # the port may be lost in a race; anything else will not get better
PAUSE_MIN_SECONDS: Final = 0.05
PAUSE_MAX_SECONDS: Final = 5.0
STEADY_SECONDS: Final = 10.0  # a server that lived so long did not die of its start
PORT_PATIENCE_SECONDS: Final = 3.0  # clients know the port: wait so long for it to become free
SERVER_LOCK_PATIENCE_SECONDS: Final = 10.0
END_PATIENCE_SECONDS: Final = 10.0  # for a graceful end, then SIGKILL
OUTPUT_MAX_BYTES: Final = 1_000_000
BEAT_SECONDS: Final = 1.0
BEAT_BYTES: Final = 4_096  # written over and over in place, which a full disk allows
INQUIRY_SECONDS: Final = 2.0  # between an answer of the server and the next question
INQUIRY_CONNECT_SECONDS: Final = 0.5
INQUIRY_MAX_BYTES: Final = 65_536
SILENCE_STEP_MAX_SECONDS: Final = 1.0  # counts at most at once: who was frozen with the server shall not blame it
CURE_PAUSE_MIN_SECONDS: Final = 1.0  # between restarts for write errors, growing
CURE_PAUSE_MAX_SECONDS: Final = 60.0
SICK_MAX_CHARACTERS: Final = 1_000
HAS_PROC: Final = Path("/proc/self/stat").exists()
_PR_SET_PDEATHSIG: Final = 1


def start_mark(pid: int) -> str:
    """When the process began, in the system's own words; with the pid it names one process. Empty if there is none."""
    if HAS_PROC:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        return stat.rpartition(")")[2].split()[19]
    return ps(pid, "lstart")


def ps(pid: int, column: str) -> str:
    """One column of `ps` for one process, where there is no /proc."""
    command = ["ps", "-ww", "-o", f"{column}=", "-p", str(pid)]
    env = {"PATH": "/bin:/usr/bin", "LC_ALL": "C", "TZ": "UTC"}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False).stdout.strip()


def write_atomically(path: Path, data: bytes) -> None:
    """Readers see the old or the new content, also after a crash."""
    scratch = path.with_name(f"{path.name}.{os.getpid()}.new")
    with scratch.open("wb") as file:
        scratch.chmod(0o600)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)


def free_bytes(folder: Path) -> int:
    """What is left on the disk for who is not root."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


class Inquiry:
    """One question to the server's `/healthz`. The answer is looked for now and then: nobody waits for it."""

    def __init__(self, port: int, path: str) -> None:
        self.connection = socket.create_connection((HOST, port), timeout=INQUIRY_CONNECT_SECONDS)
        self.said = b""
        try:
            self.connection.sendall(f"GET {path}/healthz HTTP/1.0\r\nHost: {HOST}\r\n\r\n".encode())
            self.connection.setblocking(False)  # noqa: FBT003  it has no other form
        except OSError:
            self.close()
            raise

    def answer(self) -> bytes | None:
        """All that it said, once it has ended; None before."""
        try:
            while chunk := self.connection.recv(INQUIRY_MAX_BYTES):
                self.said += chunk[: INQUIRY_MAX_BYTES - len(self.said)]
        except BlockingIOError:
            return None
        return self.said

    def close(self) -> None:
        self.connection.close()


def ailment(answer: bytes) -> str:
    """What keeps the server from storing, in its own words; empty if nothing does. That it has not caught up yet, or
    repairs something, is no ailment: it heals itself."""
    head, _, body = answer.partition(b"\r\n\r\n")
    if b" 200 " in head.partition(b"\r\n")[0]:
        return ""
    try:
        error = str(json.loads(body)["error"])
    except (ValueError, TypeError, KeyError):
        return ""
    return error[:SICK_MAX_CHARACTERS] if "write error" in error else ""


def log(text: str) -> None:
    """A line in `supervisor.log`, which is our standard output."""
    with contextlib.suppress(OSError):
        print(time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), text, flush=True)


class Supervisor:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.record: dict[str, Any] = json.loads((folder / "server.json").read_bytes())
        self.users = os.open(folder / "users.lock", os.O_RDWR | os.O_CREAT, 0o600)
        self.server: subprocess.Popen[bytes] | None = None
        self.began = 0.0  # when the current server was started
        self.ready = False
        self.answered = False  # a server of ours has answered once
        self.attempts = 0  # deaths in a row
        self.again = 0.0  # not before this moment is a server started
        self.port_wanted_since: float | None = None
        self.idle_since: float | None = None
        self.told: str = ""  # why we were told to end
        self.log_before = 0
        self.output_before = 0
        self.started = start_mark(os.getpid())
        self.heart = os.open(folder / "health.json", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.beats = 0
        self.beat_at = 0.0  # when the next beat is due
        self.inquiry: Inquiry | None = None
        self.inquire_at = 0.0
        self.looked_at = 0.0
        self.silence = 0.0  # seconds that the server left a question unanswered
        self.sick = ""  # why the server stores nothing
        self.cures = 0  # restarts for write errors in a row
        self.cure_at = 0.0
        self.killed_because = ""

    # The life of the supervisor

    def run(self) -> None:
        while not (reason := self.reason_to_end()):
            if self.server is None:
                self.start_server()
            elif self.server.poll() is not None:
                self.bury_server()
            elif not self.ready:
                self.see_whether_ready()
            else:
                self.look_after_server()
            self.beat()
            time.sleep(TICK_SECONDS if self.ready else STARTING_TICK_SECONDS)
        self.end_server()
        log(f"end: {reason}")
        if self.evicted():
            return  # a folder of that name belongs to others now
        if self.lock_out_users():
            for left_behind in (self.folder / "users").glob("*.json"):
                left_behind.unlink(missing_ok=True)
        self.write("failed" if self.given_up else "stopped", reason=reason, pid=0, started="", supervisor_pid=0)

    @property
    def given_up(self) -> bool:
        return not self.answered and self.attempts >= START_ATTEMPTS_COUNT

    def reason_to_end(self) -> str:
        if self.told:
            return self.told
        if self.given_up:
            return str(self.record["reason"])
        if self.evicted():
            return "its folder was removed"
        if self.unused():
            return "its last user left"
        return ""

    def beat(self, *, now: bool = False) -> None:
        """Say that we live. Written in place: on a full disk `server.json` cannot be replaced."""
        moment = time.monotonic()
        if moment < self.beat_at and not now:
            return
        self.beat_at = moment + BEAT_SECONDS
        self.beats += 1
        said = {
            "launch": self.record.get("launch", ""),
            "pid": os.getpid(),
            "started": self.started,
            "beats": self.beats,
            "sick": self.sick,
        }
        try:
            os.pwrite(self.heart, json.dumps(said).encode().ljust(BEAT_BYTES), 0)
        except OSError:
            with contextlib.suppress(OSError):
                os.utime(self.heart)  # the time of the file is a heartbeat, too

    def unused(self) -> bool:
        """Nobody has held the users' lock since the grace began. If so we hold it now, and nobody can come in."""
        if not self.lock_out_users():
            self.idle_since = None
            return False
        now = time.monotonic()
        self.idle_since = now if self.idle_since is None else self.idle_since
        if now - self.idle_since >= float(self.record["grace"]):
            return True
        fcntl.flock(self.users, fcntl.LOCK_UN)
        return False

    def lock_out_users(self) -> bool:
        """Nobody uses the server, and nobody can come in. False: somebody does, and nothing is locked."""
        try:
            fcntl.flock(self.users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def evicted(self) -> bool:
        """Our folder was removed or replaced: those who come now lock other files than we do."""
        try:
            there = (self.folder / "users.lock").stat()
        except OSError:
            return True
        ours = os.fstat(self.users)
        return (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino)

    # The life of a server

    def start_server(self) -> None:
        if time.monotonic() < self.again:
            return
        port = self.choose_port("port", patient=self.answered)
        if port is None:
            return
        monitor_port = self.choose_port("monitor_port", patient=False)
        lock = self.take_server_lock()
        if lock is None:
            self.told = "another nats-server of this folder is still running and did not end"
            return
        self.log_before = _size(self.folder / "nats.log")
        self.trim_output()
        try:
            self.spawn(port, int(monitor_port or 0), lock)
        except OSError as error:
            self.server_died(f"{self.record['binary']} cannot be run: {error}")
        finally:
            os.close(lock)

    def spawn(self, port: int, monitor_port: int, lock: int) -> None:
        command = [
            self.record["binary"],
            "-c",
            str(self.folder / "nats.conf"),
            "-p",
            str(port),
            "-m",
            str(monitor_port),
        ]
        self.server = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            pass_fds=(lock,),
            preexec_fn=dies_with_us(),  # noqa: PLW1509  this process has one thread: nothing is locked across the fork
        )
        self.began = time.monotonic()
        self.ready = False
        state = "restarting" if self.answered else "starting"
        mark = start_mark(self.server.pid)
        self.write(state, pid=self.server.pid, started=mark, port=port, monitor_port=monitor_port)

    def see_whether_ready(self) -> None:
        version = greeting_version(int(self.record["port"]), str(self.record["name"]))
        if not version:
            return
        self.ready = True
        self.silence = 0.0
        self.looked_at = time.monotonic()
        self.inquire_at = self.looked_at + INQUIRY_SECONDS
        self.port_wanted_since = None
        restarts = int(self.record["restarts"]) + (1 if self.answered else 0)
        self.answered = True
        newest = max(str(self.record["newest_version"]), version, key=version_key)
        self.write("running", reason="", version=version, newest_version=newest, restarts=restarts, since=time.time())
        log(f"nats-server {version} (pid {self.record['pid']}) serves on {HOST}:{self.record['port']}")

    def bury_server(self) -> None:
        server = self.server
        if server is None:
            return
        code = server.returncode
        how = f"signal {-code}" if code < 0 else f"exit status {code}"
        if self.ready and time.monotonic() - self.began > STEADY_SECONDS:
            self.attempts = 0
        why = self.killed_because or f"ended by {how}{self.last_words()}"
        self.server_died(f"nats-server (pid {server.pid}) {why}")

    def server_died(self, reason: str) -> None:
        log(reason)
        pause = min(PAUSE_MAX_SECONDS, PAUSE_MIN_SECONDS * 2**self.attempts)
        self.attempts += 1
        self.again = time.monotonic() + pause
        self.server = None
        self.ready = False
        self.killed_because = ""
        self.sick = ""
        self.forget_inquiry()
        self.write("restarting" if self.answered else "starting", reason=reason, pid=0, started="")

    def end_server(self) -> None:
        server = self.server
        if server is None or server.poll() is not None:
            return
        server.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + END_PATIENCE_SECONDS
        while server.poll() is None:
            self.beat()
            if time.monotonic() > deadline:
                log(f"nats-server (pid {server.pid}) did not end within {END_PATIENCE_SECONDS} s: killed")
                server.kill()
                server.wait()
            time.sleep(STARTING_TICK_SECONDS)

    # The health of a server

    def look_after_server(self) -> None:
        """Ask how it is, and do something about it."""
        now = time.monotonic()
        passed, self.looked_at = min(now - self.looked_at, SILENCE_STEP_MAX_SECONDS), now
        if self.inquiry is None and now < self.inquire_at:
            self.cure()
            return
        answer = self.inquire()
        if answer:
            self.inquire_at = now + INQUIRY_SECONDS
            self.silence = 0.0
            self.note_ailment(ailment(answer))
            return
        self.silence += passed
        if self.silence > float(self.record["silence"]) and self.server is not None:
            self.killed_because = f"did not answer for {self.record['silence']:g} s and was killed"
            self.server.kill()  # our own child, which nobody else can have reaped: the pid is still its own
            self.server.wait()

    def inquire(self) -> bytes | None:
        try:
            if self.inquiry is None:
                self.inquiry = Inquiry(int(self.record["monitor_port"]), self.monitor_path())
            answer = self.inquiry.answer()
        except OSError:
            answer = b""
        if answer is not None:
            self.forget_inquiry()
        return answer

    def forget_inquiry(self) -> None:
        if self.inquiry is not None:
            self.inquiry.close()
        self.inquiry = None

    def monitor_path(self) -> str:
        return str(json.loads((self.folder / "secret.json").read_bytes())["monitor_path"])

    def note_ailment(self, sick: str) -> None:
        if not sick and time.monotonic() - self.began > STEADY_SECONDS:
            self.cures = 0
        if sick == self.sick:
            return
        log(f"nats-server is {'sick: ' + sick if sick else 'well again'}")
        self.sick = sick
        self.beat(now=True)

    def cure(self) -> None:
        """A stream that once could not be written refuses until the server is started anew, which needs room."""
        now = time.monotonic()
        if not self.sick or now < self.cure_at or free_bytes(self.folder) < int(self.record["disk_min_bytes"]):
            return
        self.cure_at = now + min(CURE_PAUSE_MAX_SECONDS, CURE_PAUSE_MIN_SECONDS * 2**self.cures)
        self.cures += 1
        reason = f"was ended because it could not write, and there is room on the disk now: {self.sick}"
        self.end_server()
        self.killed_because = reason  # the next tick buries it

    # What a server needs

    def choose_port(self, key: str, *, patient: bool) -> int | None:
        """The port this folder had before, if it is free; else another, or None to ask again later."""
        port = int(self.record[key])
        if port and is_free(port):
            return port
        if port and patient:
            now = time.monotonic()
            self.port_wanted_since = now if self.port_wanted_since is None else self.port_wanted_since
            if now - self.port_wanted_since < PORT_PATIENCE_SECONDS:
                return None
            log(f"port {port} was taken by somebody else: moving")
        return free_port()

    def take_server_lock(self) -> int | None:
        lock = os.open(self.folder / "server.lock", os.O_RDWR | os.O_CREAT, 0o600)
        deadline = time.monotonic() + SERVER_LOCK_PATIENCE_SECONDS
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                if time.monotonic() > deadline:
                    os.close(lock)
                    return None
                self.beat()
                time.sleep(STARTING_TICK_SECONDS)
            else:
                return lock

    def trim_output(self) -> None:
        """What the server prints beside its own log (a panic, an unreadable configuration) must not fill the disk."""
        output = self.folder / "supervisor.log"
        with contextlib.suppress(OSError):
            if _size(output) > OUTPUT_MAX_BYTES:
                os.truncate(output, 0)
        self.output_before = _size(output)

    def last_words(self) -> str:
        words: list[str] = []
        for path, before in (("nats.log", self.log_before), ("supervisor.log", self.output_before)):
            with contextlib.suppress(OSError), (self.folder / path).open("rb") as file:
                file.seek(max(before, _size(self.folder / path) - 4096))
                lines = file.read().decode("utf-8", "replace").splitlines()
                words += [line for line in lines if "[INF]" not in line][-3:]
        return "".join(f"\n    {line}" for line in words)

    def write(self, state: str, **changes: object) -> None:
        self.record = {**self.record, "supervisor_pid": os.getpid(), "state": state, **changes}
        try:
            write_atomically(self.folder / "server.json", json.dumps(self.record, ensure_ascii=False).encode())
        except OSError as error:
            log(f"server.json was not written: {error}")  # the server is worth more than the note about it

    def tell(self, number: int, _frame: object) -> None:
        self.told = f"its supervisor was told to end by {signal.Signals(number).name}"


def free_port() -> int:
    while True:
        port = PORTS[int.from_bytes(os.urandom(4), "big") % len(PORTS)]
        if is_free(port):
            return port


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does: old connections do not count
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def greeting_version(port: int, name: str) -> str:
    """The version of the server of that name if it greets on that port, with JetStream; else nothing."""
    try:
        with socket.create_connection((HOST, port), timeout=0.5) as connection, connection.makefile("rb") as lines:
            line = lines.readline(65_536)
    except OSError:
        return ""
    return version_in_greeting(line, name)


def version_in_greeting(line: bytes, name: str) -> str:
    if not line.startswith(b"INFO "):
        return ""
    try:
        info = json.loads(line[5:])
    except ValueError:
        return ""
    ours = isinstance(info, dict) and info.get("server_name") == name and info.get("jetstream") is True
    return str(info["version"]) if ours else ""


def version_key(text: str) -> tuple[int, ...]:
    """2.9.1 is below 2.15.0; what follows a dash is not compared."""
    parts = text.strip().removeprefix("v").partition("-")[0].split(".")
    return tuple(int(part) for part in parts if part.isdecimal())


def dies_with_us() -> Any:
    """On Linux the kernel ends the server when we are killed. Elsewhere the next supervisor does."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    parent = os.getpid()

    def ask_the_kernel() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        if os.getppid() != parent:  # killed before the kernel was asked
            os._exit(1)

    return ask_the_kernel


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def main(folder: str, lock: str) -> None:
    if os.fork():
        os._exit(0)  # our starter waits for this half only; ours is nobody's child
    os.umask(0o077)
    os.set_inheritable(int(lock), False)  # noqa: FBT003  it has no other form
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    supervisor = Supervisor(Path(folder))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, supervisor.tell)
    supervisor.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
