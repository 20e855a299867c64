"""The journal in a SQLite file: the default, for one host.

Write-ahead log with `synchronous=FULL`: one sync for each commit, where a rollback journal needs two or three and a
change of its folder; readers never wait. Writers of all processes take turns by a lock file beside the database: they
wait without SQLite's guessing sleeps, and no write meets another process' checkpoint, the one situation in which
versions before 3.51.3 can damage a write-ahead log. The kernel drops the lock of a process that is killed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tutti.errors import AnswerLost, JournalError, JournalUnfit, JournalUnreachable
from tutti.journal import participating
from tutti.journal.participants import LogRow
from tutti.journal.participants_sql import SqlParticipantLog
from tutti.journal.rows import Row
from tutti.journal.schema import TABLES, check_format, identify, statements
from tutti.journal.sql import SqlJournal
from tutti.limits import JOURNAL_BUSY_SECONDS, JOURNAL_READERS_COUNT

_POLL_SECONDS: Final = 0.0001  # a fraction of what a commit takes
_FULL: Final = (2, 3)  # synchronous: FULL, EXTRA
_SETTINGS: Final = (
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = ON",  # macOS: through the drive's own cache; elsewhere nothing
    "PRAGMA checkpoint_fullfsync = ON",
    "PRAGMA foreign_keys = ON",
    "PRAGMA trusted_schema = OFF",
)


class SqliteJournal(SqlJournal):
    """`clock` is the journal's: Unix time, the same for every process that shares the file."""

    def __init__(
        self, path: Path, *, clock: Callable[[], float] = time.time, busy: float = JOURNAL_BUSY_SECONDS
    ) -> None:
        self.path = path.absolute()
        super().__init__(
            prepare=lambda: prepare(self.path, clock, busy),
            writer=lambda: SqliteSession(self.path, clock, busy),
            reader=lambda: SqliteSession(self.path, clock, busy, reads=True),
            writers=1,
            readers=JOURNAL_READERS_COUNT,
        )


class SqliteParticipantLog(SqlParticipantLog):
    """The participants' log, in a file of its own; `clock` as above."""

    def __init__(
        self, path: Path, *, clock: Callable[[], float] = time.time, busy: float = JOURNAL_BUSY_SECONDS
    ) -> None:
        self.path = path.absolute()
        super().__init__(
            prepare=lambda: prepare(self.path, clock, busy, participating.TABLES),
            writer=lambda: SqliteSession(self.path, clock, busy),
            reader=lambda: SqliteSession(self.path, clock, busy, reads=True),
            writers=1,
            readers=1,
        )
        self._at_once = SqliteSession(self.path, clock, 0.0, reads=True)
        self._at_once_turn = threading.Lock()  # event loops of several threads may share the log

    async def close(self) -> None:
        await super().close()
        self._at_once.close()

    async def find(self, subscriber: str, tx: str) -> LogRow | None:
        """Every event of a transaction that is new here waits for this. In a write-ahead log one row is read in less
        time than a thread takes to wake up; where it would have to be waited for, a thread does that."""
        self._running()
        if self._at_once_turn.acquire(blocking=False):
            try:
                self._at_once.begin()
                found = participating.find(self._at_once.rows, subscriber, tx)
                self._at_once.commit()
            except (sqlite3.Error, OSError):
                self._at_once.close()
            else:
                return found
            finally:
                self._at_once_turn.release()
        return await super().find(subscriber, tx)


class SqliteRows:
    lock = ""  # the writer has the whole file

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.now = 0.0

    def all(self, statement: str, *values: object) -> list[Row]:
        return self._connection.execute(statement, values).fetchall()

    def one(self, statement: str, *values: object) -> Row | None:
        found: Row | None = self._connection.execute(statement, values).fetchone()
        return found

    def run(self, statement: str, *values: object) -> int:
        return self._connection.execute(statement, values).rowcount


