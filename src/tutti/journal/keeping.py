"""The statements of recovery, of the operator and of retention: list, show, heuristics, shrink, forget."""

from __future__ import annotations

from typing import Final

import msgspec

from tutti.journal.deciding import DECISION, read_decision
from tutti.journal.outbox import QUEUED, read_status
from tutti.journal.records import Dossier, Entry, Heuristic
from tutti.journal.rows import Row, Rows, places
from tutti.limits import JOURNAL_SHRINK_MAX_COUNT
from tutti.model.messages import Ended
from tutti.model.transaction import WHOLE, TransactionRecord

_records: Final = msgspec.json.Decoder(TransactionRecord)
_CHUNK_COUNT: Final = 200  # of values in one statement
_ENTRY: Final = """
SELECT t.tx, t.number, t.record, t.manager, t.epoch, t.registered_at, COALESCE(l.until, 0), t.delegated_to,
       t.finished_at IS NOT NULL, COALESCE(d.decided_at, 0), d.tx, d.branch, d.outcome, d.epoch, d.reason, d.excluded
FROM transactions t
LEFT JOIN leases l ON l.manager = t.manager
LEFT JOIN decisions d ON d.tx = t.tx AND d.branch = '*'
"""


class Wanted(msgspec.Struct, frozen=True):
    """Which transactions: all that is set must hold. See `Journal.entries`."""

    undecided: bool = False
    unfinished: bool = False
    unannounced: bool = False
    lapsed: bool = False
    overdue: bool = False
    manager: str = ""
    after: int = 0


def entries(rows: Rows, wanted: Wanted, limit: int) -> tuple[Entry, ...]:
    unannounced = "NOT EXISTS (SELECT 1 FROM statuses s WHERE s.tx = t.tx AND s.status IN ('committed', 'aborted'))"
    conditions: list[tuple[bool, str, tuple[object, ...]]] = [
        (True, "t.number > ?", (wanted.after,)),
        # What is not decided is not finished: said twice, because there is an index of the unfinished.
        (wanted.undecided, "d.tx IS NULL AND t.finished_at IS NULL", ()),
        (wanted.unfinished, "t.finished_at IS NULL", ()),
        (wanted.unannounced, f"d.tx IS NOT NULL AND {unannounced}", ()),
        (wanted.lapsed, "COALESCE(l.until, 0) <= ?", (rows.now,)),
        (wanted.overdue, "t.deadline <= ?", (rows.now,)),
        (wanted.manager != "", "t.manager = ?", (wanted.manager,)),
    ]
    text = " AND ".join(condition for holds, condition, _ in conditions if holds)
    values = [value for holds, _, given in conditions if holds for value in given]
    found = rows.all(f"{_ENTRY} WHERE {text} ORDER BY t.number LIMIT ?", *values, limit)
    resources = _resources(rows, [row[0] for row in found])
    return tuple(_entry(row, resources) for row in found)


def show(rows: Rows, tx: str) -> Dossier | None:
    found = rows.one(f"{_ENTRY} WHERE t.tx = ?", tx)
    if found is None:
        return None
    told = rows.all("SELECT tx, member, outcome, state FROM ended WHERE tx = ? ORDER BY member", tx)
    claims = rows.all("SELECT claim FROM claims WHERE tx = ? ORDER BY claim", tx)
    return Dossier(
        entry=_entry(found, _resources(rows, [tx])),
        decisions=tuple(map(read_decision, rows.all(DECISION + " WHERE tx = ? ORDER BY branch", tx))),
        statuses=tuple(map(read_status, rows.all(QUEUED + " WHERE tx = ? ORDER BY position", tx))),
        ended=tuple(Ended(*row) for row in told),
        heuristics=heuristics(rows, tx),
        claims=tuple(claim for (claim,) in claims),
    )


def _entry(row: Row, resources: dict[str, list[str]]) -> Entry:
    tx, number, text, manager, epoch, registered_at, lease_until, delegated_to, finished, decided_at, *decision = row
    present = tuple(resources.get(tx, ()))
    return Entry(
        number=number,
        record=msgspec.structs.replace(_records.decode(text), manager=manager, epoch=epoch, resources=present),
        registered_at=registered_at,
        lease_until=lease_until,
        decision=None if decision[0] is None else read_decision(tuple(decision)),
        decided_at=decided_at,
        delegated_to=delegated_to,
        finished=bool(finished),
    )


