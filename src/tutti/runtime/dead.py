"""Dead letters: events that could not be handled, with everything a person needs to decide what becomes of them.

A letter's record is one line of JSON, what is known about the event, and then the event's own data, byte for byte: so
the largest event still fits.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Final

import msgspec

from tutti.bus.port import FromEarliest, Record, Stored, Transport
from tutti.errors import BusError, InvalidEvent, Refused, TuttiError
from tutti.limits import REASON_MAX_CHARACTERS, TRACEBACK_MAX_CHARACTERS, WIRE_MAX_BYTES
from tutti.model.decoding import UNDECODABLE
from tutti.model.envelope import Envelope
from tutti.model.subjects import Layout
from tutti.runtime.publisher import MESSAGE_ID_HEADER, REPLAY_PREFIX

log = logging.getLogger("tutti.dead")

RECEIVED: Final = "(receive)"  # the subscription of what `bus.receive` could not read; its subscriber is the queue
_ENVELOPE_BYTES: Final = 1_000  # of a record that the letter itself does not fill: subject and headers


class DeadLetter(msgspec.Struct, frozen=True):
    """One event that one subscription gave up on. `number` names it for `tutti dead`; it is its place in the log."""

    subscriber: str
    subscription: str
    reason: str
    attempts: int
    buried_at: str
    event_id: str
    event_type: str
    source: str
    subject: str
    stream: str
    sequence: int
    headers: dict[str, str]
    payload: bytes  # the event's data
    traceback: str = ""
    number: int = 0
    whole: bool = True  # False: the data were larger than any message of ours, and were not kept
    replay: int = 0  # which replay failed: its place in the log of queues; 0 for an event as it was published or sent

    @classmethod
    def of(
        cls,
        record: Record,
        envelope: Envelope,
        *,
        subscriber: str,
        subscription: str,
        stream: str,
        reason: str,
        attempts: int,
        traceback: str,
        buried_at: datetime,
        replay: int = 0,
    ) -> DeadLetter:
        return cls(
            subscriber=subscriber,
            subscription=subscription,
            reason=plain(reason)[:REASON_MAX_CHARACTERS],
            attempts=attempts,
            buried_at=buried_at.isoformat(),
            event_id=envelope.id,
            event_type=envelope.type,
            source=envelope.source,
            subject=record.subject,
            stream=stream,
            sequence=record.sequence,
            headers={plain(name): plain(value) for name, value in record.headers.items()},
            payload=record.data,
            traceback=plain(traceback),
            replay=replay,
        )

    @property
    def identity(self) -> str:
        """The same for every letter that one subscription writes about one series of attempts at one event. A replay is
        another series. A best-effort event has no place in a log, and comes once."""
        event = hashlib.blake2s(
            f"{self.source}\0{self.event_id}".encode(errors="backslashreplace"), digest_size=8
        ).hexdigest()
        place = f"{self.stream}/{self.sequence or self.buried_at}/{event}/{self.replay}"
        return f"{self.subscriber}/{self.subscription}/{place}"

    def record(self) -> Record:
        """The record as it was received."""
        return Record(self.subject, self.headers, self.payload, self.sequence)


class DeadLetters:
    """The dead letters of one bus."""

    def __init__(self, transport: Transport, layout: Layout) -> None:
        self._transport = transport
        self._layout = layout

    async def bury(self, letter: DeadLetter, *, timeout: float) -> int:
        """Store a letter; returns its number. The same event of the same subscription is buried once, within the
        duplicate window: also if it was handled again because a position or a settlement was lost."""
        stored = await self._append(letter, letter.identity, timeout)
        if stored.duplicate and await self._transport.fetch(self._layout.dead_stream, stored.sequence) is None:
            # Somebody has dropped or replayed that one: this is another failure, and it must not go unseen.
            stored = await self._append(letter, f"{letter.identity}/{letter.buried_at}", timeout)
        return stored.sequence

    def _append(self, letter: DeadLetter, identity: str, timeout: float) -> asyncio.Future[Stored]:
        subject = self._layout.dead(letter.subscriber, letter.subscription)
        return self._transport.append(subject, {MESSAGE_ID_HEADER: identity}, _fitting(letter), timeout=timeout)

    async def bury_in_the_end(self, letter: DeadLetter) -> None:
        """Store a letter, however long the bus is away or full."""
        pause = 0.2
        while True:
            try:
                await self.bury(letter, timeout=10.0)
            except BusError as error:
                log.warning("%s.%s: dead letter not stored yet: %s", letter.subscriber, letter.subscription, error.what)
                await asyncio.sleep(pause)
                pause = min(pause * 2, 10.0) if isinstance(error, Refused) else pause
            else:
                return

    async def each(self, subscriber: str | None = None) -> AsyncIterator[DeadLetter]:
        """The letters that are there now, oldest first."""
        info = await self._transport.stream_info(self._layout.dead_stream)
        if info is None or not info.messages:
            return
        subjects = [f"{self._layout.namespace}.dead.{subscriber}.>"] if subscriber else []
        reader = await self._transport.reader(self._layout.dead_stream, subjects, FromEarliest())
        try:
            while await reader.horizon() < info.last:
                for record in await reader.batch(500, wait=0.2):
                    if record.sequence > info.last:
                        return
                    yield _letter(record)
        finally:
            await reader.close()

    async def get(self, number: int) -> DeadLetter:
        record = await self._transport.fetch(self._layout.dead_stream, number)
        if record is None:
            raise TuttiError(f"there is no dead letter {number}", hint="`tutti dead ls` lists them")
        return _letter(record)

    async def drop(self, number: int) -> None:
        await self.get(number)
        await self._transport.remove(self._layout.dead_stream, number)

    async def replay(self, number: int) -> DeadLetter:
        """Hand the event to its subscription again, and to no other. The letter goes once the replay is stored; if the
        handler fails again, a new letter is written."""
        letter = await self.get(number)
        if not letter.whole:
            what = "was too large to keep its event" if letter.sequence else f"holds no event: {letter.reason}"
            where = f"it is {letter.stream}/{letter.sequence}" if letter.sequence else f"`tutti dead drop {number}`"
            raise TuttiError(f"dead letter {number} {what}", hint=where)
        identity = {MESSAGE_ID_HEADER: f"replay/{number}/{letter.buried_at}"}
        if letter.subscription == RECEIVED:  # back to its queue
            append = self._transport.append(letter.subject, letter.headers | identity, letter.payload, timeout=10.0)
        else:
            queue = self._layout.queue(REPLAY_PREFIX + letter.subscriber, "letter")
            append = self._transport.append(queue, identity, encoded(letter), timeout=10.0)
        await append
        await self._transport.remove(self._layout.dead_stream, number)
        return letter


def encoded(letter: DeadLetter) -> bytes:
    return msgspec.json.encode(msgspec.structs.replace(letter, payload=b"")) + b"\n" + letter.payload


def decoded(data: bytes) -> DeadLetter:
    about, _, payload = data.partition(b"\n")
    try:
        return msgspec.structs.replace(msgspec.json.decode(about, type=DeadLetter), payload=payload)
    except UNDECODABLE as error:
        raise InvalidEvent(f"this is no dead letter: {error}", hint="see who else writes there") from error


def _letter(record: Record) -> DeadLetter:
    """What somebody else wrote among the letters is shown too, so that it can be dropped, and hides no other."""
    try:
        return msgspec.structs.replace(decoded(record.data), number=record.sequence)
    except InvalidEvent as error:
        return DeadLetter(
            subscriber="?",
            subscription="?",
            reason=error.what,
            attempts=0,
            buried_at="",
            event_id="",
            event_type="",
            source="",
            subject=record.subject,
            stream="",
            sequence=0,
            headers=dict(record.headers),
            payload=record.data,
            number=record.sequence,
            whole=False,
        )


def plain(text: str) -> str:
    """What an exception says may hold what neither JSON nor a log can: half a surrogate pair."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _fitting(letter: DeadLetter) -> bytes:
    """The record of a letter; with as much of the traceback as there is room for, its end first."""
    room = WIRE_MAX_BYTES - _ENVELOPE_BYTES
    for most in (TRACEBACK_MAX_CHARACTERS, 1_000, 0):
        body = encoded(msgspec.structs.replace(letter, traceback=_tail(letter.traceback, most)))
        if len(body) <= room:
            return body
    return encoded(msgspec.structs.replace(letter, payload=b"", headers={}, traceback="", whole=False))


def _tail(text: str, most: int) -> str:
    return text if len(text) <= most else "…" + text[len(text) - most :]
