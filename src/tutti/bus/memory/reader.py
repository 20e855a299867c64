"""Reading a stream in order."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tutti.bus.memory.subjects import Matches
from tutti.bus.memory.waiting import Bell
from tutti.bus.port import Record
from tutti.errors import BusError, Gone

if TYPE_CHECKING:
    from tutti.bus.memory.stream import Stream
    from tutti.bus.memory.transport import MemoryTransport


class MemoryReader:
    """A cursor: `_next` is the first sequence it has not looked at, `_missed` what was removed before it came there."""

    def __init__(self, transport: MemoryTransport, stream: Stream, matches: Matches, position: int) -> None:
        self.matches = matches
        self.bell = Bell()
        self._transport = transport
        self._stream = stream
        self._next = position
        self._missed: list[int] = []
        self._closed = False

    async def batch(self, max_records: int, *, wait: float | None = None) -> Sequence[Record]:
        await asyncio.sleep(0)  # a reader that is never at the end must not starve the others
        clock = self._transport.cluster.clock
        deadline = None if wait is None else clock.monotonic() + wait
        while True:
            self._check_open()
            records = self._advance(max_records) if self._transport.reachable else []
            if records:
                self._transport.cluster._progress.ring()
                return records
            if deadline is not None and clock.monotonic() >= deadline:
                return ()
            await self.bell.wait(clock, deadline)

    async def horizon(self) -> int:
        self._check_open()
        if self._transport.reachable:
            self._skip()
        return (min(self._next, self._missed[0]) if self._missed else self._next) - 1

    async def close(self) -> None:
        self._closed = True
        self._stream.readers.discard(self)
        self._transport._readers.discard(self)
        self.bell.ring()
        self._transport.cluster._progress.ring()

    @property
    def behind(self) -> bool:
        self._skip()
        return self._next <= self._stream.last or bool(self._missed)

    def miss(self, records: Iterable[Record]) -> None:
        """These are about to be removed: remember those that this reader should still have got."""
        for record in records:
            if record.sequence >= self._next and self.matches(record.subject):
                insort(self._missed, record.sequence)
                self.bell.ring()

    def _check_open(self) -> None:
        self._transport._check_open()
        if self._closed:
            raise BusError(f"this reader of {self._stream.spec.name!r} is closed", hint="open another one")

    def _skip(self) -> None:
        """Step over what does not match."""
        records, matches, sequence = self._stream.records, self.matches, max(self._next, 1)
        while sequence <= self._stream.last:
            record = records.get(sequence)
            if record is not None and matches(record.subject):
                break
            sequence += 1
        self._next = sequence

    def _advance(self, max_records: int) -> list[Record]:
        found: list[Record] = []
        records, matches = self._stream.records, self.matches
        sequence = self._next
        end = self._missed[0] if self._missed else self._stream.last + 1
        while sequence < end and len(found) < max_records:
            record = records.get(sequence)
            if record is not None and matches(record.subject):
                found.append(record)
            sequence += 1
        self._next = sequence
        if not found and self._missed:
            self._raise_gone()
        return found

    def _raise_gone(self) -> None:
        """Told once for each run of missing records; the reader goes on behind it."""
        self._skip()
        count = bisect_left(self._missed, self._next)
        gone, self._missed = self._missed[:count], self._missed[count:]
        raise Gone(
            f"{count} records between {gone[0]} and {gone[-1]} of stream {self._stream.spec.name!r} were removed "
            "before they were read",
            hint="purge only what every reader has read; reading goes on behind them",
        )
