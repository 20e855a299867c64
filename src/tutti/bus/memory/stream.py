"""One log in memory."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from tutti.bus.memory.messages import MESSAGE_ID, size_of
from tutti.bus.memory.queue import Queue
from tutti.bus.memory.subjects import Matches, queue_of
from tutti.bus.port import (
    FromEarliest,
    FromLatest,
    FromSequence,
    FromTime,
    Record,
    Start,
    Stored,
    StreamInfo,
    StreamSpec,
)
from tutti.errors import Conflict, Refused

if TYPE_CHECKING:
    from tutti.bus.memory.cluster import MemoryCluster
    from tutti.bus.memory.reader import MemoryReader


class Stream:
    """One log: records by sequence, the sequences of every subject, and who reads or takes from it."""

    def __init__(self, spec: StreamSpec, owns: Matches, cluster: MemoryCluster) -> None:
        self.spec = spec
        self.owns = owns
        self.cluster = cluster
        self.records: dict[int, Record] = {}
        self.by_subject: dict[str, list[int]] = {}
        self.last = 0
        self.bytes = 0
        self.readers: set[MemoryReader] = set()
        self.queues: dict[str, Queue] = {}
        self.created_at = cluster.clock.wall()
        self._stored_at = 0.0
        self._ids: dict[str, tuple[int, float]] = {}
        self._first = 1

    @property
    def first(self) -> int:
        while self._first <= self.last and self._first not in self.records:
            self._first += 1
        return self._first

    def info(self) -> StreamInfo:
        return StreamInfo(
            name=self.spec.name,
            first=self.first,
            last=self.last,
            messages=len(self.records),
            bytes=self.bytes,
            subjects=self.spec.subjects,
            replicas=self.spec.replicas,
            leader="memory",
            created_at=self.created_at,
        )

    def append(self, subject: str, headers: dict[str, str], data: bytes, expected_last: int | None) -> Stored:
        sequences = self.by_subject.get(subject)
        # The condition comes before the id, as on the servers: a repeated conditional append is a conflict.
        if expected_last is not None and expected_last != (sequences[-1] if sequences else 0):
            raise Conflict(
                f"{subject!r} has last sequence {sequences[-1] if sequences else 0}, not {expected_last}",
                hint="somebody else was first: read it again",
            )
        message_id = headers.get(MESSAGE_ID, "")
        repeated = self._stored_before(message_id) if message_id else 0
        if repeated:
            return Stored(self.spec.name, repeated, duplicate=True)
        size = len(subject) + size_of(headers, data)
        self._check_room(subject, size)
        self.last = sequence = self.last + 1
        self._stored_at = max(self._stored_at, self.cluster.clock.wall())
        self.records[sequence] = Record(subject, headers, data, sequence, self._stored_at)
        self.bytes += size
        if sequences is None:
            self.by_subject[subject] = [sequence]
        else:
            sequences.append(sequence)
            if self.spec.last_per_subject:
                self.discard(sequences[0])
        if message_id:
            self._ids[message_id] = (sequence, self.cluster.clock.monotonic())
        self._offer(subject, sequence)
        return Stored(self.spec.name, sequence)

    def _stored_before(self, message_id: str) -> int:
        """The sequence that this id got within the duplicate window, or 0."""
        oldest = self.cluster.clock.monotonic() - self.spec.duplicate_window
        while self._ids:
            known = next(iter(self._ids))
            if self._ids[known][1] > oldest:
                break
            del self._ids[known]
        return self._ids.get(message_id, (0, 0.0))[0]

    def _check_room(self, subject: str, size: int) -> None:
        name, spec = self.spec.name, self.spec
        if 0 <= spec.max_message_bytes < size - len(subject):
            raise Refused(
                f"message on {subject!r} passes the {spec.max_message_bytes} bytes that stream {name!r} takes",
                hint="store large content elsewhere and send a reference",
            )
        if name in self.cluster.full or 0 <= spec.max_bytes < self.bytes + size:
            raise Refused(f"stream {name!r} is full", hint="purge it, or raise its max_bytes")

    def _offer(self, subject: str, sequence: int) -> None:
        for reader in self.readers:
            if reader.bell.awaited and reader.matches(subject):
                reader.bell.ring()
        if self.spec.queue:
            self.queue(queue_of(subject)).offer(sequence)

    def position(self, start: Start) -> int:
        """The sequence at which a reader begins."""
        match start:
            case FromSequence(sequence):
                return max(sequence, self.first)
            case FromTime(moment):
                later = (record.sequence for record in self.records.values() if record.stored_at >= moment)
                return next(later, self.last + 1)
            case FromLatest():
                return self.last + 1
            case FromEarliest():
                return self.first

    def last_on(self, subject: str, up_to: int | None) -> Record | None:
        sequences = self.by_subject.get(subject, [])
        count = len(sequences) if up_to is None else bisect_right(sequences, up_to)
        return self.records[sequences[count - 1]] if count else None

    def discard(self, sequence: int) -> bool:
        """Take a record out without a word to the readers."""
        record = self.records.get(sequence)
        if record is None:
            return False
        sequences = self.by_subject[record.subject]
        del sequences[bisect_left(sequences, sequence)]
        self._forget(record)
        return True

    def remove(self, sequence: int) -> bool:
        record = self.records.get(sequence)
        if record is None:
            return False
        for reader in self.readers:
            reader.miss([record])
        return self.discard(sequence)

    def purge(self, below: int) -> int:
        doomed = [self.records[s] for s in range(self.first, min(below, self.last + 1)) if s in self.records]
        for reader in self.readers:
            reader.miss(doomed)
        for subject in {record.subject for record in doomed}:
            sequences = self.by_subject[subject]
            del sequences[: bisect_left(sequences, below)]
        for record in doomed:
            self._forget(record)
        return len(doomed)

    def _forget(self, record: Record) -> None:
        del self.records[record.sequence]
        self.bytes -= len(record.subject) + size_of(record.headers, record.data)
        if not self.by_subject.get(record.subject, True):
            del self.by_subject[record.subject]
        if self.spec.queue:
            self.queue(queue_of(record.subject)).forget(record.sequence)

    def queue(self, name: str) -> Queue:
        found = self.queues.get(name)
        if found is None:
            found = self.queues[name] = Queue(self)
        return found
