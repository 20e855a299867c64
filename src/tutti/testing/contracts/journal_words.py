"""The words that the contract of journals is written in: begun, decided, taken over."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable
from typing import Any, Final, Protocol

from tutti.journal import Journal, Proposal, Sent
from tutti.model.status import InlineEvents, Span, TransactionStatus
from tutti.model.transaction import Outcome, TransactionRecord

LEASE: Final = 0.3  # seconds: short, because some journals' clocks cannot be moved by a test


class JournalPlace(Protocol):
    async def open(self) -> Journal:
        """A started journal, a connection of its own; closed at the end of the test."""

    async def pass_time(self, seconds: float) -> None:
        """Returns when the journal's clock has gone on by at least so much."""


class JournalKit:
    """One journal, and the place that opens it again."""

    def __init__(self, place: JournalPlace, journal: Journal) -> None:
        self.place = place
        self.journal = journal

    def new_tx(self) -> str:
        return f"{self.journal.id}-{secrets.token_hex(6)}"

    async def begun(self, *, manager: str = "m1", lease: float = 60.0, **fields: Any) -> str:
        """The id of a transaction that was just registered."""
        tx = self.new_tx()
        deadline = fields.pop("deadline", await self.journal.now() + 60.0)
        await self.journal.register(TransactionRecord(tx, "Meeting", deadline, manager, 1, **fields), lease=lease)
        return tx

    async def decided(self, outcome: Outcome = "commit", *, sent: bool = True, **fields: Any) -> str:
        """… that was decided and announced, and finished if its status is `sent`."""
        tx = await self.begun(**fields)
        await self.journal.decide(Proposal(tx, outcome, 1, status=status_of(tx, outcome)))
        if sent:
            await self.send_all()
            await self.journal.finish(tx, 1)
        return tx

    async def send_all(self) -> None:
        await self.journal.mark_sent([Sent(one.position, one.position + 100) for one in await self.journal.unsent()])

    async def taken_over(self, tx: str, *, manager: str = "m2") -> int:
        await self.place.pass_time(LEASE)
        return await self.journal.take_over(tx, expected=1, manager=manager, seconds=60.0)


def status_of(tx: str, outcome: Outcome, *spans: Span) -> TransactionStatus:
    return TransactionStatus(tx, "committed" if outcome == "commit" else "aborted", InlineEvents(spans))


async def outcomes_of(*calls: Awaitable[Any]) -> list[Any]:
    return await asyncio.gather(*calls, return_exceptions=True)
