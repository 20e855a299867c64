"""What the journal answers with. Transactions, decisions and statuses themselves are values of the model."""

from __future__ import annotations

from typing import Literal

import msgspec

from tutti.model.messages import Ended
from tutti.model.status import TransactionStatus
from tutti.model.transaction import WHOLE, Decision, Outcome, TransactionRecord


class Undecided(msgspec.Struct, frozen=True):
    """Registered, and nothing is decided. Whoever asks waits while the lease lives; times are the journal's."""

    tx: str
    manager: str
    epoch: int
    lease_until: float
    deadline: float
    now: float
    delegated_to: str = ""

    @property
    def lapsed(self) -> bool:
        """Its manager is silent for too long: anybody who shares the journal may take over."""
        return self.lease_until <= self.now


class Unknown(msgspec.Struct, frozen=True):
    """Never registered, or forgotten. Never read this as abort."""

    tx: str


Answer = Decision | Undecided | Unknown


class Proposal(msgspec.Struct, frozen=True):
    """What should be decided. `claims` are unique keys that only one committed transaction ever gets; `status` is
    queued with the decision, in one write; `read_from` names the resource that a delegated outcome was read from."""

    tx: str
    outcome: Outcome
    epoch: int
    branch: str = WHOLE
    reason: str = ""
    excluded: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    status: TransactionStatus | None = None
    read_from: str = ""


class QueuedStatus(msgspec.Struct, frozen=True):
    """A status in the outbox. `sequence` is where the bus has stored it; 0 while it waits."""

    position: int
    status: TransactionStatus
    queued_at: float
    sequence: int = 0


class Sent(msgspec.Struct, frozen=True):
    """The bus has acknowledged the status at `position`, at this sequence of its stream."""

    position: int
    sequence: int


class Heuristic(msgspec.Struct, frozen=True):
    """Somebody ended a branch without, or against, the decision. Shown until it is forgotten."""

    tx: str
    place: str  # the branch, resource or member
    taken: Literal["commit", "abort", "mixed", "hazard"]  # hazard: nobody knows
    detail: str = ""
    by: str = ""
    recorded_at: float = 0.0  # by the journal


class Entry(msgspec.Struct, frozen=True):
    """A transaction as it stands. `record` has the present manager, epoch and resources."""

    number: int  # in the order of registration; for paging
    record: TransactionRecord
    registered_at: float
    lease_until: float
    decision: Decision | None  # of the whole
    decided_at: float
    delegated_to: str
    finished: bool


class Dossier(msgspec.Struct, frozen=True):
    """All that the journal knows of one transaction."""

    entry: Entry
    decisions: tuple[Decision, ...]
    statuses: tuple[QueuedStatus, ...]
    ended: tuple[Ended, ...]
    heuristics: tuple[Heuristic, ...]
    claims: tuple[str, ...]
