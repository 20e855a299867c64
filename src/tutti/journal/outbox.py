"""The statements of the status outbox: what is queued stays unsent until the bus has acknowledged it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from tutti.errors import invariant
from tutti.journal.records import QueuedStatus, Sent
from tutti.journal.rows import Row, Rows
from tutti.model.status import TransactionStatus, checked
from tutti.model.transaction import Outcome

_statuses: Final = msgspec.json.Decoder(TransactionStatus)
_STATUS_OF: Final[dict[Outcome, str]] = {"commit": "committed", "abort": "aborted"}
QUEUED: Final = "SELECT position, body, queued_at, sequence FROM statuses"


def put_status(rows: Rows, status: TransactionStatus, outcome: Outcome | None) -> QueuedStatus:
    """`outcome` is what stands for the whole. A status says nothing else, and the first of its closing stays."""
    if status.status != "work_ended":
        invariant(
            outcome is not None and _STATUS_OF[outcome] == status.status,
            f"a status {status.status} of {status.tx} needs that decision; what stands is {outcome or 'none'}",
        )
    rows.run(
        "INSERT INTO statuses (tx, status, closing, body, queued_at) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        *(status.tx, status.status, status.closing, msgspec.json.encode(checked(status)).decode(), rows.now),
    )
    found = rows.one(QUEUED + " WHERE tx = ? AND status = ? AND closing = ?", status.tx, status.status, status.closing)
    invariant(found is not None, f"the status of {status.tx} was not queued")
    return read_status(found or ())


def read_status(row: Row) -> QueuedStatus:
    position, body, queued_at, sequence = row
    return QueuedStatus(position, _statuses.decode(body), queued_at, sequence)


def unsent(rows: Rows, after: int, limit: int) -> tuple[QueuedStatus, ...]:
    found = rows.all(QUEUED + " WHERE sequence = 0 AND position > ? ORDER BY position LIMIT ?", after, limit)
    return tuple(map(read_status, found))


def mark_sent(rows: Rows, sent: Sequence[Sent]) -> None:
    for one in sent:
        invariant(one.sequence > 0, f"the bus counts from 1: {one}")
        rows.run("UPDATE statuses SET sequence = ? WHERE position = ? AND sequence = 0", one.sequence, one.position)
