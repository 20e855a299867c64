"""What retention must leave in a stream for the sake of transactions: events that may still become visible.

An event is held while the outcome of its transaction is not announced, and then while a durable reader has not come to
the status that names it.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence

from tutti.bus.port import FromSequence, Record
from tutti.errors import Gone, InvalidMessage
from tutti.limits import READ_BATCH_RECORDS
from tutti.model.status import TransactionStatus
from tutti.runtime.context import Context
from tutti.runtime.positions import Registration
from tutti.runtime.transactions.log import TransactionLog
from tutti.runtime.transactions.statuses import read_status

_QUIET_SECONDS = 0.5


class Holding:
    """Remembers up to where a stream holds only events of decided transactions: that never changes again."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._decided: dict[str, int] = {}  # stream: everything up to here

    async def needed_from(
        self, stream: str, first: int, below: int, readers: Sequence[tuple[Registration, int]]
    ) -> int:
        """The first sequence at or above `first` that must stay, `below` if none does. `readers`: the durable readers
        of statuses, and their positions."""
        undecided = await self._first_undecided(stream, first, below)
        if not readers:
            return undecided
        status = min((position + 1) // registration.scale for registration, position in readers)
        return await self._first_unread(stream, status, undecided)

    async def _first_undecided(self, stream: str, first: int, below: int) -> int:
        layout, transport = self._context.layout, self._context.transport
        begin = max(first, self._decided.get(stream, 0) + 1)
        if begin >= below:
            return below
        decided: set[str] = set()
        subjects = (layout.transactional_subjects(stream),)
        records = self._each(layout.event_stream(stream), subjects, begin, below - 1)
        async with contextlib.aclosing(records) as found:
            async for record in found:
                tx = record.subject.split(".", 5)[4]
                if tx not in decided:
                    last = await transport.last(layout.status_stream, layout.status(tx))
                    status = read_status(last) if last is not None else None
                    if status is None or status.status == "work_ended":
                        self._decided[stream] = record.sequence - 1
                        return record.sequence
                    decided.add(tx)
        self._decided[stream] = below - 1
        return below

    async def _first_unread(self, stream: str, status: int, below: int) -> int:
        """The lowest sequence below `below` that a committed status names, this one or a later one; else `below`."""
        layout = self._context.layout
        info = await self._context.transport.stream_info(layout.status_stream)
        if info is None:
            return below
        statuses = self._each(layout.status_stream, (), max(status, 1), info.last)
        async with contextlib.aclosing(statuses) as found:
            async for record in found:
                known = read_status(record)
                if known is not None and known.status == "committed":
                    below = await self._lowest(stream, known, below)
        return below

    async def _lowest(self, stream: str, status: TransactionStatus, below: int) -> int:
        try:
            spans = await TransactionLog(self._context.transport, self._context.layout).named_by(status.events)
        except (Gone, InvalidMessage):
            return below  # nobody will ever see them
        return min([below, *(span.ranges[0][0] for span in spans if span.stream == stream and span.ranges)])

    async def _each(self, stream: str, subjects: Sequence[str], first: int, last: int) -> AsyncGenerator[Record, None]:
        reader = await self._context.transport.reader(stream, subjects, FromSequence(first))
        try:
            while await reader.horizon() < last:
                for record in await reader.batch(READ_BATCH_RECORDS, wait=_QUIET_SECONDS):
                    if record.sequence > last:
                        return
                    yield record
        finally:
            await reader.close()
