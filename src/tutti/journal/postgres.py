"""The journal in PostgreSQL: for several hosts.

The tables stand in a schema of their own. A few connections write, each a group of requests at a time; the row of the
transaction is locked before anything is decided for it. The clock is the server's. A server that does not sync its
writes is refused. What the connection takes with it when it breaks is told apart: before the commit nothing was
written (`JournalUnreachable`); during it nobody can know (`AnswerLost`), and the same call again finds out.
"""

from __future__ import annotations

import contextlib
import re
from typing import Final, LiteralString

import psycopg
from psycopg import errors as sqlstates
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tutti.errors import AnswerLost, DeclarationError, JournalError, JournalUnfit, JournalUnreachable
from tutti.journal import participating
from tutti.journal.participants_sql import SqlParticipantLog
from tutti.journal.rows import Row
from tutti.journal.schema import TABLES, check_format, identify, statements
from tutti.journal.sql import SqlJournal
from tutti.limits import (
    JOURNAL_BUSY_SECONDS,
    JOURNAL_CONNECT_SECONDS,
    JOURNAL_READERS_COUNT,
    JOURNAL_WRITERS_COUNT,
)

_SCHEMA: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}").fullmatch
_CLOCK: Final = "SELECT extract(epoch FROM clock_timestamp())::float8"
_CREATING: Final = 0x7475747469  # the advisory lock under which tables are made: "tutti"


class PostgresJournal(SqlJournal):
    """`durable=False` takes a server that does not sync: for measurements, never for truth."""

    def __init__(
        self,
        url: str,
        *,
        schema: str = "tutti_journal",
        writers: int = JOURNAL_WRITERS_COUNT,
        busy: float = JOURNAL_BUSY_SECONDS,
        connect: float = JOURNAL_CONNECT_SECONDS,
        durable: bool = True,
    ) -> None:
        place = Place(url, schema, busy, connect)
        super().__init__(
            prepare=lambda: prepare(place, durable=durable),
            writer=lambda: PostgresSession(place),
            reader=lambda: PostgresSession(place, reads=True),
            writers=writers,
            readers=JOURNAL_READERS_COUNT,
        )


class PostgresParticipantLog(SqlParticipantLog):
    """The participants' log; several hosts' instances of a subscriber share it. `durable` as above."""

    def __init__(
        self,
        url: str,
        *,
        schema: str = "tutti_participants",
        writers: int = JOURNAL_WRITERS_COUNT,
        busy: float = JOURNAL_BUSY_SECONDS,
        connect: float = JOURNAL_CONNECT_SECONDS,
        durable: bool = True,
    ) -> None:
        place = Place(url, schema, busy, connect)
        super().__init__(
            prepare=lambda: prepare(place, participating.TABLES, durable=durable),
            writer=lambda: PostgresSession(place),
            reader=lambda: PostgresSession(place, reads=True),
            writers=writers,
            readers=1,
        )


class Place:
    """Where the journal is, and how long anything there may take."""

    def __init__(self, url: str, schema: str, busy: float, connect: float) -> None:
        if not _SCHEMA(schema):
            raise DeclarationError(
                f"{schema!r} cannot name the journal's schema", hint="use lower-case letters, digits and '_'"
            )
        self.schema = schema
        try:
            given = conninfo_to_dict(url)
        except psycopg.Error as error:
            raise DeclarationError(
                f"this is no address of a PostgreSQL database: {error}", hint="postgresql://user@host/database"
            ) from error
        self.name = f"{given.get('host', '')}/{given.get('dbname', '')} ({schema})"  # never the password
        milliseconds = int(busy * 1_000)
        settings = {
            "search_path": schema,
            "lock_timeout": milliseconds,
            # A process that is stopped in the middle must not keep the rows that it has locked.
            "idle_in_transaction_session_timeout": milliseconds,
            "statement_timeout": 2 * milliseconds,
            "synchronous_commit": "on",
        }
        own = " ".join(f"-c {name}={value}" for name, value in settings.items())
        self.conninfo = make_conninfo(
            url,
            application_name=given.get("application_name", "tutti-journal"),
            connect_timeout=max(2, round(connect)),
            keepalives_idle=5,
            keepalives_interval=2,
            keepalives_count=2,
            tcp_user_timeout=2 * milliseconds,
            options=f"{given.get('options') or ''} {own}".strip(),
        )

    def connect(self) -> psycopg.Connection[Row]:
        return psycopg.connect(self.conninfo, autocommit=True)


class PostgresRows:
    lock = " FOR UPDATE"

    def __init__(self, connection: psycopg.Connection[Row]) -> None:
        self._connection = connection
        self.now = 0.0

    def all(self, statement: str, *values: object) -> list[Row]:
        return self._connection.execute(_native(statement), values).fetchall()

    def one(self, statement: str, *values: object) -> Row | None:
        return self._connection.execute(_native(statement), values).fetchone()

    def run(self, statement: str, *values: object) -> int:
        return self._connection.execute(_native(statement), values).rowcount