class Turn:
    """Whose turn it is to write, over all processes."""

    def __init__(self, path: Path, busy: float) -> None:
        self._busy = busy
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def take(self) -> None:
        deadline = time.monotonic() + self._busy
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise sqlite3.OperationalError("another process has the turn to write") from None
                time.sleep(_POLL_SECONDS)
            else:
                return

    def pass_on(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        os.close(self._file)


class SqliteSession:
    """One connection. See `tutti.journal.scribe.Session`."""

    lost = False  # there is no way that could be gone

    def __init__(self, path: Path, clock: Callable[[], float], busy: float, *, reads: bool = False) -> None:
        self._path, self._clock, self._busy, self._reads = path, clock, busy, reads
        self._turn: Turn | None = None
        self._connection: sqlite3.Connection | None = None
        self.rows: SqliteRows

    def begin(self) -> None:
        if self._connection is None:
            self._open()
        assert self._connection is not None  # noqa: S101  for the type checker: _open sets it or raises
        if self._turn is not None:
            self._turn.take()
        self._connection.execute("BEGIN" if self._reads else "BEGIN IMMEDIATE")
        self.rows.now = self._clock()

    def commit(self) -> None:
        if self._connection is not None:
            self._connection.execute("COMMIT")
        self._pass_on()

    def rollback(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            if self._connection is not None and self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        self._pass_on()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        turn, self._turn = self._turn, None
        with contextlib.suppress(sqlite3.Error):
            if turn is not None:  # the last one to close empties the log into the file
                turn.take()
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()
        if turn is not None:
            turn.close()

    def explained(self, error: Exception, *, committing: bool) -> JournalError | None:
        if not isinstance(error, sqlite3.Error | OSError):
            return None
        self.close()  # the next `begin` opens what the disk has
        return explained(error, self._path, committing=committing)

    def create(self, tables: str) -> str:
        """Tables and settings of the file; returns its id."""
        self.begin()
        assert self._connection is not None  # noqa: S101  for the type checker: begin opens it
        try:
            known = _meta(self.rows)
            check_format(known, str(self._path))  # before any of our tables is put beside newer ones
            for statement in statements(tables, number="REAL", counter="INTEGER PRIMARY KEY AUTOINCREMENT"):
                self._connection.execute(statement)
            name = identify(self.rows, str(self._path))
            self.commit()
        except BaseException:
            self.rollback()
            raise
        return name

    def _open(self) -> None:
        if not self._reads:
            self._turn = Turn(self._path.with_name(self._path.name + ".lock"), self._busy)
            self._turn.take()
        try:
            self._connection = self._connected()
            self.rows = SqliteRows(self._connection)
        finally:
            self._pass_on()

    def _connected(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, isolation_level=None, timeout=self._busy, check_same_thread=False, cached_statements=256
        )
        try:
            for setting in _SETTINGS:
                connection.execute(setting)
            require_synced(connection, self._path)
            if self._reads:
                connection.execute("PRAGMA query_only = ON")
        except BaseException:
            connection.close()
            raise
        return connection

    def _pass_on(self) -> None:
        if self._turn is not None:
            self._turn.pass_on()


def require_synced(connection: sqlite3.Connection, path: Path) -> None:
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    (synchronous,) = connection.execute("PRAGMA synchronous").fetchone()
    if mode != "wal" or synchronous not in _FULL:
        raise JournalUnfit(
            f"SQLite does not sync {path} as it should (journal_mode {mode}, synchronous {synchronous})",
            hint="keep it on a local file system that shares memory between processes, not on a network",
        )


def prepare(path: Path, clock: Callable[[], float], busy: float, tables: str = TABLES) -> str:
    """Create or check the file; returns the journal's id."""
    session = SqliteSession(path, clock, busy)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):  # nobody else reads decisions and members' keys
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        return session.create(tables)
    except (sqlite3.Error, OSError) as error:
        raise explained(error, path, committing=False) from error
    finally:
        session.close()


def _meta(rows: SqliteRows) -> dict[str, str]:
    if rows.one("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'meta'") is None:
        return {}
    return dict(rows.all("SELECT name, value FROM meta"))


def explained(error: Exception, path: Path, *, committing: bool) -> JournalError:
    """In the words of whoever has to do something about it."""
    kind = getattr(error, "sqlite_errorname", "") or errno.errorcode.get(getattr(error, "errno", None) or 0, "")
    text = f"the journal {path}: {error}" + (f" ({kind})" if kind else "")
    if kind.startswith("SQLITE_FULL") or kind in {"ENOSPC", "EDQUOT"}:
        return _unfit(text, "the disk is full: make room; nothing was written", error)
    if kind.startswith("SQLITE_READONLY") or kind in {"EROFS", "EACCES", "EPERM"}:
        return _unfit(text, "make the file and its folder writable for this user", error)
    if kind.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return _unfit(
            text, "this is no journal, or a damaged one: restore it, and resolve what was open by hand", error
        )
    if kind.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")) or "turn to write" in str(error):
        return _caused(JournalUnreachable(text, hint="is a process that shares the journal stopped? try again"), error)
    if committing:
        return _caused(AnswerLost(text, hint="make the same call again: it answers what stands"), error)
    return _caused(JournalUnreachable(text, hint="nothing was written; look at the file and its disk"), error)


def _unfit(text: str, hint: str, error: Exception) -> JournalError:
    return _caused(JournalUnfit(text, hint=hint), error)


def _caused(meaning: JournalError, error: Exception) -> JournalError:
    meaning.__cause__ = error
    return meaning
