"""How far each subscription has come: one record per (subscriber, partition), changed only by its owner.

A new owner writes its epoch into the record before it handles anything: from then on the writes of the one before it,
which name an older revision, are refused. That is the fence, whatever that process still believes.
"""

from __future__ import annotations

import logging

import msgspec

from tutti.bus.port import Entry, FromEarliest, FromLatest, FromSequence, FromTime, Start, Transport
from tutti.errors import Conflict
from tutti.limits import PARTITIONS_COUNT
from tutti.model.decoding import UNDECODABLE

log = logging.getLogger("tutti.positions")


class Positions(msgspec.Struct, frozen=True):
    """What a successor must know of a partition."""

    epoch: int = 0
    at: dict[str, int] = {}  # subscription: everything up to here is done
    attempts: dict[str, dict[int, int]] = {}  # subscription: sequence: failed attempts so far
    running: dict[str, list[int]] = {}  # subscription: sequences in a handler just now; empty after a clean end
    created: dict[str, float] = {}  # subscription: when the stream was made that the sequences are of
    deaths: int = 0  # owners in a row that wrote nothing after they had begun: something may kill them


class Registration(msgspec.Struct, frozen=True):
    """A durable subscription: retention keeps what it has not read yet, whether or not an instance is running."""

    subscriber: str
    subscription: str
    stream: str  # as the server names it
    type: str
    where: str
    start: int  # the position it began with
    since: str
    partitions: int = PARTITIONS_COUNT  # 1 for a foreign stream
    scale: int = 1  # so many positions for each record of the stream: a status makes many events visible


class PositionStore:
    def __init__(self, transport: Transport, subscriber: str) -> None:
        self._transport = transport
        self._subscriber = subscriber
        self._revisions: dict[int, int] = {}
        self._found: dict[int, Positions] = {}  # as the last owner left it

    async def register(self, wanted: Registration, start: Start) -> Registration:
        """The registration of this subscription, made now if there is none. The start is resolved once, for all."""
        key = f"subscription.{wanted.subscriber}.{wanted.subscription}"
        while True:
            entry = await self._transport.state_get(key)
            known = _registration(entry) if entry is not None else None
            if known is not None and known.stream == wanted.stream:
                if (known.type, known.where) == (wanted.type, wanted.where):
                    return known
                wanted = msgspec.structs.replace(wanted, start=known.start, since=known.since)
            else:
                wanted = msgspec.structs.replace(wanted, start=await self.resolve(wanted.stream, start))
            try:
                await self._transport.state_put(
                    key, msgspec.json.encode(wanted), expected=entry.revision if entry is not None else 0
                )
            except Conflict:
                continue
            return wanted

    async def resolve(self, stream: str, start: Start) -> int:
        """The position just before the start."""
        info = await self._transport.stream_info(stream)
        if info is None:
            return 0
        match start:
            case FromLatest():
                return info.last
            case FromEarliest():
                return 0
            case FromSequence():
                return start.sequence - 1
            case FromTime():
                return await first_at(self._transport, stream, start.time) - 1

    async def take_over(self, partition: int, epoch: int) -> Positions | None:
        """Fence the partition for this epoch, and learn where its last owner left it. None: a newer epoch has it."""
        while True:
            entry = await self._transport.state_get(self._key(partition))
            known = _readable(entry) if entry is not None else Positions()
            if known.epoch > epoch:
                return None
            fenced = msgspec.structs.replace(known, epoch=epoch, deaths=known.deaths + 1)
            try:
                self._revisions[partition] = await self._transport.state_put(
                    self._key(partition),
                    msgspec.json.encode(fenced),
                    expected=entry.revision if entry is not None else 0,
                )
            except Conflict:
                continue
            self._found[partition] = known
            return known

    async def save(self, partition: int, positions: Positions) -> None:
        """Raises `Conflict` if the partition has a new owner. A conflict with ourselves (a write that was stored though
        its answer was lost) is none: an epoch has one owner. What another version of this subscriber, with other
        handlers, left there stays as it is."""
        found = self._found.get(partition, Positions())
        positions = msgspec.structs.replace(
            positions,
            at=found.at | positions.at,
            attempts={n: a for n, a in found.attempts.items() if n not in positions.at} | positions.attempts,
            running={n: r for n, r in found.running.items() if n not in positions.at} | positions.running,
        )
        while True:
            try:
                self._revisions[partition] = await self._transport.state_put(
                    self._key(partition), msgspec.json.encode(positions), expected=self._revisions[partition]
                )
            except Conflict:
                entry = await self._transport.state_get(self._key(partition))
                if entry is not None and _readable(entry).epoch != positions.epoch:
                    raise
                self._revisions[partition] = entry.revision if entry is not None else 0
            else:
                return

    def _key(self, partition: int) -> str:
        return f"position.{self._subscriber}.{partition}"


def _registration(entry: Entry) -> Registration | None:
    """One that somebody spoilt is made anew; how far the subscription has come stands elsewhere."""
    try:
        return msgspec.json.decode(entry.value, type=Registration)
    except UNDECODABLE:
        log.exception("the record %s is unreadable, and written anew", entry.key)
        return None


def _readable(entry: Entry) -> Positions:
    """A record that somebody spoilt says nothing: the subscription begins where it once began, and repeats."""
    try:
        return msgspec.json.decode(entry.value, type=Positions)
    except UNDECODABLE:
        log.exception("the record %s is unreadable: its subscriptions start again from their beginning", entry.key)
        return Positions()


async def first_at(transport: Transport, stream: str, time: float) -> int:
    """The sequence of the first record stored at or after this moment; behind the last one if there is none. Silence
    proves nothing: only the log itself may say that there is none."""
    info = await transport.stream_info(stream)
    if info is None:
        return 1
    reader = await transport.reader(stream, (), FromTime(time))
    try:
        while await reader.horizon() < info.last:
            found = await reader.batch(1, wait=0.5)
            if found:
                return found[0].sequence
    finally:
        await reader.close()
    return info.last + 1
