"""The port between Tutti and whatever carries its messages.

Two implementations pass one contract suite (`tutti.testing.contracts`): `bus.memory` and `bus.nats`. The port knows
subjects, headers and bytes; it knows nothing of event types, filters, subscribers or transactions.

Four services:

* the **log**: durable streams. `append` stores and acknowledges; a `Reader` is a cursor that forgets nothing but its
  own existence: positions belong to whoever reads.
* the **state**: small records under a key, changed only by compare-and-set. Leases and advertisements live here.
* the **queues**: each message goes to one taker, who settles it.
* the **wire**: messages that are delivered now or never.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

import msgspec


class Record(msgspec.Struct, frozen=True, gc=False):
    """One message, as the log stored it (`sequence` > 0) or as the wire delivered it (`sequence` 0)."""

    subject: str
    headers: Mapping[str, str]
    data: bytes
    sequence: int = 0
    stored_at: float = 0.0  # seconds since the epoch, by the server's clock
    reply: str = ""


class Stored(msgspec.Struct, frozen=True, gc=False):
    """The log's acknowledgement. `duplicate`: the same message id was stored before, at `sequence` (0 if unknown)."""

    stream: str
    sequence: int
    duplicate: bool = False


class StreamSpec(msgspec.Struct, frozen=True):
    """What a stream should be. Streams refuse new data rather than drop old; only `purge` removes."""

    name: str
    subjects: tuple[str, ...]
    max_bytes: int = -1  # -1: as much as the server gives
    max_message_bytes: int = -1
    replicas: int = 1
    duplicate_window: float = 120.0  # seconds
    last_per_subject: bool = False  # keeps one record per subject: the state
    queue: bool = False  # a settled message is removed: the queues


class StreamInfo(msgspec.Struct, frozen=True):
    """How a stream is now. `first`: the oldest sequence still there (`last` + 1 if empty); `last`: the newest given."""

    name: str
    first: int
    last: int
    messages: int
    bytes: int
    subjects: tuple[str, ...] = ()
    replicas: int = 1
    leader: str = ""
    created_at: float = 0.0


class FromSequence(msgspec.Struct, frozen=True, tag="sequence"):
    """Start at this sequence, or the next one that is there."""

    sequence: int


class FromTime(msgspec.Struct, frozen=True, tag="time"):
    """Start at the first message stored at or after this moment (seconds since the epoch)."""

    time: float


class FromLatest(msgspec.Struct, frozen=True, tag="latest"):
    """Start with what is stored from now on."""


class FromEarliest(msgspec.Struct, frozen=True, tag="earliest"):
    """Start with the oldest message that is still there."""


Start = FromSequence | FromTime | FromLatest | FromEarliest


class Entry(msgspec.Struct, frozen=True):
    """One state record. `revision` is what a change must name to be taken."""

    key: str
    value: bytes
    revision: int
    stored_at: float = 0.0


class Status(msgspec.Struct, frozen=True):
    """The way to the servers, for health checks and `tutti doctor`."""

    connected: bool
    server: str
    version: str = ""
    synced: bool | None = None  # None: the server does not say
    reconnects: int = 0
    detail: str = ""


class Reader(Protocol):
    """A cursor over one stream. Survives reconnects and server restarts by itself: it resumes behind the last record it
    handed out, so a record is never skipped and never handed out twice by one reader."""

    async def batch(self, max_records: int, *, wait: float | None = None) -> Sequence[Record]:
        """The next records in stream order: at least one, at most `max_records`. Waits for the first (for ever if
        `wait` is None); after `wait` seconds without one, returns an empty sequence. Raises `Gone` if records that
        should come next were removed from the log before they were read."""
        ...

    async def horizon(self) -> int:
        """A sequence of the stream up to which every matching record has been handed out. It moves with the stream
        even when nothing matches, so that a position can follow; it may be behind, it is never ahead."""
        ...

    async def close(self) -> None: ...


