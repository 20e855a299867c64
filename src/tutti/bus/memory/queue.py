"""The queues: every message has one holder at a time, until it is settled."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from tutti.bus.memory.clock import NEVER, Timer
from tutti.bus.memory.waiting import Bell
from tutti.bus.port import Record, Taken

if TYPE_CHECKING:
    from tutti.bus.memory.stream import Stream
    from tutti.bus.memory.transport import MemoryTransport


class Queue:
    """The messages of one queue: free ones by age, held ones by their holder."""

    def __init__(self, stream: Stream) -> None:
        self.bell = Bell()
        self._stream = stream
        self._free: list[int] = []
        self._held: dict[int, MemoryTaken] = {}
        self._resting: dict[int, Timer] = {}  # handed back with a delay
        self._attempts: dict[int, int] = {}

    @property
    def untaken(self) -> bool:
        return bool(self._free or self._resting)

    def offer(self, sequence: int) -> None:
        self._resting.pop(sequence, NEVER).cancel()
        heapq.heappush(self._free, sequence)
        self.bell.ring()

    def take(self, max_messages: int, transport: MemoryTransport) -> list[Taken]:
        taken: list[Taken] = []
        while self._free and len(taken) < max_messages:
            sequence = heapq.heappop(self._free)
            attempt = self._attempts[sequence] = self._attempts.get(sequence, 0) + 1
            holder = MemoryTaken(self, self._stream, transport, self._stream.records[sequence], attempt)
            self._held[sequence] = holder
            holder.watch()
            taken.append(holder)
        if taken:
            self._stream.cluster._progress.ring()
        return taken

    def holds(self, holder: MemoryTaken) -> bool:
        return self._held.get(holder.record.sequence) is holder

    def hand_back(self, holder: MemoryTaken, delay: float) -> None:
        """Also when the holder fell silent. A holder that has lost it meanwhile changes nothing."""
        if not self.holds(holder):
            return
        sequence = holder.record.sequence
        self._held.pop(sequence).timer.cancel()
        if delay > 0:
            clock = self._stream.cluster.clock
            self._resting[sequence] = clock.call_at(clock.monotonic() + delay, lambda: self.offer(sequence))
        else:
            self.offer(sequence)

    def forget(self, sequence: int) -> None:
        self._attempts.pop(sequence, None)
        self._resting.pop(sequence, NEVER).cancel()
        holder = self._held.pop(sequence, None)
        if holder is not None:
            holder.timer.cancel()
        elif sequence in self._free:
            self._free.remove(sequence)
            heapq.heapify(self._free)
        self._stream.cluster._progress.ring()


class MemoryTaken:
    def __init__(self, queue: Queue, stream: Stream, transport: MemoryTransport, record: Record, attempt: int) -> None:
        self.timer: Timer = NEVER
        self._queue = queue
        self._stream = stream
        self._transport = transport
        self._record = record
        self._attempt = attempt

    @property
    def record(self) -> Record:
        return self._record

    @property
    def attempt(self) -> int:
        return self._attempt

    async def settle(self) -> None:
        await self._transport._reach()
        self._stream.discard(self._record.sequence)

    async def hand_back(self, *, delay: float = 0.0) -> None:
        await self._transport._reach()
        self._queue.hand_back(self, delay)

    async def working(self) -> None:
        await self._transport._reach()
        if self._queue.holds(self):
            self.watch()

    def watch(self) -> None:
        """Start the silence limit anew."""
        self.timer.cancel()
        cluster = self._stream.cluster
        silent_at = cluster.clock.monotonic() + cluster.silence
        self.timer = cluster.clock.call_at(silent_at, lambda: self._queue.hand_back(self, 0.0))
