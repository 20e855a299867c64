"""What the log tells of transactions: where their events stand, and the manifests that name very many of them.

Streams of events are named as types name them, here and in statuses: the name on the server follows from the namespace.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from typing import Final

import msgspec

from tutti.bus.port import FromSequence, Record, Stored, StreamSpec, Transport
from tutti.errors import Gone, InvalidMessage
from tutti.limits import READ_BATCH_RECORDS, STATUS_APPEND_SECONDS, TRANSACTION_EVENTS_MAX_COUNT
from tutti.model.decoding import UNDECODABLE
from tutti.model.status import (
    InlineEvents,
    ManifestEvents,
    ManifestReference,
    NamedEvents,
    Span,
    count_of,
    digest_of,
    manifests_of,
    rejoined,
)
from tutti.model.subjects import Layout
from tutti.runtime.publisher import MESSAGE_ID_HEADER

log = logging.getLogger("tutti.transactions")

_QUIET_SECONDS: Final = 0.5  # without a record: then the log is asked whether there are any more
_spans: Final = msgspec.json.Decoder(tuple[Span, ...])
_encode: Final = msgspec.json.Encoder().encode


def transaction_streams(layout: Layout, replicas: int) -> tuple[StreamSpec, StreamSpec]:
    """Where statuses are, and the manifests that some of them refer to."""
    return (
        StreamSpec(layout.status_stream, (layout.status_subjects,), replicas=replicas),
        StreamSpec(layout.manifest_stream, (layout.manifest_subjects,), replicas=replicas),
    )


class TransactionLog:
    """`streams` tells the names of all streams of events."""

    def __init__(
        self, transport: Transport, layout: Layout, streams: Callable[[], Awaitable[Iterable[str]]] | None = None
    ) -> None:
        self._transport = transport
        self._layout = layout
        self._streams = streams

    async def events_of(self, tx: str, streams: Iterable[str] | None = None) -> dict[str, set[int]]:
        """The sequences of a transaction's events, by stream, as far as they are stored now. `streams`: where they can
        be, if that is known: else all are searched."""
        if streams is None:
            streams = await self._streams() if self._streams is not None else ()
        names = sorted(set(streams))
        found = await asyncio.gather(*(self._sequences(name, tx) for name in names))
        return {name: sequences for name, sequences in zip(names, found, strict=True) if sequences}

    async def _sequences(self, stream: str, tx: str) -> set[int]:
        info = await self._transport.stream_info(self._layout.event_stream(stream))
        found: set[int] = set()
        if info is not None and info.messages:
            async with contextlib.aclosing(self.records_of(stream, tx, info.first, info.last)) as batches:
                async for records in batches:
                    found.update(record.sequence for record in records)
        return found

    async def records_of(self, stream: str, tx: str, first: int, last: int) -> AsyncGenerator[Sequence[Record], None]:
        """A transaction's records between these two sequences, in order. What was removed does not come."""
        name = self._layout.event_stream(stream)
        subjects = (self._layout.of_transaction(stream, tx),)
        reader = await self._transport.reader(name, subjects, FromSequence(first))
        try:
            while await reader.horizon() < last:
                try:
                    records = await reader.batch(READ_BATCH_RECORDS, wait=_QUIET_SECONDS)
                except Gone as error:
                    log.warning("%s: %s", tx, error.what)
                    continue
                within = [record for record in records if record.sequence <= last]
                if within:
                    yield within
                if len(within) < len(records):
                    return
        finally:
            await reader.close()

    async def publish_manifests(self, tx: str, spans: tuple[Span, ...]) -> tuple[ManifestReference, ...]:
        """Store what is too much for a status, and tell where it stands. Empty if it is not too much. Again with the
        same spans within the duplicate window, it stores nothing."""
        if (count := count_of(spans)) > TRANSACTION_EVENTS_MAX_COUNT:
            raise InvalidMessage(
                f"{tx} has {count:,} events; the limit is {TRANSACTION_EVENTS_MAX_COUNT:,}",
                hint="use several transactions",
            )
        parts = manifests_of(spans)
        if not parts:
            return ()
        identity = f"{tx}/{digest_of(spans)}"
        stored = await asyncio.gather(*(self._store(tx, f"{identity}/{n}", part) for n, part in enumerate(parts)))
        return tuple(ManifestReference(self._layout.manifest_stream, one.sequence) for one in stored)

    async def _store(self, tx: str, identity: str, part: tuple[Span, ...]) -> Stored:
        subject, body = self._layout.manifest(tx), _encode(part)
        stored = await self._transport.append(
            subject, {MESSAGE_ID_HEADER: identity}, body, timeout=STATUS_APPEND_SECONDS
        )
        if stored.duplicate and not stored.sequence:  # it stands there, but nobody says where
            stored = await self._transport.append(subject, {}, body, timeout=STATUS_APPEND_SECONDS)
        return stored

    async def named_by(self, events: NamedEvents) -> tuple[Span, ...]:
        """The events that a status names, itself or through its manifests. `Gone` if one of these is not there any
        more, `InvalidMessage` if together they are not what the status says."""
        if isinstance(events, InlineEvents):
            return events.spans
        return rejoined(events, await asyncio.gather(*map(self._part, events.manifests)))

    async def _part(self, reference: ManifestReference) -> tuple[Span, ...]:
        record = await self._transport.fetch(reference.stream, reference.sequence)
        if record is None:
            raise Gone(
                f"the manifest {reference.sequence} of {reference.stream} is gone", hint="the log was changed by hand"
            )
        try:
            return _spans.decode(record.data)
        except UNDECODABLE as error:
            raise InvalidMessage(
                f"the manifest {reference.sequence} of {reference.stream} is unreadable: {error}",
                hint="who else writes there?",
            ) from error


def count_named(events: NamedEvents) -> int:
    """How many events a status names, without looking at its manifests."""
    return events.count if isinstance(events, ManifestEvents) else count_of(events.spans)