def _resources(rows: Rows, transactions: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for chunk in _chunks(transactions):
        statement = f"SELECT tx, descriptor FROM resources WHERE tx IN ({places(chunk)}) ORDER BY tx, place"  # noqa: S608  only question marks are put in
        for tx, descriptor in rows.all(statement, *chunk):
            found.setdefault(tx, []).append(descriptor)
    return found


# Heuristics


def record_heuristic(rows: Rows, heuristic: Heuristic) -> None:
    rows.run(
        "INSERT INTO heuristics (tx, place, taken, detail, taken_by, recorded_at) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT DO NOTHING",
        *(heuristic.tx, heuristic.place, heuristic.taken, heuristic.detail, heuristic.by, rows.now),
    )


def heuristics(rows: Rows, tx: str = "") -> tuple[Heuristic, ...]:
    chosen = "WHERE tx = ?" if tx else "WHERE tx <> ?"
    statement = f"SELECT tx, place, taken, detail, taken_by, recorded_at FROM heuristics {chosen}"  # noqa: S608  one of the two texts above
    return tuple(Heuristic(*row) for row in rows.all(statement + " ORDER BY recorded_at, tx, place", tx))


def forget_heuristic(rows: Rows, tx: str, place: str) -> int:
    if place:
        return rows.run("DELETE FROM heuristics WHERE tx = ? AND place = ?", tx, place)
    return rows.run("DELETE FROM heuristics WHERE tx = ?", tx)


# Retention


def shrink(rows: Rows, before: float) -> int:
    _sweep_leases(rows)
    found = rows.all(
        "SELECT t.tx FROM transactions t JOIN decisions d ON d.tx = t.tx AND d.branch = ?"
        " WHERE t.finished_at IS NOT NULL AND d.decided_at < ?"
        " AND NOT EXISTS (SELECT 1 FROM statuses s WHERE s.tx = t.tx AND s.sequence = 0)"
        " AND NOT EXISTS (SELECT 1 FROM heuristics h WHERE h.tx = t.tx)"
        " ORDER BY d.decided_at LIMIT ?",
        *(WHOLE, before, JOURNAL_SHRINK_MAX_COUNT),
    )
    transactions = [tx for (tx,) in found]
    for chunk in _chunks(transactions):
        chosen = f"tx IN ({places(chunk)})"
        rows.run(
            f"INSERT INTO outcomes (tx, branch, outcome, decided_at)"  # noqa: S608  only question marks are put in
            f" SELECT tx, branch, outcome, decided_at FROM decisions WHERE {chosen} ON CONFLICT DO NOTHING",
            *chunk,
        )
        for table in ("statuses", "ended", "resources", "decisions", "transactions"):
            rows.run(f"DELETE FROM {table} WHERE {chosen}", *chunk)  # noqa: S608  as above
    return len(transactions)


def forget(rows: Rows, before: float) -> int:
    found = rows.all(
        "SELECT DISTINCT tx FROM outcomes WHERE branch = ? AND decided_at < ? LIMIT ?",
        *(WHOLE, before, JOURNAL_SHRINK_MAX_COUNT),
    )
    transactions = [tx for (tx,) in found]
    for chunk in _chunks(transactions):
        for table in ("claims", "outcomes"):
            rows.run(f"DELETE FROM {table} WHERE tx IN ({places(chunk)})", *chunk)  # noqa: S608  only question marks
    return len(transactions)


def _sweep_leases(rows: Rows) -> None:
    """Leases that ran out and cover nothing any more."""
    rows.run(
        "DELETE FROM leases WHERE until <= ? AND NOT EXISTS"
        " (SELECT 1 FROM transactions t WHERE t.manager = leases.manager)",
        rows.now,
    )


def _chunks(values: list[str]) -> list[list[str]]:
    return [values[at : at + _CHUNK_COUNT] for at in range(0, len(values), _CHUNK_COUNT)]
