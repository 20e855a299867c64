"""What the process that won the election does: see that a server can be started, then hand its lock to a supervisor."""

from __future__ import annotations

import secrets
import subprocess
import sys
from importlib import metadata
from typing import Final

from tutti.bus.embedded import supervisor
from tutti.bus.embedded.binary import binary_version, find_binary, require_fit
from tutti.bus.embedded.configuration import configuration, store_max_bytes
from tutti.bus.embedded.folder import FORMAT, Folder, ServerRecord, explained
from tutti.bus.embedded.locks import HeldLock
from tutti.bus.embedded.processes import end_orphan
from tutti.bus.embedded.supervisor import write_atomically
from tutti.errors import EmbeddedError
from tutti.limits import EMBEDDED_DISK_MIN_BYTES, EMBEDDED_GRACE_SECONDS, EMBEDDED_SILENCE_SECONDS

_BOOT_PATIENCE_SECONDS: Final = 30.0


def launch(folder: Folder, election: HeldLock, *, sync: bool) -> str:
    """Start a supervisor that owns `election`, the supervisor's lock, from then on. Returns the name of this launch,
    which the records of that supervisor carry. Blocks; for a thread."""
    with election, explained(folder.data):
        last = folder.record()
        binary = find_binary()
        version = binary_version(binary)
        require_fit(binary, version, last.newest_version if last is not None else "")
        end_orphan(folder, last)
        record = ServerRecord(
            format=FORMAT,
            tutti=metadata.version("tutti"),
            launch=secrets.token_hex(8),
            name=last.name if last is not None else f"tutti-{secrets.token_hex(4)}",
            state="starting",
            binary=str(binary),
            # Nobody who lives through the change of supervisor may lose the durability that it asked for.
            sync=sync or any(user.sync for user in folder.live_users()),
            grace=EMBEDDED_GRACE_SECONDS,
            silence=EMBEDDED_SILENCE_SECONDS,
            disk_min_bytes=EMBEDDED_DISK_MIN_BYTES,
            port=last.port if last is not None else 0,
            monitor_port=last.monitor_port if last is not None else 0,
            newest_version=last.newest_version if last is not None else "",
        )
        secret = folder.create_secret()
        text = configuration(
            folder, name=record.name, secret=secret, sync=record.sync, store_max_bytes=store_max_bytes(folder)
        )
        write_atomically(folder.config, text)
        folder.write_record(record)
        _spawn(folder, election)
        return record.launch


def _spawn(folder: Folder, election: HeldLock) -> None:
    if not sys.executable:
        raise EmbeddedError(
            "this program does not know its Python interpreter (sys.executable), which must run the supervisor",
            hint="keep the server with `tutti up` in the same data folder, or connect by URL",
        )
    command = [sys.executable, "-I", "-S", supervisor.__file__, str(folder.path), str(election.fileno())]
    folder.supervisor_log.touch(mode=0o600)
    with folder.supervisor_log.open("ab") as log:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
            pass_fds=(election.fileno(),),
        )
    try:
        status = child.wait(_BOOT_PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        status = child.wait()
    if status != 0:
        raise EmbeddedError(
            f"the supervisor did not start (status {status}): {' '.join(command)}", hint=f"see {folder.supervisor_log}"
        )
