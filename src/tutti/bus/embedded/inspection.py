"""What is known of the server of a data folder, for people: `tutti doctor`."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Final, Literal

import msgspec

from tutti.bus.embedded.binary import at_or_above_floor, binary_version, find_binary
from tutti.bus.embedded.folder import Folder, ServerRecord, UserRecord, default_folder, explained
from tutti.bus.embedded.locks import is_locked
from tutti.bus.embedded.supervisor import HOST, Inquiry, ailment, free_bytes, version_key
from tutti.errors import EmbeddedError

_HEALTH_SECONDS: Final = 3.0
_POLL_SECONDS: Final = 0.01

Seen = Literal["starting", "running", "sick", "restarting", "stopped", "failed", "orphaned"]


class ServerState(msgspec.Struct, frozen=True, kw_only=True):
    """`orphaned`: the server runs, its supervisor was killed, and the next user will replace both. `sick`: it runs, but
    could not write to its disk, and stores nothing until there is room and its supervisor has started it anew. `reason`
    says why it is sick, stopped, failed or restarts; `notes` what deserves attention."""

    folder: str
    state: Seen
    running: bool
    reason: str
    pid: int
    supervisor_pid: int
    url: str  # without the credentials
    version: str
    installed_version: str  # empty if there is none
    sync: bool
    restarts: int
    since: float
    users: tuple[UserRecord, ...]
    log: str
    notes: tuple[str, ...]


def inspect(folder: Path | None = None) -> ServerState | None:
    """The state of the server of the data folder; None if it never had one. Starts, changes and waits for nothing."""
    home = Folder(folder or default_folder())
    with explained(home.data):
        record = home.record()
        if record is None:
            return None
        supervised = is_locked(home.supervisor_lock)
        served = is_locked(home.server_lock)
        users = home.live_users()
    state, reason = _state(home, record, supervised=supervised, served=served)
    installed = _installed_version()
    return ServerState(
        folder=str(home.data),
        state=state,
        running=served and supervised and state in {"running", "sick"},
        reason=reason,
        pid=record.pid if served else 0,
        supervisor_pid=record.supervisor_pid if supervised else 0,
        url=f"nats://{HOST}:{record.port}" if record.port else "",
        version=record.version,
        installed_version=installed,
        sync=record.sync,
        restarts=record.restarts,
        since=record.since,
        users=users,
        log=str(home.log),
        notes=tuple(_notes(record, installed, served=served)),
    )


def ailment_of(folder: Path) -> str:
    """What keeps the running server from storing, in its own words; empty if nothing does. Asks the server itself, for
    a few seconds at most, while `inspect` says what its supervisor heard last."""
    home = Folder(folder)
    with explained(home.data):
        record = home.record()
        if record is None or not record.monitor_port:
            return ""
        path = home.secret().monitor_path
    deadline = time.monotonic() + _HEALTH_SECONDS
    try:
        inquiry = Inquiry(record.monitor_port, path)
        with contextlib.closing(inquiry):
            while (answer := inquiry.answer()) is None:
                if time.monotonic() > deadline:
                    return f"it does not say within {_HEALTH_SECONDS:g} s how it is"
                time.sleep(_POLL_SECONDS)
    except OSError as error:
        return f"it does not say how it is: {error}"
    return ailment(answer)


def _state(home: Folder, record: ServerRecord, *, supervised: bool, served: bool) -> tuple[Seen, str]:
    """The record is the last word of a supervisor; the locks say whether it still holds."""
    if supervised and record.state == "sick":
        return "sick", _why_sick(home, record)
    if supervised:
        return record.state, record.reason
    if served:
        return "orphaned", "its supervisor was killed"
    if record.state in {"stopped", "failed"}:
        return record.state, record.reason
    return "stopped", "its supervisor was killed, or the machine went down"


def _why_sick(home: Folder, record: ServerRecord) -> str:
    free = free_bytes(home.path)
    if free >= record.disk_min_bytes:
        return f"it could not write, and is started anew within a minute: {record.reason}"
    return f"the disk is full, {free:,} bytes are free and {record.disk_min_bytes:,} are needed: {record.reason}"


def _notes(record: ServerRecord, installed: str, *, served: bool) -> list[str]:
    notes = []
    if not record.sync:
        notes.append("it does not sync: a power cut can lose acknowledged events")
    if not installed:
        notes.append("no nats-server is installed here: it cannot be started again")
    elif version_key(installed) < version_key(record.newest_version):
        notes.append(
            f"the data was written by nats-server {record.newest_version}: {installed} will not be started on it"
        )
    elif served and record.version and version_key(installed) != version_key(record.version):
        notes.append(f"it runs nats-server {record.version}; the installed {installed} takes over at the next start")
    if served and record.version and not at_or_above_floor(record.version):
        notes.append(f"nats-server {record.version} has known holes")
    return notes


def _installed_version() -> str:
    try:
        return binary_version(find_binary())
    except EmbeddedError:
        return ""
