"""Where the embedded server keeps what is its own, and what each file says.

<data folder>/server/
  users.lock        held, shared, by every process that uses the server
  users/*.json      who they are, each locked by its process: for people who ask
  supervisor.lock   held by the one supervisor; who wins it starts one
  server.lock       held by the one nats-server
  server.json       what the supervisor knows of the server, and what outlives it: port, newest version, format
  health.json       the supervisor's heartbeat, and what ails the server
  secret.json       password and path of the monitor: readable by the owner of the folder alone
  nats.conf         generated at each start
  nats.log          the server's log; `supervisor.log` the supervisor's
  jetstream/        the data
"""

from __future__ import annotations

import errno
import logging
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

import msgspec

from tutti.bus.embedded.locks import HeldLock, is_locked, try_lock
from tutti.bus.embedded.supervisor import HOST, write_atomically
from tutti.errors import EmbeddedError, invariant
from tutti.limits import EMBEDDED_DISK_MIN_BYTES, EMBEDDED_SILENCE_SECONDS

FORMAT: Final = 1
USER: Final = "tutti"
_log = logging.getLogger(__name__)

State = Literal["starting", "running", "sick", "restarting", "stopped", "failed"]


class ServerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`server.json`. `launch` names the start that wrote it; `started` marks the server's pid against reuse.

    `sick` is not written there but in `health.json`: the server runs, but could not write to its disk."""

    format: int
    tutti: str  # the version of Tutti that wrote it
    launch: str
    name: str
    state: State
    binary: str
    sync: bool
    grace: float
    silence: float = EMBEDDED_SILENCE_SECONDS
    disk_min_bytes: int = EMBEDDED_DISK_MIN_BYTES
    reason: str = ""  # why it is sick, stopped, failed or restarts
    supervisor_pid: int = 0
    pid: int = 0
    started: str = ""
    port: int = 0
    monitor_port: int = 0
    version: str = ""
    newest_version: str = ""  # the newest server that ever wrote the data
    restarts: int = 0
    since: float = 0.0


class Heartbeat(msgspec.Struct, frozen=True):
    """`health.json`, written over every second by the supervisor that `pid` and `started` name."""

    launch: str
    pid: int
    started: str
    beats: int
    sick: str = ""


class UserRecord(msgspec.Struct, frozen=True):
    """`users/*.json`: a process that uses the server. `keep`: it is there to keep it (`tutti up`)."""

    pid: int
    program: str
    sync: bool
    keep: bool


class Secret(msgspec.Struct, frozen=True):
    password: str
    monitor_path: str

    def __repr__(self) -> str:
        return "Secret(…)"


class _Format(msgspec.Struct):
    format: int
    tutti: str = ""


class Folder:
    """The server's own folder inside a data folder."""

    def __init__(self, data: Path) -> None:
        self.data = data.expanduser().resolve()  # two names of one folder are one folder
        self.path = self.data / "server"
        self.users_lock = self.path / "users.lock"
        self.users = self.path / "users"
        self.supervisor_lock = self.path / "supervisor.lock"
        self.server_lock = self.path / "server.lock"
        self.config = self.path / "nats.conf"
        self.pid_file = self.path / "nats.pid"
        self.log = self.path / "nats.log"
        self.supervisor_log = self.path / "supervisor.log"
        self.store = self.path / "jetstream"
        self._record = self.path / "server.json"
        self._secret = self.path / "secret.json"
        self.health = self.path / "health.json"

    def create(self) -> None:
        """After this the folder is there, ours to write, and of a format that we understand."""
        with explained(self.data):
            self.data.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path.mkdir(mode=0o700, exist_ok=True)
            self.users.mkdir(mode=0o700, exist_ok=True)
            os.close(os.open(self.users_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        self.record()

    def record(self) -> ServerRecord | None:
        """What the last supervisor wrote; None before the first."""
        try:
            data = self._record.read_bytes()
        except FileNotFoundError:
            return None
        try:
            written = msgspec.json.decode(data, type=_Format)
            if written.format > FORMAT:
                raise _newer_format(self.data, written)
            return self._with_ailment(msgspec.json.decode(data, type=ServerRecord))
        except msgspec.DecodeError as error:
            _log.warning("%s cannot be read and is ignored: %s", self._record, error)
            return None

    def heartbeat(self) -> Heartbeat | None:
        """The last one; None if there never was one, or it is just being written."""
        try:
            return msgspec.json.decode(self.health.read_bytes(), type=Heartbeat)
        except (OSError, msgspec.DecodeError):
            return None

    def _with_ailment(self, record: ServerRecord) -> ServerRecord:
        """A server on a full disk is sick, which `server.json` cannot say: it could not be replaced."""
        heartbeat = self.heartbeat() if record.state == "running" else None
        if heartbeat is None or not heartbeat.sick or heartbeat.launch != record.launch:
            return record
        return msgspec.structs.replace(record, state="sick", reason=heartbeat.sick)

    def write_record(self, record: ServerRecord) -> None:
        write_atomically(self._record, msgspec.json.encode(record))

    def secret(self) -> Secret:
        return msgspec.json.decode(self._secret.read_bytes(), type=Secret)

    def create_secret(self) -> Secret:
        """The secret of this folder, made if there is none. Only by who holds the supervisor's lock."""
        try:
            return self.secret()
        except (FileNotFoundError, msgspec.DecodeError):
            secret = Secret(password=secrets.token_urlsafe(24), monitor_path="/" + secrets.token_urlsafe(12))
            write_atomically(self._secret, msgspec.json.encode(secret))
            return secret

    # Users

    def join(self, user: UserRecord) -> Membership | None:
        """Become a user; None while a supervisor ends the server and lets nobody in."""
        lock = try_lock(self.users_lock, shared=True)
        if lock is None:
            return None
        path = self.users / f"{user.pid}-{secrets.token_hex(4)}.json"
        note = try_lock(path)
        invariant(note is not None, f"the new file {path} is locked by somebody else")
        path.write_bytes(msgspec.json.encode(user))
        return Membership(lock, note)

    def live_users(self) -> tuple[UserRecord, ...]:
        """Those whose process lives: their notes are locked."""
        users = []
        for path in sorted(self.users.glob("*.json")):
            try:
                if is_locked(path):
                    users.append(msgspec.json.decode(path.read_bytes(), type=UserRecord))
            except (FileNotFoundError, msgspec.DecodeError):
                continue  # it left, or has not finished its note
        return tuple(users)


class Membership:
    """We are a user, until `close`."""

    def __init__(self, lock: HeldLock, note: HeldLock | None) -> None:
        self._lock = lock
        self._note = note

    @property
    def held(self) -> bool:
        return self._lock.held

    def close(self) -> None:
        """Does nothing in a forked child, where the membership ended with the fork."""
        if self._note is not None and self._note.held:
            self._note.path.unlink(missing_ok=True)
            self._note.close()
        self._lock.close()


def client_url(record: ServerRecord, secret: Secret) -> str:
    return f"nats://{USER}:{secret.password}@{HOST}:{record.port}"


def monitor_url(record: ServerRecord, secret: Secret) -> str:
    return f"http://{HOST}:{record.monitor_port}{secret.monitor_path}"


def default_folder() -> Path:
    """`$TUTTI_DATA`, or `.tutti` in the current folder."""
    return Path(os.environ.get("TUTTI_DATA") or ".tutti").expanduser().absolute()


def require_platform() -> None:
    if sys.platform == "win32":
        raise EmbeddedError(
            "the embedded server needs the file locks of Linux or macOS; this is Windows",
            hint="run a nats-server yourself and connect by URL, or use WSL",
        )


@contextmanager
def explained(data: Path) -> Iterator[None]:
    """What the system says about a folder, in words that help."""
    try:
        yield
    except OSError as error:
        raise explain(error, data) from error


def explain(error: OSError, data: Path) -> EmbeddedError:
    other = "name another data folder: connect(data=…) or TUTTI_DATA"
    reason = os.strerror(error.errno or 0)
    match error.errno:
        case errno.EROFS | errno.EACCES | errno.EPERM:
            return EmbeddedError(
                f"the data folder {data} cannot be written ({reason})", hint=f"make it yours and writable, or {other}"
            )
        case errno.ENOTDIR | errno.EEXIST:
            return EmbeddedError(f"the data folder {data}, or a part of its path, is a file", hint=other)
        case errno.ENOSPC | errno.EDQUOT:
            return EmbeddedError(
                f"the disk of the data folder {data} is full ({reason})", hint=f"make room, or {other}"
            )
        case errno.ENAMETOOLONG:
            return EmbeddedError(f"the path of the data folder is too long: {data}", hint=other)
        case _:
            return EmbeddedError(f"the data folder {data} cannot be used ({error})", hint=other)


def _newer_format(data: Path, written: _Format) -> EmbeddedError:
    return EmbeddedError(
        f"the data folder {data} was written in format {written.format} by Tutti {written.tutti or '?'}; this Tutti"
        f" understands formats up to {FORMAT}",
        hint=f"pip install 'tutti>={written.tutti}'" if written.tutti else "upgrade Tutti",
    )
