"""What is not stored: messages to whoever listens now."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from tutti.bus.memory.subjects import is_subject, matcher
from tutti.bus.memory.waiting import Bell
from tutti.bus.port import Record

if TYPE_CHECKING:
    from tutti.bus.memory.transport import MemoryTransport


class Wire:
    """Who listens to what."""

    def __init__(self) -> None:
        self._exact: dict[str, list[MemoryListener]] = {}
        self._wild: list[MemoryListener] = []
        self._turns: dict[str, int] = {}

    @property
    def listeners(self) -> list[MemoryListener]:
        return [listener for exact in self._exact.values() for listener in exact] + self._wild

    def add(self, listener: MemoryListener) -> None:
        if is_subject(listener.subject):
            self._exact.setdefault(listener.subject, []).append(listener)
        else:
            self._wild.append(listener)

    def discard(self, listener: MemoryListener) -> None:
        if listener in self._wild:
            self._wild.remove(listener)
            return
        exact = self._exact.get(listener.subject, [])
        if listener in exact:
            exact.remove(listener)
            if not exact:
                del self._exact[listener.subject]

    def deliver(self, record: Record) -> None:
        groups: dict[str, list[MemoryListener]] = {}
        wild = (listener for listener in self._wild if listener.matches(record.subject))
        for listener in (*self._exact.get(record.subject, ()), *wild):
            if not listener.hears:
                continue
            if listener.group:
                groups.setdefault(listener.group, []).append(listener)
            else:
                listener.receive(record)
        for group, members in groups.items():
            turn = self._turns[group] = self._turns.get(group, -1) + 1
            members[turn % len(members)].receive(record)


class MemoryListener:
    def __init__(self, transport: MemoryTransport, subject: str, group: str, buffer: int) -> None:
        self.dropped = 0
        self.subject = subject
        self.group = group
        self.matches = matcher((subject,))
        self._transport = transport
        self._buffer = buffer
        self._records: deque[Record] = deque()
        self._bell = Bell()
        self._closed = False

    @property
    def hears(self) -> bool:
        return self._transport.reachable

    @property
    def unread(self) -> bool:
        return bool(self._records)

    def receive(self, record: Record) -> None:
        if len(self._records) >= self._buffer:
            self.dropped += 1
            return
        self._records.append(record)
        self._bell.ring()

    def __aiter__(self) -> AsyncIterator[Record]:
        return self

    async def __anext__(self) -> Record:
        while not self._records:
            if self._closed:
                raise StopAsyncIteration
            await self._bell.wait(self._transport.cluster.clock, None)
        record = self._records.popleft()
        if not self._records:
            self._transport.cluster._progress.ring()
        return record

    async def close(self) -> None:
        """Iteration ends; what was received and not read is dropped."""
        self._closed = True
        self._records.clear()
        self._transport.cluster._wire.discard(self)
        self._transport._listeners.discard(self)
        self._bell.ring()
        self._transport.cluster._progress.ring()
