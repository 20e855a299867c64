"""Transactions as their managers leave them behind: events on the log, a decision and a status in a journal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from tutti.bus.port import Stored, Transport
from tutti.journal import Proposal
from tutti.journal.sqlite import SqliteJournal
from tutti.model.cloudevents import to_headers
from tutti.model.envelope import JSON, Envelope
from tutti.model.event import event_type
from tutti.model.involvement import SEALED, Involvement
from tutti.model.status import TransactionStatus, named, spans_of
from tutti.model.subjects import PRIVATE, Layout, partition_of
from tutti.model.transaction import PUBLISHER, Outcome, Scope, TransactionRecord
from tutti.runtime.bus import Bus
from tutti.runtime.clock import Clock, SystemClock
from tutti.runtime.publisher import MESSAGE_ID_HEADER
from tutti.runtime.transactions.log import TransactionLog
from tutti.runtime.transactions.statuses import StatusRelay

_WORDS: Final[dict[Outcome, Literal["committed", "aborted"]]] = {"commit": "committed", "abort": "aborted"}
_NUMBERS = count(1)


async def journal_in(folder: Path) -> SqliteJournal:
    journal = SqliteJournal(folder / "journal.db")
    await journal.start()
    return journal


class Office:
    """A journal, its relay, and the transactions that they are asked to stage."""

    def __init__(
        self, transport: Transport, layout: Layout, journal: SqliteJournal, clock: Clock | None = None
    ) -> None:
        self.transport = transport
        self.layout = layout
        self.journal = journal
        self.reports: list[str] = []
        self.failures: list[Any] = []
        self.relay = self.new_relay(clock)

    @classmethod
    def at(cls, bus: Bus, journal: SqliteJournal) -> Office:
        return cls(bus.context.transport, bus.context.layout, journal, bus.context.clock)

    def new_relay(self, clock: Clock | None = None, journal: SqliteJournal | None = None) -> StatusRelay:
        return StatusRelay(
            self.transport,
            self.layout,
            journal or self.journal,
            clock=clock or SystemClock(),
            report=self.reports.append,
            failed=self.failures.append,
        )

    async def begin(self, *, scope: Scope = "public") -> Staged:
        tx = f"{self.journal.id}-r1-{next(_NUMBERS)}"
        record = TransactionRecord(tx, "Meeting", await self.journal.now() + 60, "m1", 1, scope=scope)
        await self.journal.register(record)
        return Staged(self, tx, scope)

    async def statuses(self) -> list[str]:
        """What stands in the log of statuses, oldest first."""
        info = await self.transport.stream_info(self.layout.status_stream)
        assert info is not None
        records = [await self.transport.fetch(info.name, n) for n in range(info.first, info.last + 1)]
        return [_said(record.data) for record in records if record is not None]


def _said(data: bytes) -> str:
    status = msgspec.json.decode(data, type=TransactionStatus)
    return f"{status.tx} {status.status} {status.closing}"


class Staged:
    """One transaction."""

    def __init__(self, office: Office, tx: str, scope: Scope) -> None:
        self.office = office
        self.tx = tx
        self.scope: Scope = scope
        self.sequences: dict[str, set[int]] = {}
        self._numbers: dict[str, int] = {}

    async def publish(self, *events: object, key: str = "test") -> list[int]:
        """Their places in the log."""
        stored = await asyncio.gather(*(self._append(event, key) for event in events))
        for event, one in zip(events, stored, strict=True):
            self.sequences.setdefault(event_type(event).stream, set()).add(one.sequence)
        return [one.sequence for one in stored]

    def _append(self, event: object, key: str) -> asyncio.Future[Stored]:
        kind = event_type(event)
        number = self._numbers[kind.name] = self._numbers.get(kind.name, 0) + 1
        layout = self.office.layout
        involvement = Involvement(self.tx, PUBLISHER, number, self.scope, layout.manager(self.tx), 1, 4e9)
        private = self.scope == "private"
        tokens = kind.routing_tokens(event)
        envelope = Envelope(
            id=f"{self.tx}-{kind.name}-{number}",
            source="/test/run",
            type=kind.name,
            datacontenttype=SEALED if private else JSON,
            extensions=involvement.extensions(),
        )
        subject = layout.transactional(
            *(kind.stream, kind.token, self.tx, str(partition_of(key))), (PRIVATE,) * len(tokens) if private else tokens
        )
        data = b"nobody reads this" if private else kind.encode(event)
        headers = {**to_headers(envelope), MESSAGE_ID_HEADER: envelope.id}  # it may be sent again
        return self.office.transport.append(subject, headers, data, timeout=10.0)

    async def status(self, outcome: Outcome) -> TransactionStatus:
        log, spans = TransactionLog(self.office.transport, self.office.layout), spans_of(self.sequences)
        manifests = await log.publish_manifests(self.tx, spans)
        return TransactionStatus(self.tx, _WORDS[outcome], named(spans, manifests))

    async def decide(self, outcome: Outcome = "commit") -> None:
        """The row stands, and the status is in the outbox."""
        status = await self.status(outcome)
        await self.office.journal.decide(Proposal(self.tx, outcome, 1, status=status))

    async def commit(self) -> None:
        """… and in the log."""
        await self.decide()
        await self.office.relay.send()

    async def abort(self) -> None:
        await self.decide("abort")
        await self.office.relay.send()


async def until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)
