"""The log as readers outside of transactions see it: public events, once their transaction has committed.

1. The order is that of the statuses, and within one of them that of the events it names. An event's number is
   `sequence of the status * TRANSACTION_EVENTS_MAX_COUNT + index`; so a position is one number, as in any stream.
2. Only what a committed status names is seen, and of that only what says of itself that it is public. The rest of a
   transaction, and what was aborted, stays unseen for ever.
3. What a status names and the log has no more is told, with its number, and reading goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from bisect import bisect_right
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Final

import msgspec

from tutti.bus.port import FromSequence, Reader, Record, Start, StreamInfo, Transport
from tutti.errors import Gone, InvalidMessage
from tutti.limits import COMMITTED_FETCH_MAX_COUNT, READ_BATCH_RECORDS, TRANSACTION_EVENTS_MAX_COUNT
from tutti.model import attributes
from tutti.model.involvement import SEALED
from tutti.model.status import Span, TransactionStatus
from tutti.model.subjects import Layout
from tutti.runtime.clock import Clock
from tutti.runtime.transactions.log import TransactionLog, count_named, transaction_streams
from tutti.runtime.transactions.statuses import read_status

log = logging.getLogger("tutti.visibility")

SCALE: Final = TRANSACTION_EVENTS_MAX_COUNT
_SCOPE_HEADER: Final = f"ce-{attributes.TX_SCOPE}"
_TX_HEADER: Final = f"ce-{attributes.TX_ID}"
_CONTENT_HEADER: Final = "ce-datacontenttype"

Missing = Callable[[int, str], None]
"""How many events a reader should have got and will not, and what is known of them."""


class CommittedRecord(Record, frozen=True, gc=False):
    """`sequence` is its number in the order of commits; where it is stored, the other two say."""

    stream: str = ""  # as the server names it
    place: int = 0


class CommittedLog:
    """The events of one type that became visible, as if they were a stream of their own. A feed reads it as it reads
    any stream; `missing` hears of what is gone."""

    def __init__(
        self, transport: Transport, layout: Layout, clock: Clock, *, stream: str, type_token: str, missing: Missing
    ) -> None:
        self._transport = transport
        self._layout = layout
        self._clock = clock
        self._stream = stream
        self._type = type_token
        self._missing = missing
        self._transactions = TransactionLog(transport, layout)

    async def stream_info(self, name: str) -> StreamInfo | None:
        """Of the statuses, with `first` and `last` as numbers of events. A log that is not there is made."""
        info = await self._transport.stream_info(name)
        if info is None:
            state = await self._transport.stream_info(self._layout.state_stream)
            for spec in transaction_streams(self._layout, state.replicas if state is not None else 1):
                await self._transport.ensure_stream(spec)
            info = await self._transport.stream_info(name)
        if info is None:
            return None
        return msgspec.structs.replace(info, first=info.first * SCALE, last=info.last * SCALE + SCALE - 1)

    async def reader(self, stream: str, subjects: Sequence[str], start: Start) -> CommittedReader:
        """`subjects` are those of plain events: they tell which partitions are wanted."""
        begin = start.sequence if isinstance(start, FromSequence) else 1
        status = max(begin // SCALE, 1)
        info = await self._transport.stream_info(stream)
        if info is not None and begin > SCALE and info.first > status:
            gone = info.first - status
            self._missing(gone, f"the statuses {status} to {info.first - 1} are gone, and what they made visible")
        statuses = await self._transport.reader(stream, (), FromSequence(status))
        partitions = frozenset(subject.split(".", 6)[5] for subject in subjects)
        return CommittedReader(self, statuses, self._clock, None if "*" in partitions else partitions, begin)

    async def visible(self, record: Record, begin: int) -> AsyncGenerator[list[CommittedRecord], None]:
        """What a status makes visible, of our type, from the number `begin` on; in pieces, in order."""
        status = read_status(record)
        if status is None:
            self._missing(1, f"the status {record.sequence} is unreadable, and what it made visible is not known")
        if status is None or status.status != "committed" or status.scope == "private":
            return
        try:
            spans = await self._transactions.named_by(status.events)
        except (Gone, InvalidMessage) as error:
            self._missing(count_named(status.events), f"events of {status.tx} cannot be found: {error.what}")
            return
        named = Named(spans, self._stream, record.sequence * SCALE, begin)
        if not named.count:
            return
        pieces = self._fetched(named) if named.count <= COMMITTED_FETCH_MAX_COUNT else self._read(named, status.tx)
        found = 0
        async with contextlib.aclosing(pieces) as batches:
            async for records in batches:
                ours = [one for one in records if self._belongs(one, status.tx) and named.number(one.sequence)]
                found += len(ours)
                yield [self._committed(one, named.number(one.sequence)) for one in ours if self._is_seen(one)]
        if found < named.count:
            self._missing(named.count - found, self._loss(status, named.count - found, record.sequence))

    async def _fetched(self, named: Named) -> AsyncGenerator[list[Record], None]:
        stream = self._layout.event_stream(self._stream)
        found = await asyncio.gather(*(self._transport.fetch(stream, sequence) for sequence in named.sequences()))
        yield [record for record in found if record is not None]

    async def _read(self, named: Named, tx: str) -> AsyncGenerator[Sequence[Record], None]:
        async with contextlib.aclosing(
            self._transactions.records_of(self._stream, tx, named.first, named.last)
        ) as batches:
            async for records in batches:
                yield records

    def _belongs(self, record: Record, tx: str) -> bool:
        """A place that a status names may hold something else in a log that was changed."""
        return record.subject.split(".", 5)[4:5] == [tx] and record.headers.get(_TX_HEADER) == tx

    def _is_seen(self, record: Record) -> bool:
        public = record.headers.get(_SCOPE_HEADER) == "public" and record.headers.get(_CONTENT_HEADER) != SEALED
        return public and record.subject.split(".", 4)[3] == self._type

    def _committed(self, record: Record, number: int) -> CommittedRecord:
        return CommittedRecord(
            subject=record.subject,
            headers=record.headers,
            data=record.data,
            sequence=number,
            stored_at=record.stored_at,
            stream=self._layout.event_stream(self._stream),
            place=record.sequence,
        )

    def _loss(self, status: TransactionStatus, count: int, sequence: int) -> str:
        return (
            f"{count} events of {status.tx}, committed at {sequence} of {self._layout.status_stream}, were removed "
            f"from the stream {self._stream!r} before they were read; nobody knows any more of which type they were"
        )


class Named:
    """The events of one stream that a status names, and their numbers; from the number `begin` on."""

    def __init__(self, spans: tuple[Span, ...], stream: str, number: int, begin: int) -> None:
        self._ranges: list[tuple[int, int, int]] = []  # first and last sequence, number of the first
        for span in spans:
            for first, last in span.ranges:
                skipped = max(0, begin - number)
                if span.stream == stream and first + skipped <= last:
                    self._ranges.append((first + skipped, last, number + skipped))
                number += last - first + 1
        self.count = sum(last - first + 1 for first, last, _ in self._ranges)

    @property
    def first(self) -> int:
        return self._ranges[0][0]

    @property
    def last(self) -> int:
        return self._ranges[-1][1]

    def sequences(self) -> list[int]:
        return [sequence for first, last, _ in self._ranges for sequence in range(first, last + 1)]

    def number(self, sequence: int) -> int:
        """0: it is not one of them."""
        at = bisect_right(self._ranges, sequence, key=lambda known: known[0]) - 1
        if at < 0 or sequence > self._ranges[at][1]:
            return 0
        return self._ranges[at][2] + sequence - self._ranges[at][0]


class CommittedReader:
    """A cursor, as `tutti.bus.port.Reader` says. `partitions` None: all of them."""

    def __init__(
        self, committed: CommittedLog, statuses: Reader, clock: Clock, partitions: frozenset[str] | None, begin: int
    ) -> None:
        self._committed = committed
        self._statuses = statuses
        self._clock = clock
        self._partitions = partitions
        self._begin = begin  # the first number that was not handed out
        self._waiting: deque[Record] = deque()  # statuses; of the first, `_pieces` are under way
        self._pieces: AsyncGenerator[list[CommittedRecord], None] | None = None
        self._ready: deque[CommittedRecord] = deque()

    async def batch(self, max_records: int, *, wait: float | None = None) -> Sequence[Record]:
        deadline = None if wait is None else self._clock.monotonic() + wait
        while not self._ready:
            if self._waiting:
                await self._next_piece()
                continue
            left = None if deadline is None else max(0.0, deadline - self._clock.monotonic())
            statuses = await self._statuses.batch(READ_BATCH_RECORDS, wait=left)
            if not statuses:
                return ()
            self._waiting.extend(statuses)
        records = [self._ready.popleft() for _ in range(min(max_records, len(self._ready)))]
        self._begin = records[-1].sequence + 1
        return records

    async def _next_piece(self) -> None:
        if self._pieces is None:
            self._pieces = self._committed.visible(self._waiting[0], self._begin)
        try:
            piece = await anext(self._pieces, None)
        except BaseException:
            self._pieces = None  # whoever asks again gets what was not handed out yet
            raise
        if piece is None:
            self._pieces = None
            self._waiting.popleft()
            return
        wanted = self._partitions
        self._ready.extend(one for one in piece if wanted is None or one.subject.split(".", 6)[5] in wanted)

    async def horizon(self) -> int:
        reached = await self._statuses.horizon() * SCALE + SCALE - 1
        if self._ready:
            return self._ready[0].sequence - 1
        return max(self._waiting[0].sequence * SCALE, self._begin) - 1 if self._waiting else reached

    async def close(self) -> None:
        pieces, self._pieces = self._pieces, None
        if pieces is not None:
            await pieces.aclose()
        await self._statuses.close()