class Taken(Protocol):
    """A message taken from a queue: nobody else gets it until it is settled or its taker falls silent."""

    @property
    def record(self) -> Record: ...
    @property
    def attempt(self) -> int:
        """1 for the first delivery."""
        ...

    async def settle(self) -> None:
        """Done: it is removed for good, durably, when this returns."""
        ...

    async def hand_back(self, *, delay: float = 0.0) -> None:
        """Not done: it is offered again after `delay` seconds."""
        ...

    async def working(self) -> None:
        """Still at it: the silence limit starts anew."""
        ...


class Listener(Protocol):
    """A subscription on the wire. Iterate to receive; what arrives while the buffer is full is dropped and counted."""

    dropped: int

    def __aiter__(self) -> AsyncIterator[Record]: ...
    async def close(self) -> None: ...


class Transport(Protocol):
    """Everything Tutti asks of a bus. `start` before use, `close` after."""

    def status(self) -> Status: ...
    async def start(self) -> None: ...
    async def close(self) -> None: ...

    # The log

    async def ensure_stream(self, spec: StreamSpec) -> StreamInfo:
        """Create the stream, or bring an existing one's limits up to date. Safe to call from many processes at once."""
        ...

    async def stream_info(self, name: str) -> StreamInfo | None: ...
    async def stream_names(self) -> Sequence[str]: ...

    def append(
        self, subject: str, headers: Mapping[str, str], data: bytes, *, timeout: float, expected_last: int | None = None
    ) -> asyncio.Future[Stored]:
        """Store one message in the stream that owns `subject`. The order of calls is the order in the log, across
        reconnects too. A `Nats-Msg-Id` header makes repetition harmless within the stream's duplicate window.
        `expected_last` is the sequence that must be the last one on that subject (0: none yet), else `Conflict`.

        The future fails with `Refused` if the message is certainly not stored, with `OutcomeUnknown` if it may be.
        Cancelling the future abandons the wait, not the message."""
        ...

    async def reader(self, stream: str, subjects: Sequence[str], start: Start) -> Reader:
        """A cursor over the records whose subject matches one of `subjects` (`*` one token, `>` the rest; empty: all).
        When this returns, the start is fixed: a record appended later will be read."""
        ...

    async def fetch(self, stream: str, sequence: int) -> Record | None: ...
    async def last(self, stream: str, subject: str, *, up_to: int | None = None) -> Record | None:
        """The last record on exactly that subject (at or below the sequence `up_to`)."""
        ...

    async def purge(self, stream: str, *, below: int) -> int:
        """Remove every record with a sequence below `below`; returns how many went."""
        ...

    async def remove(self, stream: str, sequence: int) -> bool:
        """Remove one record; False if it was not there."""
        ...

    # The state

    async def state_get(self, key: str) -> Entry | None: ...
    async def state_list(self, prefix: str) -> Sequence[Entry]:
        """Every record whose key starts with the tokens of `prefix` (keys are dot-separated tokens), ordered by key."""
        ...

    async def state_put(self, key: str, value: bytes, *, expected: int, timeout: float = 5.0) -> int:
        """Write if the record's revision is still `expected` (0: it does not exist); returns the new revision, else
        raises `Conflict`. An empty value deletes: the record then reads as absent, with its revision gone to 0."""
        ...

    # The queues

    async def take(self, queue: str, *, max_messages: int = 1, wait: float | None = None) -> Sequence[Taken]:
        """The oldest messages of `queue` that nobody holds. Waits as `Reader.batch` does."""
        ...

    # The wire

    def emit(self, subject: str, headers: Mapping[str, str], data: bytes, *, reply: str = "") -> None:
        """Send now, to whoever listens now. Nothing is stored and nothing acknowledged."""
        ...

    async def listen(self, subject: str, *, group: str = "", buffer: int = 65_536) -> Listener:
        """Receive what is emitted from the moment this returns. Of the listeners of one `group`, one gets a message."""
        ...

    def inbox(self) -> str:
        """A fresh subject that nobody else uses, for replies."""
        ...
