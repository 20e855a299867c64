"""A participant's own log: what a subscriber must know of its transactions after a crash, whoever else is away.

A participant is a subscriber *name*. One instance acts for it in a transaction: the row carries its name, and other
instances finish the row only after that one's lease has run out (`take_over`). From then on what the first one writes
is refused. As with the journal, every write is durable when the call returns and may be repeated after `AnswerLost`;
times are seconds of the log's own clock.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from tutti.limits import JOURNAL_LEASE_SECONDS
from tutti.model.transaction import Consumed, Outcome, ParticipantRecord


class LogRow(msgspec.Struct, frozen=True):
    """One subscriber in one transaction. `secret` signs for it; `resources` are descriptors of what was enlisted, in
    order; `payload_key` opens a private transaction's payloads; `events` are what compensation must be able to see
    though the log of the bus may have lost it; `note` is for people. `type` is the transaction's; `heuristic` is how an
    operator had the branch finished."""

    subscriber: str
    tx: str
    record: ParticipantRecord
    secret: bytes
    resources: tuple[str, ...] = ()
    payload_key: bytes = b""
    events: tuple[bytes, ...] = ()
    instance: str = ""
    note: str = ""
    type: str = ""
    heuristic: Outcome | None = None


class Enrolment(msgspec.Struct, frozen=True):
    """Durable membership in a standing group. The seeds are secret: of the key that signs, and of the one for which
    payload keys are wrapped."""

    group: str
    subscriber: str
    pseudonym: str
    signing_seed: bytes
    wrap_seed: bytes


class Parked(msgspec.Struct, frozen=True):
    """An event whose compensation was given up: the operator's."""

    subscriber: str
    tx: str
    event: Consumed
    reason: str
    parked_at: float


class Resolution(msgspec.Struct, frozen=True):
    """An operator's word about a branch in doubt, shown until it is forgotten. `carried_out_at` is 0.0 while nobody has
    acted by it; `decided` is what the transaction decided after all, where that is something else."""

    subscriber: str
    tx: str
    outcome: Outcome
    by: str = ""
    resolved_at: float = 0.0
    carried_out_at: float = 0.0
    decided: Outcome | None = None


class ParticipantLog(Protocol):
    """See the module. After `start` and until `close`, from any task of any event loop."""

    async def start(self) -> None: ...

    async def close(self) -> None:
        """Waits for the writes under way. Leases run out by themselves; `release` ends one at once."""

    async def now(self) -> float: ...

    # Rows

    async def write(self, row: LogRow) -> None:
        """Insert, or replace what is there of the same (subscriber, tx). A row never goes back: *voted* is not replaced
        by *working* in round 0, which was never asked for a vote (in a round it is a no, and takes a yes back), an
        outcome by nothing but itself, and what has ended stays; such a write changes nothing. Raises `Fenced` if
        another instance has taken the row over, or ended it."""

    async def close_row(self, subscriber: str, tx: str, record: ParticipantRecord) -> None:
        """It ended. The record and the secret are kept, so that a repeated decision can be answered, until `forget`;
        payload key and events are not. Without a row there is nothing to keep."""

    async def open_rows(self, subscriber: str = "") -> tuple[LogRow, ...]:
        """Those that have not ended, of this subscriber or of all, of whichever instance, the oldest first."""

    async def rows_of(self, tx: str) -> tuple[LogRow, ...]:
        """Of every subscriber that has one in this transaction, ended or not, by name."""

    async def find(self, subscriber: str, tx: str) -> LogRow | None:
        """Ended or not."""

    # Instances

    async def beat(self, instance: str, *, seconds: float = JOURNAL_LEASE_SECONDS) -> float:
        """Extend, or begin, the lease of this instance; it is never shortened. Returns its end. An instance's name is
        new for every process that takes the part."""

    async def release(self, instance: str) -> None:
        """End the lease: another instance need not wait."""

    async def take_over(self, subscriber: str, instance: str, *, tx: str = "") -> tuple[LogRow, ...]:
        """Open rows (or the one of `tx`) of instances whose lease ran out become those of `instance`, in one write;
        only these are returned. An instance that has no living lease itself gets none: `beat` first."""

    async def living(self) -> frozenset[str]:
        """The instances whose lease has not run out."""

    # The operator's word

    async def resolve(self, subscriber: str, tx: str, outcome: Outcome, by: str = "") -> Resolution:
        """How a branch in doubt is to be finished: this word, or the one that was first. Whichever instance acts for it
        looks here."""

    async def resolutions(self, subscriber: str = "") -> tuple[Resolution, ...]:
        """Of this subscriber, or of all; the oldest first."""

    async def carried_out(self, subscriber: str, tx: str, decided: Outcome | None = None) -> None:
        """The branch was finished as the word says. `decided`: and the transaction's decision was the other."""

    async def withdraw(self, subscriber: str, tx: str) -> bool:
        """Forget the word. False if there was none."""

    # The operator's queue of compensations

    async def park(self, subscriber: str, tx: str, event: Consumed, reason: str) -> None:
        """Parked again: the first one stays, with its reason."""

    async def parked(self, subscriber: str = "") -> tuple[Parked, ...]:
        """Of this subscriber, or of all; the oldest first."""

    async def unpark(self, subscriber: str, tx: str, event: Consumed) -> bool:
        """False if it was not there."""

    # Standing groups

    async def enrol(self, enrolment: Enrolment) -> Enrolment:
        """The enrolment that stands: this one, or the one that was first."""

    async def enrolment(self, group: str, subscriber: str) -> Enrolment | None: ...

    async def resign(self, group: str, subscriber: str) -> bool:
        """False if there was none."""

    # Retention

    async def forget(self, before: float) -> int:
        """Remove rows that ended before then, unless something of them is parked, or an operator's word about them is
        not forgotten. Returns how many; call again while it is not 0."""
