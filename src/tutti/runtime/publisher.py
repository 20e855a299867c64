"""From an event in Python to an acknowledged record: number it, put it in its envelope, append it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterable, Iterable
from contextvars import ContextVar
from itertools import chain, islice
from typing import Final

import msgspec

from tutti.bus.port import Stored, Transport
from tutti.errors import BusError, DeclarationError, InvalidEvent, OutcomeUnknown, Refused
from tutti.limits import (
    DUPLICATE_WINDOW_SECONDS,
    HEADERS_MAX_BYTES,
    LIFETIME_MAX_SECONDS,
    PUBLISH_SLICE_EVENTS,
    PUBLISH_WINDOW_EVENTS,
    PUBLISHER_DOUBTS_MAX_COUNT,
    PUBLISHER_SUBJECTS_MAX_COUNT,
    TIME_KEPT_SECONDS,
)
from tutti.model import attributes
from tutti.model.cloudevents import common_lines, many_numbered_headers, numbered_headers, to_headers
from tutti.model.envelope import Envelope
from tutti.model.event import EventType, Grade, event_type
from tutti.model.subjects import NO_TRANSACTION, Layout, checked_name, is_inbox, partition_of
from tutti.runtime.catalogue import Catalogue
from tutti.runtime.clock import Clock
from tutti.runtime.metrics import Metrics
from tutti.runtime.numbering import Numbering
from tutti.runtime.publication import PLAIN, Options, Published, Stamp, Subjects, moment_text
from tutti.runtime.window import Row, Sent, Window

MESSAGE_ID_HEADER: Final = "Nats-Msg-Id"
_SEQUENCE_HEADER: Final = f"ce-{attributes.SEQUENCE}"
_ADDED_BYTES: Final = 256  # of headers behind the check: the number, and what the message id has beside the event's id
REPLAY_PREFIX: Final = "replay-"  # the queue of a subscriber's replayed dead letters
FAILURE_HEADER: Final = "Tutti-Failure"  # instead of an answer: why there is none

NO_TRACE: Final = ("", "")
trace: ContextVar[tuple[str, str]] = ContextVar("tutti_trace", default=NO_TRACE)
"""traceparent and tracestate of the event being handled; what its handler publishes carries them on."""


class Publisher:
    """Publishes for one bus, under one name. Order is kept per publisher: of two events published one after the other,
    no subscriber handles the second first.

    An event is known by publisher and id: the same id under the same name is the same event, also in a later run. Two
    publishers may use the same ids."""

    def __init__(
        self,
        transport: Transport,
        layout: Layout,
        catalogue: Catalogue,
        *,
        clock: Clock,
        metrics: Metrics,
        name: str,
        run: str,
    ) -> None:
        self._transport = transport
        self._layout = layout
        self._catalogue = catalogue
        self._clock = clock
        self._metrics = metrics
        self.name = checked_name(name, "publisher") if name else run
        self._run = run
        self._roll = 0
        self._count = 0
        self._numbering = Numbering()
        self._in_doubt: dict[str, tuple[str, int]] = {}  # event id: subject and number of what may be stored
        self._turns: dict[EventType, _Turn] = {}
        self.source = f"/{self.name}/{run}"
        self._subjects = Subjects(layout, self.name)
        self._common: dict[EventType, str] = {}  # header lines that are the same for all events of a type
        self._stamp = Stamp()
        self._time = ""  # of plain events
        self._time_until = float("-inf")
        self._partition = self._subjects.partition
        grades: tuple[Grade, Grade] = ("at_least_once", "best_effort")
        self._published = {grade: metrics.counter("tutti_published_total", grade=grade) for grade in grades}
        self._failures = metrics.counter("tutti_publish_failures_total")
        self._seconds = metrics.histogram("tutti_publish_seconds")

    async def publish(self, event: object, options: Options, default_timeout: float) -> Published:
        kind = event_type(event)
        if kind in self._turns or not self._catalogue.may_publish(kind):
            await self._turn(kind)
        if (options.grade or kind.grade) != "at_least_once":
            return self._emit(kind, event, options)
        timeout = options.timeout if options.timeout is not None else default_timeout
        return await self.settled(self._send_off(kind, event, options, timeout))

    async def publish_many(
        self, events: Iterable[object] | AsyncIterable[object], options: Options, default_timeout: float
    ) -> list[Published]:
        """Publish in order, pipelined; the results are in the same order. If one fails, those that were already sent
        are waited for, and then its error is raised, with a note of how many were stored. If it is cancelled, those
        that were sent are left to themselves."""
        timeout = options.timeout if options.timeout is not None else default_timeout
        if options.says_nothing and options.grade is None:
            options = PLAIN
        window = Window(self)
        try:
            async for part in _slices(events):
                if options is not PLAIN or not await self._send_row(part, timeout, window):
                    await self._send_singly(part, options, timeout, window)
                await window.settle(PUBLISH_WINDOW_EVENTS)
            await window.settle(0)
        except Exception as error:
            error.add_note(f"{await window.stored_in_the_end()} other events of this call were stored")
            raise
        except BaseException:
            window.leave()
            raise
        return window.results

    async def _send_singly(self, part: Iterable[object], options: Options, timeout: float, window: Window) -> None:
        for event in part:
            kind = event_type(event)
            if kind in self._turns or not self._catalogue.may_publish(kind):
                await self._turn(kind)
            if (options.grade or kind.grade) == "at_least_once":
                window.add(self._send_off(kind, event, options, timeout))
            else:
                window.add(self._emit(kind, event, options))
            if len(window) >= PUBLISH_WINDOW_EVENTS:
                await window.settle(PUBLISH_WINDOW_EVENTS - 1)

    async def _send_row(self, part: Iterable[object], timeout: float, window: Window) -> bool:
        """All of them at once, if they are of one type and need nothing but a number. False: nothing was sent."""
        if not isinstance(part, list) or len(set(map(type, part))) != 1:
            return False
        kind = event_type(part[0])
        if not (kind.is_plain and kind.read_key is None and kind.grade == "at_least_once" and trace.get() == NO_TRACE):
            return False
        if kind in self._turns or not self._catalogue.may_publish(kind):
            await self._turn(kind)
        encoded = kind.encode_all(part)
        subjects = self._subjects.of(kind, part)
        if encoded is None or subjects is None or len(self._numbering) + len(part) > PUBLISHER_SUBJECTS_MAX_COUNT:
            return False
        started = self._clock.monotonic()
        numbers = self._numbering.take_all(subjects)
        ids = [f"{self._run}-{count}" for count in range(self._count + 1, self._count + len(part) + 1)]
        self._count += len(part)
        headers = many_numbered_headers(self._lines(kind), self.name, ids, self._moment(started), numbers)
        append = self._transport.append
        stored = [append(*told, timeout=timeout) for told in zip(subjects, headers, encoded, strict=True)]
        window.add(Row(kind, ids, subjects, numbers, self._numbering, started, stored))
        return True

    async def _turn(self, kind: EventType) -> None:
        """The first events of a type wait until its advertisement was looked up; they must not overtake each other."""
        turn = self._turns.setdefault(kind, _Turn(asyncio.Lock()))
        turn.waiting += 1
        try:
            async with turn.lock:
                if not self._catalogue.may_publish(kind):
                    await self._catalogue.require(kind)
        finally:
            turn.waiting -= 1
            if not turn.waiting:
                self._turns.pop(kind, None)

    def _send_off(self, kind: EventType, event: object, options: Options, timeout: float) -> Sent:
        """Everything that can fail comes before the number is taken: a number taken is a number sent."""
        if len(self._numbering) >= PUBLISHER_SUBJECTS_MAX_COUNT:
            self._start_numbering_anew()
        key = kind.key_of(event)
        partition = self._partition if key is None else str(partition_of(key))
        subject = self._layout.event(kind.stream, kind.token, NO_TRANSACTION, partition, kind.routing_tokens(event))
        data = kind.encode(event)
        if key is None and options.says_nothing and kind.is_plain and trace.get() == NO_TRACE:
            return self._send_off_quickly(kind, subject, data, timeout)
        headers = self._headers(kind, options, key)
        identity = options.id if options.id is not None else headers["ce-id"]
        # An event in doubt keeps its number when it is published again: whichever copy is stored, there is no hole.
        doubt = self._in_doubt.get(identity) if self._in_doubt else None
        again = doubt is not None and doubt[0] == subject
        number = doubt[1] if doubt is not None and again else self._numbering.take(subject)
        headers[_SEQUENCE_HEADER] = attributes.sequence_text(number)
        headers[MESSAGE_ID_HEADER] = f"{self.name}/{headers['ce-id']}"
        started = self._clock.monotonic()
        stored = self._transport.append(subject, headers, data, timeout=timeout)
        return Sent(kind, identity, subject, number, self._numbering, started, stored, again)

    def _send_off_quickly(self, kind: EventType, subject: str, data: bytes, timeout: float) -> Sent:
        """Most events of a type differ only in id, time and number: the rest of their headers is made once."""
        self._count += 1
        identity = f"{self._run}-{self._count}"
        started = self._clock.monotonic()
        number = self._numbering.take(subject)
        sequence = attributes.sequence_text(number)
        headers = numbered_headers(self._lines(kind), self.name, identity, self._moment(started), sequence)
        stored = self._transport.append(subject, headers, data, timeout=timeout)
        return Sent(kind, identity, subject, number, self._numbering, started, stored, again=False)

    def _lines(self, kind: EventType) -> str:
        common = self._common.get(kind)
        if common is None:
            common = self._common[kind] = common_lines(self.source, kind.name)
        return common

    def now_text(self) -> str:
        return self._moment(self._clock.monotonic())

    def _moment(self, now: float) -> str:
        """Hundreds of events a millisecond do not each need a time of their own."""
        if now > self._time_until:
            self._time_until = now + TIME_KEPT_SECONDS
            self._time = self._stamp.text(self._clock.wall())
        return self._time

    async def settled(self, sent: Sent) -> Published:
        try:
            stored = await (sent.stored if sent.stored.done() else asyncio.shield(sent.stored))
        except Refused as error:
            self._not_stored(sent, error)
            raise _refused(sent.kind, sent.id, error) from error
        except OutcomeUnknown as error:
            self._not_stored(sent, error)
            raise _in_doubt(sent.kind, sent.id, error) from error
        except asyncio.CancelledError:
            self.leave(sent)
            raise
        if sent.again:
            self._in_doubt.pop(sent.id, None)
        elif stored.duplicate and await self._is_elsewhere(sent, stored):
            sent.numbering.give_back(sent.subject, sent.number)
        return self._confirmed(sent, stored, self._clock.monotonic())

    def leave(self, sent: Sent) -> None:
        """Nobody waits for it any more. It is on its way all the same, and what becomes of its number is not lost."""
        sent.stored.add_done_callback(lambda _: self._settle_late(sent))

    def _settle_late(self, sent: Sent) -> None:
        """A duplicate's number counts as used, as whenever nobody can tell."""
        if sent.stored.cancelled():
            return
        error = sent.stored.exception()
        if error is not None:
            self._not_stored(sent, error)
            return
        if sent.again:
            self._in_doubt.pop(sent.id, None)
        self._confirmed(sent, sent.stored.result(), self._clock.monotonic())

    def _not_stored(self, sent: Sent, error: BaseException) -> None:
        """Or, at least, not known to be."""
        self._failures.value += 1
        if not isinstance(error, Refused):
            self._doubt(sent)
        elif not sent.again:  # an earlier copy may be there
            sent.numbering.give_back(sent.subject, sent.number)

    def _confirmed(self, sent: Sent, stored: Stored, now: float) -> Published:
        self._published["at_least_once"].value += 1
        self._seconds.observe(now - sent.started)
        return Published(sent.id, sent.kind.stream, stored.sequence, stored.duplicate)

    def confirmed_row(self, row: Row) -> None:
        self._published["at_least_once"].value += len(row)
        self._seconds.observe(self._clock.monotonic() - row.started, len(row))

    def _doubt(self, sent: Sent) -> None:
        if sent.numbering is not self._numbering:
            return  # its number was that of an earlier run: another copy is an event of this one
        if len(self._in_doubt) >= PUBLISHER_DOUBTS_MAX_COUNT:
            del self._in_doubt[next(iter(self._in_doubt))]
        self._in_doubt[sent.id] = (sent.subject, sent.number)

    async def _is_elsewhere(self, sent: Sent, stored: Stored) -> bool:
        """Whether the log has the event under another number: it was published before. If it has it under this one, the
        transport itself sent it twice. When nobody can tell, the number counts as used: a hole is better seen than
        covered."""
        try:
            record = await self._transport.fetch(stored.stream, stored.sequence) if stored.sequence else None
        except BusError:
            return False
        number = attributes.sequence_text(sent.number)
        return record is not None and (record.subject, record.headers.get(_SEQUENCE_HEADER)) != (sent.subject, number)

    async def send(self, event: object, queue: str, options: Options, default_timeout: float) -> Published:
        """Append to a queue. Queues have no partitions and no numbers: each message goes to one taker. All of them
        share a stream, so the queue is part of what makes a message the same."""
        kind = event_type(event)
        subject = self._layout.queue(checked_queue(queue), kind.token)
        if kind in self._turns or not self._catalogue.may_publish(kind):
            await self._turn(kind)
        data = kind.encode(event)
        headers = self._headers(kind, options, None)
        headers[MESSAGE_ID_HEADER] = f"{queue}/{self.name}/{headers['ce-id']}"
        identity = options.id if options.id is not None else headers["ce-id"]
        timeout = options.timeout if options.timeout is not None else default_timeout
        try:
            stored = await self._transport.append(subject, headers, data, timeout=timeout)
        except Refused as error:
            self._failures.value += 1
            raise _refused(kind, identity, error) from error
        except OutcomeUnknown as error:
            self._failures.value += 1
            raise _in_doubt(kind, identity, error) from error
        return Published(identity, sequence=stored.sequence, duplicate=stored.duplicate, queue=queue)

    def reply(self, event: object, request: Envelope) -> None:
        """Answer a request, on the wire. The answer names the request."""
        to = request.extensions[attributes.REPLY_TO]
        if not is_inbox(to):
            raise DeclarationError(
                f"{request.type} {request.id} asks for its answer on {to!r}, which is no inbox",
                hint="whoever published it may not choose where this process writes",
            )
        kind = event_type(event)
        headers = self._headers(kind, Options(correlation=request.id), None)
        self._transport.emit(to, headers, kind.encode(event))

    def reply_failure(self, request: Envelope, reason: str) -> None:
        """Tell whoever asked that no answer will come."""
        to = request.extensions.get(attributes.REPLY_TO, "")
        if is_inbox(to):
            with contextlib.suppress(BusError):  # it is a courtesy: nothing may hang on it
                self._transport.emit(to, {FAILURE_HEADER: ascii(reason)[1:-1][:500]}, b"")

    def _emit(self, kind: EventType, event: object, options: Options) -> Published:
        """Best effort: now or never. No number: a hole would mean nothing here."""
        if (options.grade or kind.grade) != "best_effort":
            raise DeclarationError(f"grade={options.grade!r} is unknown", hint="use 'at_least_once' or 'best_effort'")
        key = kind.key_of(event)
        partition = self._partition if key is None else str(partition_of(key))
        subject = self._layout.live(kind.token, NO_TRANSACTION, partition, kind.routing_tokens(event))
        headers = self._headers(kind, options, key)
        self._transport.emit(subject, headers, kind.encode(event))
        self._published["best_effort"].value += 1
        return Published(options.id if options.id is not None else headers["ce-id"])

    def _headers(self, kind: EventType, options: Options, key: str | None) -> dict[str, str]:
        """The CloudEvents headers."""
        self._count += 1
        now = self._clock.wall()
        options.check()
        extensions = {} if key is None else {attributes.PARTITION_KEY: key}
        self._extend(extensions, kind, options, now)
        headers = to_headers(
            Envelope(
                id=options.id if options.id is not None else f"{self._run}-{self._count}",
                source=self.source,
                type=kind.name,
                time=self._stamp.text(now) if options.time is None else moment_text(options.time),
                subject=options.subject,
                extensions=extensions,
            )
        )
        size = sum(map(len, headers)) + sum(map(len, headers.values())) + len(headers["ce-id"])  # it is there twice
        if size > HEADERS_MAX_BYTES - _ADDED_BYTES:
            raise InvalidEvent(
                f"{kind.name}: id, key and attributes take {size:,} bytes of headers; the limit is "
                f"{HEADERS_MAX_BYTES:,}",
                hint="put long values into fields of the event",
            )
        return headers

    def _extend(self, extensions: dict[str, str], kind: EventType, options: Options, now: float) -> None:
        lifetime = options.lifetime if options.lifetime is not None else kind.lifetime
        if lifetime is not None:
            extensions[attributes.EXPIRY] = self._stamp.text(now + min(lifetime, LIFETIME_MAX_SECONDS))
        priority = options.priority if options.priority is not None else kind.priority
        if priority:
            extensions[attributes.PRIORITY] = str(priority)
        traceparent, tracestate = (options.traceparent, "") if options.traceparent else trace.get()
        if traceparent:
            extensions[attributes.TRACEPARENT] = traceparent
            if tracestate:
                extensions[attributes.TRACESTATE] = tracestate
        if options.reply_to:
            extensions[attributes.REPLY_TO] = options.reply_to
        if options.correlation:
            extensions[attributes.CORRELATION] = options.correlation
        if options.attributes:
            extensions.update(options.attributes)

    def _start_numbering_anew(self) -> None:
        """Too many subjects to remember: from here on we are another run of the same publisher."""
        self._roll += 1
        self._numbering = Numbering()
        self._in_doubt.clear()
        self._common.clear()
        self.source = f"/{self.name}/{self._run}-{self._roll}"


