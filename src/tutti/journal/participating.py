"""The tables and statements of the participants' log, in the words that SQLite and PostgreSQL share."""

from __future__ import annotations

from typing import Final

import msgspec

from tutti.errors import Fenced, JournalUnfit, invariant
from tutti.journal.deciding import read_outcome
from tutti.journal.participants import Enrolment, LogRow, Parked, Resolution
from tutti.journal.rows import Row, Rows
from tutti.limits import JOURNAL_REASON_MAX_CHARACTERS, JOURNAL_SHRINK_MAX_COUNT
from tutti.model.decoding import UNDECODABLE
from tutti.model.transaction import Consumed, LogState, Outcome, ParticipantRecord

# No name here is one of the journal's, so that both may stand in one database.
TABLES: Final = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);

CREATE TABLE IF NOT EXISTS participant_beats (instance TEXT PRIMARY KEY, until {number} NOT NULL);

CREATE TABLE IF NOT EXISTS participant_rows (
    number {counter},
    subscriber TEXT NOT NULL,
    tx TEXT NOT NULL,
    instance TEXT NOT NULL,
    state TEXT NOT NULL,
    rank BIGINT NOT NULL,
    body {blob} NOT NULL,
    ended_at {number},
    UNIQUE (subscriber, tx)
);
CREATE INDEX IF NOT EXISTS participant_rows_open ON participant_rows (subscriber, number) WHERE ended_at IS NULL;
CREATE INDEX IF NOT EXISTS participant_rows_ended ON participant_rows (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE IF NOT EXISTS participant_parked (
    number {counter},
    subscriber TEXT NOT NULL,
    tx TEXT NOT NULL,
    publisher TEXT NOT NULL,
    type TEXT NOT NULL,
    place BIGINT NOT NULL,
    sequence BIGINT NOT NULL,
    reason TEXT NOT NULL,
    parked_at {number} NOT NULL,
    UNIQUE (subscriber, tx, publisher, type, place)
);

CREATE TABLE IF NOT EXISTS participant_resolutions (
    subscriber TEXT NOT NULL,
    tx TEXT NOT NULL,
    outcome TEXT NOT NULL CHECK (outcome IN ('commit', 'abort')),
    taken_by TEXT NOT NULL,
    resolved_at {number} NOT NULL,
    carried_out_at {number} NOT NULL DEFAULT 0,
    decided TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (subscriber, tx)
);

CREATE TABLE IF NOT EXISTS participant_enrolments (
    standing TEXT NOT NULL, subscriber TEXT NOT NULL, body {blob} NOT NULL, PRIMARY KEY (standing, subscriber)
);
"""

_RANKS: Final[dict[LogState, int]] = {"working": 0, "voted": 1, "committed": 2, "aborted": 2}
_rows: Final = msgspec.msgpack.Decoder(LogRow)
_enrolments: Final = msgspec.msgpack.Decoder(Enrolment)
_encode: Final = msgspec.msgpack.Encoder().encode
_ROW: Final = "SELECT body, instance FROM participant_rows"
_PARKED: Final = (
    "SELECT subscriber, tx, publisher, type, place, sequence, reason, parked_at FROM participant_parked"
    " WHERE (? = '' OR subscriber = ?) ORDER BY number"
)


# Rows


def _rank(record: ParticipantRecord) -> int:
    """What a row may replace. Working, and asked for a vote before, is a no: it takes the place of a yes."""
    return 1 if record.state == "working" and record.round else _RANKS[record.state]


def write(rows: Rows, row: LogRow) -> None:
    invariant(row.tx == row.record.tx, f"a row for {row.tx} holds the record of {row.record.tx}")
    written = rows.run(
        "INSERT INTO participant_rows (subscriber, tx, instance, state, rank, body) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (subscriber, tx) DO UPDATE"
        " SET instance = excluded.instance, state = excluded.state, rank = excluded.rank, body = excluded.body"
        " WHERE participant_rows.ended_at IS NULL AND participant_rows.instance IN ('', excluded.instance)"
        " AND (participant_rows.rank < excluded.rank OR participant_rows.rank = excluded.rank"
        "      AND (excluded.rank < 2 OR participant_rows.state = excluded.state))",
        *(row.subscriber, row.tx, row.instance, row.record.state, _rank(row.record), _encode(row)),
    )
    if not written:
        _refuse_stranger(rows, row)


def _refuse_stranger(rows: Rows, row: LogRow) -> None:
    """Why a row was not replaced: because it is further already, or because it is no longer ours."""
    found = rows.one("SELECT instance FROM participant_rows WHERE subscriber = ? AND tx = ?", row.subscriber, row.tx)
    if found is not None and found[0] not in {"", row.instance}:
        raise Fenced(
            f"{found[0]} acts for {row.subscriber} in {row.tx} now, no longer {row.instance or 'nobody'}",
            epoch=row.record.epoch,
            hint="stop acting for it: its lease ran out here, and the other instance finishes",
        )


def close_row(rows: Rows, subscriber: str, tx: str, record: ParticipantRecord) -> None:
    found = rows.one(_ROW + " WHERE subscriber = ? AND tx = ? AND ended_at IS NULL" + rows.lock, subscriber, tx)
    if found is None:
        return
    kept = msgspec.structs.replace(read_row(found), record=record, payload_key=b"", events=())
    rows.run(
        "UPDATE participant_rows SET ended_at = ?, state = ?, rank = ?, body = ?"
        " WHERE subscriber = ? AND tx = ? AND ended_at IS NULL",
        *(rows.now, record.state, _RANKS[record.state], _encode(kept), subscriber, tx),
    )


def open_rows(rows: Rows, subscriber: str) -> tuple[LogRow, ...]:
    chosen = " WHERE (? = '' OR subscriber = ?) AND ended_at IS NULL ORDER BY number"
    return tuple(map(read_row, rows.all(_ROW + chosen, subscriber, subscriber)))


def rows_of(rows: Rows, tx: str) -> tuple[LogRow, ...]:
    return tuple(map(read_row, rows.all(_ROW + " WHERE tx = ? ORDER BY subscriber", tx)))


def find(rows: Rows, subscriber: str, tx: str) -> LogRow | None:
    found = rows.one(_ROW + " WHERE subscriber = ? AND tx = ?", subscriber, tx)
    return None if found is None else read_row(found)


def read_row(row: Row) -> LogRow:
    body, instance = row
    try:
        return msgspec.structs.replace(_rows.decode(body), instance=instance)
    except UNDECODABLE as error:
        raise JournalUnfit(
            f"a row of the participants' log cannot be read: {error}",
            hint="it is damaged, or of a newer Tutti: restore it, or upgrade; nothing was finished for it",
        ) from error


# Instances


def beat(rows: Rows, instance: str, seconds: float) -> float:
    rows.run(
        "INSERT INTO participant_beats (instance, until) VALUES (?, ?) ON CONFLICT (instance) DO UPDATE SET until ="
        " CASE WHEN participant_beats.until > excluded.until THEN participant_beats.until ELSE excluded.until END",
        *(instance, rows.now + seconds),
    )
    return alive_until(rows, instance)


def release(rows: Rows, instance: str) -> None:
    rows.run("DELETE FROM participant_beats WHERE instance = ?", instance)


def alive_until(rows: Rows, instance: str) -> float:
    found = rows.one("SELECT until FROM participant_beats WHERE instance = ?", instance)
    return 0.0 if found is None else float(found[0])


def living(rows: Rows) -> frozenset[str]:
    return frozenset(name for (name,) in rows.all("SELECT instance FROM participant_beats WHERE until > ?", rows.now))


def take_over(rows: Rows, subscriber: str, instance: str, tx: str = "") -> tuple[LogRow, ...]:
    """The rows are locked first and the leases read after that: of two that come at once, the second sees whose they
    are."""
    if alive_until(rows, instance) <= rows.now:
        return ()
    others = (
        "SELECT body, instance, number FROM participant_rows"
        " WHERE subscriber = ? AND ended_at IS NULL AND instance <> ? AND (? = '' OR tx = ?) ORDER BY number"
    )
    found = rows.all(others + rows.lock, subscriber, instance, tx, tx)
    silent = {name for name in {row[1] for row in found} if alive_until(rows, name) <= rows.now}
    taken = [row for row in found if row[1] in silent]
    for _, _, number in taken:
        rows.run("UPDATE participant_rows SET instance = ? WHERE number = ?", instance, number)
    return tuple(read_row((body, instance)) for body, _, _ in taken)


# The operator's word


def resolve(rows: Rows, subscriber: str, tx: str, outcome: Outcome, by: str) -> Resolution:
    rows.run(
        "INSERT INTO participant_resolutions (subscriber, tx, outcome, taken_by, resolved_at) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT DO NOTHING",
        *(subscriber, tx, outcome, by, rows.now),
    )
    [word] = [word for word in resolutions(rows, subscriber) if word.tx == tx]
    return word


def resolutions(rows: Rows, subscriber: str) -> tuple[Resolution, ...]:
    found = rows.all(
        "SELECT subscriber, tx, outcome, taken_by, resolved_at, carried_out_at, decided FROM participant_resolutions"
        " WHERE (? = '' OR subscriber = ?) ORDER BY resolved_at, tx, subscriber",
        *(subscriber, subscriber),
    )
    return tuple(
        Resolution(name, one, read_outcome(outcome), by, at, done, read_outcome(decided) if decided else None)
        for name, one, outcome, by, at, done, decided in found
    )


def carried_out(rows: Rows, subscriber: str, tx: str, decided: Outcome | None) -> None:
    rows.run(
        "UPDATE participant_resolutions SET decided = CASE WHEN ? = '' THEN decided ELSE ? END,"
        " carried_out_at = CASE WHEN carried_out_at > 0 THEN carried_out_at ELSE ? END"
        " WHERE subscriber = ? AND tx = ?",
        *(decided or "", decided or "", rows.now, subscriber, tx),
    )


def withdraw(rows: Rows, subscriber: str, tx: str) -> bool:
    return rows.run("DELETE FROM participant_resolutions WHERE subscriber = ? AND tx = ?", subscriber, tx) > 0


# The operator's queue


def park(rows: Rows, subscriber: str, tx: str, event: Consumed, reason: str) -> None:
    rows.run(
        "INSERT INTO participant_parked (subscriber, tx, publisher, type, place, sequence, reason, parked_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        *(subscriber, tx, event.publisher, event.type, event.number, event.sequence),
        *(reason[:JOURNAL_REASON_MAX_CHARACTERS], rows.now),
    )


def parked(rows: Rows, subscriber: str) -> tuple[Parked, ...]:
    return tuple(
        Parked(name, tx, Consumed(publisher, kind, number, sequence), reason, parked_at)
        for name, tx, publisher, kind, number, sequence, reason, parked_at in rows.all(_PARKED, subscriber, subscriber)
    )


def unpark(rows: Rows, subscriber: str, tx: str, event: Consumed) -> bool:
    gone = rows.run(
        "DELETE FROM participant_parked WHERE subscriber = ? AND tx = ? AND publisher = ? AND type = ? AND place = ?",
        *(subscriber, tx, event.publisher, event.type, event.number),
    )
    return gone > 0


# Standing groups


def enrol(rows: Rows, enrolment: Enrolment) -> Enrolment:
    rows.run(
        "INSERT INTO participant_enrolments (standing, subscriber, body) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        *(enrolment.group, enrolment.subscriber, _encode(enrolment)),
    )
    found = find_enrolment(rows, enrolment.group, enrolment.subscriber)
    invariant(found is not None, f"the enrolment of {enrolment.subscriber} in {enrolment.group} was not written")
    return found or enrolment


def find_enrolment(rows: Rows, group: str, subscriber: str) -> Enrolment | None:
    statement = "SELECT body FROM participant_enrolments WHERE standing = ? AND subscriber = ?"
    found = rows.one(statement, group, subscriber)
    return None if found is None else _enrolments.decode(found[0])


def resign(rows: Rows, group: str, subscriber: str) -> bool:
    statement = "DELETE FROM participant_enrolments WHERE standing = ? AND subscriber = ?"
    return rows.run(statement, group, subscriber) > 0


# Retention


def forget(rows: Rows, before: float) -> int:
    rows.run(
        "DELETE FROM participant_beats WHERE until <= ? AND NOT EXISTS"
        " (SELECT 1 FROM participant_rows r WHERE r.instance = participant_beats.instance AND r.ended_at IS NULL)",
        rows.now,
    )
    return rows.run(
        "DELETE FROM participant_rows WHERE number IN (SELECT r.number FROM participant_rows r"
        " WHERE r.ended_at IS NOT NULL AND r.ended_at < ? AND NOT EXISTS"
        " (SELECT 1 FROM participant_parked p WHERE p.subscriber = r.subscriber AND p.tx = r.tx) AND NOT EXISTS"
        " (SELECT 1 FROM participant_resolutions o WHERE o.subscriber = r.subscriber AND o.tx = r.tx)"
        " ORDER BY r.ended_at LIMIT ?)",
        *(before, JOURNAL_SHRINK_MAX_COUNT),
    )
