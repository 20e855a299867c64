"""The server's configuration. NATS reads JSON, which spares us its quoting rules."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Final

from tutti.bus.embedded.folder import USER, Folder, Secret
from tutti.bus.embedded.supervisor import HOST
from tutti.errors import EmbeddedError
from tutti.limits import (
    EMBEDDED_DISK_MIN_BYTES,
    EMBEDDED_DISK_SHARE_RATIO,
    EMBEDDED_LOG_FILES_COUNT,
    EMBEDDED_LOG_MAX_BYTES,
)

MAX_PAYLOAD_BYTES: Final = 1_048_576  # NATS' own default, written down so that EVENT_MAX_BYTES holds


def configuration(folder: Folder, *, name: str, secret: Secret, sync: bool, store_max_bytes: int) -> bytes:
    """Ports are not in it: the supervisor names them at each start."""
    jetstream: dict[str, object] = {"store_dir": str(folder.path), "max_file_store": store_max_bytes}
    if sync:
        jetstream["sync_interval"] = "always"
    settings = {
        "server_name": name,
        "host": HOST,
        "http_base_path": secret.monitor_path,  # the monitor has no password; a path nobody can guess serves as one
        "authorization": {"user": USER, "password": secret.password},
        "max_payload": MAX_PAYLOAD_BYTES,
        "jetstream": jetstream,
        "pid_file": str(folder.pid_file),
        "log_file": str(folder.log),
        "logtime_utc": True,
        "logfile_size_limit": EMBEDDED_LOG_MAX_BYTES,
        "logfile_max_num": EMBEDDED_LOG_FILES_COUNT,
    }
    try:
        return json.dumps(settings, ensure_ascii=False, indent=2).encode()
    except UnicodeEncodeError as error:
        raise EmbeddedError(
            f"the path of the data folder is not valid text: {os.fsencode(folder.data)!r}", hint="rename the folder"
        ) from error


def store_max_bytes(folder: Folder) -> int:
    """How large the data may become: what it is now and most of what is free. The server's own reckoning leaves out
    what is stored already, so a store of more than half a disk would be refused everything after a restart."""
    free = shutil.disk_usage(folder.path).free
    if free < EMBEDDED_DISK_MIN_BYTES:
        raise EmbeddedError(
            f"the disk of the data folder {folder.data} is full: {free:,} bytes are free",
            hint=f"make room for at least {EMBEDDED_DISK_MIN_BYTES:,} bytes, or name another data folder",
        )
    return stored_bytes(folder.store) + int(free * EMBEDDED_DISK_SHARE_RATIO)


def stored_bytes(store: Path) -> int:
    total = 0
    for parent, _, names in os.walk(store):
        for name in names:
            try:
                total += (Path(parent) / name).stat().st_size
            except FileNotFoundError:
                continue
    return total