class _Turn(msgspec.Struct):
    """Who waits for an advertisement, in order: the lock is fair."""

    lock: asyncio.Lock
    waiting: int = 0


def _refused(kind: EventType, identity: str, error: Refused) -> Refused:
    return Refused(f"{kind.name} {identity} is not stored: {error.what}", hint=error.hint)


def _in_doubt(kind: EventType, identity: str, error: OutcomeUnknown) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"{kind.name} {identity} may be stored: {error.what}",
        hint=f"publish or send it again with id={identity!r}: within {DUPLICATE_WINDOW_SECONDS:.0f} seconds nothing is "
        "stored twice",
    )


def checked_queue(name: str) -> str:
    """A queue's name that a user may choose."""
    if name.startswith(REPLAY_PREFIX):
        raise DeclarationError(
            f"{name!r} cannot name a queue: {REPLAY_PREFIX}… are Tutti's own, for dead letters", hint="choose another"
        )
    return checked_name(name, "queue")


async def _slices(events: Iterable[object] | AsyncIterable[object]) -> AsyncIterable[Iterable[object]]:
    """The events as they come. Between two slices, what was sent leaves, and others get their turn. Only of what is
    complete already a slice is a list: an event must be encoded before an iterator goes on, which may change it."""
    if isinstance(events, AsyncIterable):
        async for event in events:
            yield (event,)
    elif isinstance(events, list | tuple):
        for start in range(0, len(events), PUBLISH_SLICE_EVENTS):
            yield list(events[start : start + PUBLISH_SLICE_EVENTS])
            await asyncio.sleep(0)
    else:
        iterator = iter(events)
        for first in iterator:
            yield chain((first,), islice(iterator, PUBLISH_SLICE_EVENTS - 1))
            await asyncio.sleep(0)