class PostgresSession:
    """One connection, made when it is needed. See `tutti.journal.scribe.Session`."""

    def __init__(self, place: Place, *, reads: bool = False) -> None:
        self._place = place
        mode = "ISOLATION LEVEL REPEATABLE READ READ ONLY" if reads else "ISOLATION LEVEL READ COMMITTED"
        self._begin: LiteralString = f"BEGIN {mode}; {_CLOCK}"
        self._connection: psycopg.Connection[Row] | None = None
        self.rows: PostgresRows

    def begin(self) -> None:
        """A connection that the server has closed meanwhile is made anew: nothing was asked of it yet."""
        if self._connection is not None:
            try:
                self._start()
            except psycopg.OperationalError:
                self.close()
            else:
                return
        self._connection = self._place.connect()
        self.rows = PostgresRows(self._connection)
        self._start()

    def _start(self) -> None:
        assert self._connection is not None  # noqa: S101  for the type checker: begin made it
        cursor = self._connection.execute(self._begin)
        cursor.nextset()
        (self.rows.now,) = cursor.fetchone() or (0.0,)

    def commit(self) -> None:
        if self._connection is not None:
            self._connection.execute("COMMIT")

    def rollback(self) -> None:
        if self._connection is not None and not self._connection.broken:
            with contextlib.suppress(psycopg.Error):
                self._connection.execute("ROLLBACK")

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error):
                connection.close()

    @property
    def lost(self) -> bool:
        return self._connection is None or self._connection.closed

    def explained(self, error: Exception, *, committing: bool) -> JournalError | None:
        if not isinstance(error, psycopg.Error):
            return None
        meaning = explained(error, self._place, committing=committing)
        if self._connection is not None and self._connection.closed:
            self.close()
        return meaning

    def create(self, tables: str, *, durable: bool) -> str:
        """Schema, tables and settings; returns the journal's id. One process at a time."""
        self.begin()
        rows = self.rows
        try:
            _require_durable(rows, self._place, durable=durable)
            rows.one("SELECT pg_advisory_xact_lock(?)", _CREATING)
            check_format(_meta(rows, self._place.schema), self._place.name)
            rows.run(f"CREATE SCHEMA IF NOT EXISTS {self._place.schema}")
            counter = "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
            for statement in statements(tables, number="DOUBLE PRECISION", counter=counter, blob="BYTEA"):
                rows.run(statement)
            name = identify(rows, self._place.name)
            self.commit()
        except BaseException:
            self.rollback()
            raise
        return name


def prepare(place: Place, tables: str = TABLES, *, durable: bool) -> str:
    session = PostgresSession(place)
    try:
        return session.create(tables, durable=durable)
    except psycopg.Error as error:
        raise explained(error, place, committing=False) from error
    finally:
        session.close()


def _native(statement: str) -> LiteralString:
    """The statements stand in this package; values never become part of them."""
    return statement.replace("?", "%s")


def _meta(rows: PostgresRows, schema: str) -> dict[str, str]:
    found = rows.one("SELECT to_regclass(?)", f"{schema}.meta")
    return {} if found is None or found[0] is None else dict(rows.all("SELECT name, value FROM meta"))


def _require_durable(rows: PostgresRows, place: Place, *, durable: bool) -> None:
    found = rows.one("SELECT current_setting('fsync'), current_setting('full_page_writes'), pg_is_in_recovery()")
    fsync, pages, standby = found or ("", "", False)
    if standby:
        raise JournalUnfit(f"the journal {place.name} is a standby: it cannot be written", hint="name the primary")
    if durable and (fsync, pages) != ("on", "on"):
        raise JournalUnfit(
            f"the server of the journal {place.name} does not sync: fsync={fsync}, full_page_writes={pages}",
            hint="set both on and restart it; a decision must survive a loss of power",
        )


def explained(error: psycopg.Error, place: Place, *, committing: bool) -> JournalError:
    """In the words of whoever has to do something about it. An answer with an SQLSTATE says that nothing was written,
    unless the server was shutting down, or the connection went, while it committed."""
    text = f"the journal {place.name}: {str(error).strip()}" + (f" ({error.sqlstate})" if error.sqlstate else "")
    definite = error.sqlstate is not None and not isinstance(
        error, sqlstates.AdminShutdown | sqlstates.CrashShutdown | sqlstates.QueryCanceled
    )
    meaning: JournalError
    match error:
        case _ if committing and not definite:
            meaning = AnswerLost(text, hint="make the same call again: it answers what stands")
        case sqlstates.DiskFull():
            meaning = JournalUnfit(text, hint="the server's disk is full: make room; nothing was written")
        case sqlstates.ReadOnlySqlTransaction():
            meaning = JournalUnfit(text, hint="the server is read-only or a standby: name the primary")
        case sqlstates.InsufficientPrivilege() | sqlstates.InvalidSchemaName():
            meaning = JournalUnfit(text, hint=f"GRANT this user the schema {place.schema}, or CREATE on the database")
        case (
            sqlstates.InvalidCatalogName() | sqlstates.InvalidPassword() | sqlstates.InvalidAuthorizationSpecification()
        ):
            meaning = JournalUnfit(text, hint="correct the journal's URL: database, user, password")
        case _:
            meaning = JournalUnreachable(text, hint="nothing was written; try again when the server answers")
    meaning.__cause__ = error
    return meaning
