"""What a call of `publish_many` has under way, in the order in which it was sent.

Events that were sent off together are kept together, as a `Row`, and confirmed together: asking each of thousands of
futures costs more than sending. At the first sign that one of them did not go the plain way (refused, in doubt, a
duplicate) its row becomes single events again, and each is judged by itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Protocol

import msgspec

from tutti.bus.port import Stored
from tutti.errors import BusError
from tutti.model.event import EventType
from tutti.runtime.numbering import Numbering
from tutti.runtime.publication import Published


class Sent(msgspec.Struct, frozen=True, gc=False):
    """An event on its way to the log."""

    kind: EventType
    id: str
    subject: str
    number: int
    numbering: Numbering  # which gave the number; the publisher may have begun another since
    started: float
    stored: asyncio.Future[Stored]
    again: bool  # under the number of an earlier try, which may be stored


class Row(msgspec.Struct, frozen=True):
    """Events of one type on their way to the log, none of them an earlier one again. All that is said of one stands at
    its place in each list."""

    kind: EventType
    ids: Sequence[str]
    subjects: Sequence[str]
    numbers: Sequence[int]
    numbering: Numbering
    started: float
    stored: Sequence[asyncio.Future[Stored]]

    def __len__(self) -> int:
        return len(self.ids)

    def each(self) -> list[Sent]:
        told = zip(self.ids, self.subjects, self.numbers, self.stored, strict=True)
        return [
            Sent(self.kind, identity, subject, number, self.numbering, self.started, stored, again=False)
            for identity, subject, number, stored in told
        ]

    def plainly_stored(self) -> list[Published] | None:
        """None unless every event was acknowledged, for the first time."""
        stream = self.kind.stream
        try:
            answers = [future.result() for future in self.stored]
        except (BusError, asyncio.InvalidStateError, asyncio.CancelledError):
            return None
        if True in [answer.duplicate for answer in answers]:
            return None
        pairs = zip(self.ids, answers, strict=True)
        return [Published(identity, stream, answer.sequence) for identity, answer in pairs]


class Judge(Protocol):
    """Who knows what becomes of an event that was sent."""

    async def settled(self, sent: Sent) -> Published: ...
    def confirmed_row(self, row: Row) -> None: ...
    def leave(self, sent: Sent) -> None: ...


class Window:
    """The results of those that are no longer under way are in `results`."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._line: deque[Row | Sent | Published] = deque()
        self._events = 0
        self.results: list[Published] = []

    def __len__(self) -> int:
        """In events."""
        return self._events

    def add(self, sent: Row | Sent | Published) -> None:
        self._line.append(sent)
        self._events += len(sent) if isinstance(sent, Row) else 1

    async def settle(self, most: int) -> None:
        """Wait until no more than `most` are under way, and take along those in front that need no waiting."""
        while self._line:
            first = self._line[0]
            if not _is_over(first):
                if self._events <= most:
                    return
                if isinstance(first, Row):
                    # It stays in line while we wait: if we are cancelled, it is left with the others.
                    await asyncio.wait([first.stored[-1]])
            self._line.popleft()
            if isinstance(first, Row):
                self._settle_row(first)
            else:
                self._events -= 1
                self.results.append(first if isinstance(first, Published) else await self._judge.settled(first))

    def _settle_row(self, row: Row) -> None:
        published = row.plainly_stored()
        if published is None:
            self._line.extendleft(reversed(row.each()))
            return
        self._events -= len(row)
        self._judge.confirmed_row(row)
        self.results.extend(published)

    async def stored_in_the_end(self) -> int:
        """How many are stored of all that were added; those under way are waited for."""
        outcomes = await asyncio.gather(*map(self._judge.settled, self._single()), return_exceptions=True)
        known = (*self.results, *(published for published in self._line if isinstance(published, Published)))
        self._line.clear()
        return sum(isinstance(outcome, Published) and bool(outcome.stream) for outcome in (*known, *outcomes))

    def leave(self) -> None:
        """Nobody waits for those under way any more."""
        for sent in self._single():
            self._judge.leave(sent)

    def _single(self) -> list[Sent]:
        rows = (
            sent.each() if isinstance(sent, Row) else [sent] for sent in self._line if not isinstance(sent, Published)
        )
        return [sent for row in rows for sent in row]


def _is_over(first: Row | Sent | Published) -> bool:
    if isinstance(first, Published):
        return True
    return first.stored[-1].done() if isinstance(first, Row) else first.stored.done()
