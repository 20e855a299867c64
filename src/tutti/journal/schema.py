"""The journal's tables, in the words that SQLite and PostgreSQL share, and the version of their format."""

from __future__ import annotations

import secrets
from typing import Final

from tutti.errors import JournalUnfit
from tutti.journal.rows import Rows

FORMAT: Final = 1
OLDEST_READER: Final = 1  # of this format: versions of Tutti that know at least this one may share the journal

TABLES: Final = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);

CREATE TABLE IF NOT EXISTS leases (manager TEXT PRIMARY KEY, until {number} NOT NULL);

CREATE TABLE IF NOT EXISTS transactions (
    number {counter},
    tx TEXT NOT NULL UNIQUE,
    manager TEXT NOT NULL,
    epoch BIGINT NOT NULL,
    deadline {number} NOT NULL,
    registered_at {number} NOT NULL,
    record TEXT NOT NULL,
    delegated_to TEXT NOT NULL DEFAULT '',
    finished_at {number}
);
CREATE INDEX IF NOT EXISTS transactions_unfinished ON transactions (number) WHERE finished_at IS NULL;

CREATE TABLE IF NOT EXISTS resources (
    tx TEXT NOT NULL, place BIGINT NOT NULL, descriptor TEXT NOT NULL, PRIMARY KEY (tx, descriptor)
);

CREATE TABLE IF NOT EXISTS decisions (
    tx TEXT NOT NULL,
    branch TEXT NOT NULL,
    outcome TEXT NOT NULL CHECK (outcome IN ('commit', 'abort')),
    epoch BIGINT NOT NULL,
    reason TEXT NOT NULL,
    excluded TEXT NOT NULL,
    decided_at {number} NOT NULL,
    PRIMARY KEY (tx, branch)
);
CREATE INDEX IF NOT EXISTS decisions_age ON decisions (decided_at);

CREATE TABLE IF NOT EXISTS claims (claim TEXT PRIMARY KEY, tx TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS claims_tx ON claims (tx);

CREATE TABLE IF NOT EXISTS statuses (
    position {counter},
    tx TEXT NOT NULL,
    status TEXT NOT NULL,
    closing BIGINT NOT NULL,
    body TEXT NOT NULL,
    queued_at {number} NOT NULL,
    sequence BIGINT NOT NULL DEFAULT 0,
    UNIQUE (tx, status, closing)
);
CREATE INDEX IF NOT EXISTS statuses_unsent ON statuses (position) WHERE sequence = 0;

CREATE TABLE IF NOT EXISTS ended (
    tx TEXT NOT NULL, member TEXT NOT NULL, outcome TEXT NOT NULL, state TEXT NOT NULL, PRIMARY KEY (tx, member)
);

CREATE TABLE IF NOT EXISTS heuristics (
    tx TEXT NOT NULL,
    place TEXT NOT NULL,
    taken TEXT NOT NULL,
    detail TEXT NOT NULL,
    taken_by TEXT NOT NULL,
    recorded_at {number} NOT NULL,
    PRIMARY KEY (tx, place)
);

CREATE TABLE IF NOT EXISTS outcomes (
    tx TEXT NOT NULL,
    branch TEXT NOT NULL,
    outcome TEXT NOT NULL,
    decided_at {number} NOT NULL,
    PRIMARY KEY (tx, branch)
);
CREATE INDEX IF NOT EXISTS outcomes_age ON outcomes (decided_at);
"""


def statements(tables: str = TABLES, *, number: str, counter: str, blob: str = "BLOB") -> list[str]:
    """`number`: the type of a floating-point time; `counter`: a key that counts by itself and never goes back; `blob`:
    bytes."""
    text = tables.replace("{number}", number).replace("{counter}", counter).replace("{blob}", blob)
    return [statement.strip() for statement in text.split(";") if statement.strip()]


def identify(rows: Rows, where: str) -> str:
    """The journal's id; a new journal gets one. Refuses a format that this version does not understand."""
    for name, value in (("id", secrets.token_hex(4)), ("format", FORMAT), ("oldest_reader", OLDEST_READER)):
        rows.run("INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT DO NOTHING", name, str(value))
    known: dict[str, str] = dict(rows.all("SELECT name, value FROM meta"))
    check_format(known, where)
    return str(known["id"])


def check_format(known: dict[str, str], where: str) -> None:
    """Before anything else is read: neighbouring versions share a journal as far as the newer one says so."""
    try:
        written, oldest = int(known.get("format", FORMAT)), int(known.get("oldest_reader", OLDEST_READER))
    except ValueError as error:
        raise JournalUnfit(
            f"the journal {where} does not say its format: {known}", hint="is this a journal of Tutti? restore it"
        ) from error
    if oldest > FORMAT:
        raise JournalUnfit(
            f"the journal {where} has format {written}; this version of Tutti understands {FORMAT}",
            hint="upgrade Tutti here: an older version must not write into it",
        )
