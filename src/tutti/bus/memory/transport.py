"""One process's connection to a cluster in memory."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence

from tutti.bus.memory.clock import NEVER, Timer
from tutti.bus.memory.cluster import MemoryCluster
from tutti.bus.memory.messages import check_message
from tutti.bus.memory.reader import MemoryReader
from tutti.bus.memory.subjects import check_subject, matcher
from tutti.bus.memory.waiting import Bell, conclude
from tutti.bus.memory.wire import MemoryListener
from tutti.bus.port import Entry, Record, Start, Status, Stored, StreamInfo, StreamSpec, Taken
from tutti.errors import BusError, OutcomeUnknown, Refused, Unreachable
from tutti.model.subjects import Layout


class MemoryTransport:
    """One process's connection to a cluster; its own new one if none is named."""

    def __init__(self, layout: Layout, *, cluster: MemoryCluster | None = None) -> None:
        self.layout = layout
        self.cluster = cluster if cluster is not None else MemoryCluster()
        self._number = 0
        self._inboxes = 0
        self._state: str = "not started"
        self._cut = False
        self._reconnects = 0
        self._waiting: deque[_Append] = deque()
        self._acknowledgements: deque[tuple[asyncio.Future[Stored], Stored | BusError]] = deque()
        self._takes_from: set[str] = set()
        self._readers: set[MemoryReader] = set()
        self._listeners: set[MemoryListener] = set()
        self._line = Bell()

    # Life

    def status(self) -> Status:
        return Status(
            connected=self.reachable, server="memory", synced=None, reconnects=self._reconnects, detail=self._state
        )

    @property
    def reachable(self) -> bool:
        return self._state == "open" and not self._cut and self.cluster.up

    async def start(self) -> None:
        if self._state == "closed":
            raise Unreachable("this transport was closed", hint="make a new one")
        if self._state == "not started":
            self.cluster._transports_ever += 1
            self._number = self.cluster._transports_ever
            self.cluster._transports[self._number] = self
            self._state = "open"

    async def close(self) -> None:
        self._state = "closed"
        self.cluster._transports.pop(self._number, None)
        for append in self._waiting:
            append.refuse("the transport was closed before it was sent")
        self._waiting.clear()
        for reader in tuple(self._readers):
            await reader.close()
        for listener in tuple(self._listeners):
            await listener.close()
        self._line.ring()
        self.cluster._progress.ring()

    def cut(self) -> None:
        """This connection is lost, until `mend`."""
        self._cut = True

    def mend(self) -> None:
        self._cut = False
        self._resume()

    def _resume(self) -> None:
        if not self.reachable:
            return
        self._reconnects += 1
        waiting, self._waiting = self._waiting, deque()
        for append in waiting:
            append.timer.cancel()
            self._perform(append)
        self._line.ring()
        for reader in self._readers:
            reader.bell.ring()

    async def _reach(self) -> None:
        """Returns when the servers can be asked."""
        clock, timeout = self.cluster.clock, self.cluster.request_timeout
        deadline = clock.monotonic() + timeout
        while not self.reachable:
            self._check_open()
            if clock.monotonic() >= deadline:
                raise Unreachable(f"no server answered within {timeout} s", hint="start the cluster again")
            await self._line.wait(clock, deadline)

    def _check_open(self) -> None:
        if self._state != "open":
            raise Unreachable(f"this transport is {self._state}", hint="use it between start() and close()")

    # The log

    async def ensure_stream(self, spec: StreamSpec) -> StreamInfo:
        await self._reach()
        return self.cluster._ensure(spec).info()

    async def stream_info(self, name: str) -> StreamInfo | None:
        await self._reach()
        stream = self.cluster._streams.get(name)
        return stream.info() if stream is not None else None

    async def stream_names(self) -> Sequence[str]:
        await self._reach()
        return sorted(self.cluster._streams)

    def append(
        self, subject: str, headers: Mapping[str, str], data: bytes, *, timeout: float, expected_last: int | None = None
    ) -> asyncio.Future[Stored]:
        append = _Append(subject, dict(headers), bytes(data), expected_last)
        if self.reachable:
            self._perform(append)
        elif self._state != "open":
            append.refuse(f"this transport is {self._state}")
        else:
            clock = self.cluster.clock
            append.timer = clock.call_at(clock.monotonic() + timeout, lambda: self._give_up(append, timeout))
            self._waiting.append(append)
        return append.future

    def _perform(self, append: _Append) -> None:
        outcome: Stored | BusError
        try:
            check_message(append.subject, append.headers, append.data, self.cluster.max_payload)
            stream = self.cluster._owner(append.subject)
            outcome = stream.append(append.subject, append.headers, append.data, append.expected_last)
            # Whoever listens to the subject hears it too, as on a server, where a stream is one more listener.
            self.cluster._wire.deliver(Record(append.subject, append.headers, append.data))
            if self.cluster._acknowledgement_is_lost():
                outcome = OutcomeUnknown(
                    f"{append.subject!r} was sent and never acknowledged",
                    hint="append it again with the same message id",
                )
        except BusError as refusal:
            outcome = refusal
        # Acknowledged in the loop's next round, as by a server: a publisher that never pauses must not starve others.
        if not self._acknowledgements:
            append.future.get_loop().call_soon(self._acknowledge)
        self._acknowledgements.append((append.future, outcome))

    def _acknowledge(self) -> None:
        acknowledgements, self._acknowledgements = self._acknowledgements, deque()
        for future, outcome in acknowledgements:
            conclude(future, outcome)

    def _give_up(self, append: _Append, timeout: float) -> None:
        if append in self._waiting:
            self._waiting.remove(append)
            append.refuse(f"no server was reached within {timeout} s")
            self.cluster._progress.ring()

    async def reader(self, stream: str, subjects: Sequence[str], start: Start) -> MemoryReader:
        await self._reach()
        source = self.cluster._stream(stream)
        reader = MemoryReader(self, source, matcher(subjects), source.position(start))
        source.readers.add(reader)
        self._readers.add(reader)
        return reader

    async def fetch(self, stream: str, sequence: int) -> Record | None:
        await self._reach()
        return self.cluster._stream(stream).records.get(sequence)

    async def last(self, stream: str, subject: str, *, up_to: int | None = None) -> Record | None:
        await self._reach()
        return self.cluster._stream(stream).last_on(subject, up_to)

    async def purge(self, stream: str, *, below: int) -> int:
        await self._reach()
        return self.cluster._stream(stream).purge(below)

    async def remove(self, stream: str, sequence: int) -> bool:
        await self._reach()
        return self.cluster._stream(stream).remove(sequence)

    # The state

    async def state_get(self, key: str) -> Entry | None:
        await self._reach()
        record = self.cluster._stream(self.layout.state_stream).last_on(self._state_subject(key), None)
        return self._entry(record)

    async def state_list(self, prefix: str) -> Sequence[Entry]:
        await self._reach()
        stream = self.cluster._stream(self.layout.state_stream)
        below = self._state_subject(f"{prefix}.") if prefix else self._state_subject("")
        itself = self._state_subject(prefix)
        subjects = [s for s in stream.by_subject if s.startswith(below) or s == itself]
        entries = (self._entry(stream.last_on(subject, None)) for subject in subjects)
        return sorted((entry for entry in entries if entry is not None), key=lambda entry: entry.key)

    async def state_put(self, key: str, value: bytes, *, expected: int, timeout: float = 5.0) -> int:
        subject = self._state_subject(key)
        expected_last = expected
        stream = self.cluster._streams.get(self.layout.state_stream)
        if stream is not None and expected == 0:
            # A deleted record leaves its empty successor, so that those who read the stream see the deletion.
            before = stream.last_on(subject, None)
            expected_last = before.sequence if before is not None and not before.data else 0
        stored = await self.append(subject, {}, value, timeout=timeout, expected_last=expected_last)
        return stored.sequence if value else 0

    def _state_subject(self, key: str) -> str:
        return f"{self.layout.namespace}.state.{key}"

    def _entry(self, record: Record | None) -> Entry | None:
        if record is None or not record.data:
            return None
        key = record.subject.removeprefix(self._state_subject(""))
        return Entry(key=key, value=record.data, revision=record.sequence, stored_at=record.stored_at)

    # The queues

    async def take(self, queue: str, *, max_messages: int = 1, wait: float | None = None) -> Sequence[Taken]:
        await asyncio.sleep(0)  # a taker that is never out of work must not starve the others
        clock = self.cluster.clock
        deadline = None if wait is None else clock.monotonic() + wait
        name = self.layout.queue(queue, "").removesuffix(".")
        self._check_open()
        self._takes_from.add(name)
        while True:
            self._check_open()
            if self.reachable:
                source = self.cluster._stream(self.layout.queue_stream).queue(name)
                taken = source.take(max_messages, self)
                if taken:
                    return taken
                bell = source.bell
            else:
                bell = self._line
            if deadline is not None and clock.monotonic() >= deadline:
                return ()
            await bell.wait(clock, deadline, self._line)

    # The wire

    def emit(self, subject: str, headers: Mapping[str, str], data: bytes, *, reply: str = "") -> None:
        self._check_open()
        check_subject(subject)
        check_message(subject, headers, data, self.cluster.max_payload)
        if self.reachable:
            self.cluster._wire.deliver(Record(subject, dict(headers), bytes(data), 0, 0.0, reply))

    async def listen(self, subject: str, *, group: str = "", buffer: int = 65_536) -> MemoryListener:
        await self._reach()
        listener = MemoryListener(self, subject, group, buffer)
        self.cluster._wire.add(listener)
        self._listeners.add(listener)
        return listener

    def inbox(self) -> str:
        self._check_open()
        self._inboxes += 1
        return f"_INBOX.{self._number}.{self._inboxes}"


class _Append:
    """One append on its way. Its sender may have stopped waiting for it."""

    __slots__ = ("data", "expected_last", "future", "headers", "subject", "timer")

    def __init__(self, subject: str, headers: dict[str, str], data: bytes, expected_last: int | None) -> None:
        self.subject = subject
        self.headers = headers
        self.data = data
        self.expected_last = expected_last
        self.future: asyncio.Future[Stored] = asyncio.get_running_loop().create_future()
        self.timer: Timer = NEVER

    def refuse(self, why: str) -> None:
        self.timer.cancel()
        refusal = Refused(f"{self.subject!r} was not stored: {why}", hint="append it again when the bus is back")
        conclude(self.future, refusal)
