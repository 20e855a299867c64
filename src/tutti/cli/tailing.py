"""`tutti tail`: events as they come.

It reads the log beside everybody else: no subscription, no position, no dead letters. An event that does not fit its
type is shown with the reason rather than left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import select
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from rich.console import RenderableType
from rich.text import Text

from tutti.bus.port import FromEarliest, FromLatest, FromSequence, FromTime, Record, Start
from tutti.cli.advertised import event_class
from tutti.cli.options import Session
from tutti.errors import BusError, DeclarationError, Gone, InvalidEvent
from tutti.filters import Filter
from tutti.flow.matcher import Matcher, Seen
from tutti.model.advertisement import Advertisement
from tutti.model.cloudevents import from_message
from tutti.model.envelope import Envelope
from tutti.model.event import CloudEvent, EventType, event_type
from tutti.model.subjects import token
from tutti.runtime.bus import Bus

STDOUT: Final = 1
READ_MAX_RECORDS: Final = 200
LOOK_SECONDS: Final = 1.0  # how often it looks for streams and types that are new, and whether anybody still reads
_AGE: Final = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d)").fullmatch
_SEQUENCE_MAX_DIGITS: Final = 18  # any such number fits the servers' 64 bits; no log will ever be so long
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_COLOURS: Final = ("cyan", "magenta", "green", "yellow", "blue", "bright_red")


class TailSettings(msgspec.Struct, frozen=True, kw_only=True):
    type: str = ""
    where: str = ""
    start: str = "latest"
    count: int | None = None


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One event, as `tail` shows it. `invalid` says why it does not fit its type, or is no event at all."""

    id: str
    type: str
    publisher: str
    time: str
    stream: str
    sequence: int  # 0 for a best-effort event
    subject: str
    attributes: dict[str, str]
    data: Any
    invalid: str = ""

    def __rich__(self) -> RenderableType:
        moment = self.time[11:23] if len(self.time) > 11 else self.time
        colour = _COLOURS[sum(map(ord, self.type)) % len(_COLOURS)]
        line = Text.assemble(
            (moment, "dim"), " ", (self.type or "?", f"bold {colour}"), " ", (_short(self.publisher), "dim"), " "
        )
        line.append_text(_pretty(self.data))
        line.append(f"  {self.id}" + (f" #{self.sequence}" if self.sequence else " live"), "dim")
        if self.invalid:
            line.append(f"\n  invalid: {self.invalid}", "red")
        return line


def _short(source: str) -> str:
    """The publisher's name in `/name/run`."""
    return source.split("/")[1] if source.startswith("/") and source.count("/") == 2 else source


def _pretty(data: Any) -> Any:
    if not isinstance(data, dict):
        return Text(msgspec.json.encode(data).decode())
    line = Text()
    for name, value in data.items():
        shown = value if isinstance(value, str) and value else msgspec.json.encode(value).decode()
        line.append(f"{name}=", "dim").append(f"{shown} ")
    return line


def parse_start(text: str, now: datetime) -> Start:
    """`latest`, `earliest`, a sequence, an age (`15m`), or a moment in ISO form; one without a zone is local time."""
    match text.strip().lower():
        case "latest":
            return FromLatest()
        case "earliest":
            return FromEarliest()
        case digits if digits.isdecimal() and len(digits) <= _SEQUENCE_MAX_DIGITS and int(digits) > 0:
            return FromSequence(int(digits))
        case _:
            pass
    try:
        if found := _AGE(text.strip().lower()):
            return FromTime(max(0.0, (now - timedelta(**{_UNITS[found[2]]: float(found[1])})).timestamp()))
        return FromTime(datetime.fromisoformat(text.strip()).timestamp())
    except (ValueError, OverflowError):
        raise DeclarationError(
            f"--from {text} is no place in the log",
            hint="use latest, earliest, a sequence, an age such as 90s, 15m, 2h or 1d, or 2026-01-31T12:00:00Z",
        ) from None


def nobody_reads(descriptor: int) -> bool:
    """Whether it is a pipe whose other end was closed. Writing would tell, but there may be nothing to write."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))


class Reading:
    """From records to what is shown: decode by the advertised type, filter, describe."""

    def __init__(self, where: str) -> None:
        self._matcher = Matcher(Filter.parse(where) if where else None, None)
        self._types: dict[str, EventType] = {}

    def know(self, advertisements: Sequence[Advertisement]) -> None:
        for known in advertisements:
            if known.type in self._types and self._types[known.type].version == known.version:
                continue
            with contextlib.suppress(DeclarationError):  # then its events are read as plain JSON
                self._types[known.type] = event_type(event_class(known))

    def event(self, stream: str, record: Record) -> Event | None:
        """None: the filter turns it away. What cannot be read passes no filter but none at all."""
        try:
            envelope = from_message(record.headers, record.data)
        except InvalidEvent as error:
            return self._broken(stream, record, error.what) if self._matcher.open else None
        value, invalid = self._decoded(envelope)
        if not self._matcher.open:
            fields = value.data if isinstance(value, CloudEvent) else value
            if self._matcher.match(Seen(fields, envelope.attributes())) is None:
                return None
        return Event(
            id=envelope.id,
            type=envelope.type,
            publisher=envelope.source,
            time=envelope.time or _moment(record.stored_at),
            stream=stream,
            sequence=record.sequence,
            subject=record.subject,
            attributes=dict(envelope.extensions),
            data=_plain(envelope),
            invalid=invalid,
        )

    def _decoded(self, envelope: Envelope) -> tuple[Any, str]:
        kind = self._types.get(envelope.type)
        try:
            return (kind or event_type(CloudEvent)).decode_envelope(envelope), ""
        except InvalidEvent as error:
            return CloudEvent(envelope.attributes(), _plain(envelope)), error.what

    def _broken(self, stream: str, record: Record, reason: str) -> Event:
        return Event(
            id="",
            type="",
            publisher="",
            time=_moment(record.stored_at),
            stream=stream,
            sequence=record.sequence,
            subject=record.subject,
            attributes={},
            data=record.data.decode("utf-8", "backslashreplace"),
            invalid=reason,
        )


def _plain(envelope: Envelope) -> Any:
    if not envelope.data:
        return None
    try:
        return msgspec.json.decode(envelope.data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return envelope.data.decode("utf-8", "backslashreplace")


def _moment(seconds: float) -> str:
    moment = datetime.fromtimestamp(seconds, UTC) if seconds else datetime.now(UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Tail:
    """Reads every stream of events, or the one of a type, and the wire. New streams are found as they appear."""

    def __init__(self, bus: Bus, type_name: str, reading: Reading, start: Start) -> None:
        self._bus = bus
        self._type = type_name
        self._reading = reading
        self._start = start
        self._arrived: asyncio.Queue[Event] = asyncio.Queue(READ_MAX_RECORDS)
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def events(self) -> AsyncGenerator[Event, None]:
        try:
            await self._look(self._start)
            self._spawn("live", self._hear())
            self._spawn("look", self._keep_looking())
            while True:
                yield await self._next()
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _next(self) -> Event:
        """The next event; or the failure of whatever reads them."""
        arrived = asyncio.ensure_future(self._arrived.get())
        try:
            await asyncio.wait({arrived, *self._tasks.values()}, return_when=asyncio.FIRST_COMPLETED)
            for task in self._tasks.values():
                if task.done():
                    task.result()
            return await arrived
        finally:
            arrived.cancel()

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if nobody_reads(STDOUT):
                raise BrokenPipeError
            with contextlib.suppress(BusError):  # the server is away: look again
                await self._look(FromEarliest())

    async def _look(self, start: Start) -> None:
        """Read the streams that are not read yet. One that is new has nothing that could have been missed."""
        types = await self._bus.types()
        if self._type:
            types = [await self._bus.describe(self._type)]
        self._reading.know(types)
        layout = self._bus.context.layout
        prefix = layout.event_stream("")
        there = await self._bus.context.transport.stream_names()
        wanted = {layout.event_stream(known.stream) for known in types} if self._type else set(there)
        for stream in sorted(wanted & set(there)):
            if stream.startswith(prefix) and stream not in self._tasks:
                reader = await self._bus.context.transport.reader(stream, self._subjects(types), start)
                self._spawn(stream, self._read(stream.removeprefix(prefix), reader))

    def _subjects(self, types: Sequence[Advertisement]) -> tuple[str, ...]:
        layout = self._bus.context.layout
        if not self._type:
            return (f"{layout.namespace}.event.>",)  # what stands in transactions may be private, or come to nothing
        return tuple(f"{layout.namespace}.event.{known.stream}.{token(known.type)}.>" for known in types)

    async def _read(self, stream: str, reader: Any) -> None:
        try:
            while True:
                try:
                    records = await reader.batch(READ_MAX_RECORDS)
                except Gone as error:
                    raise Gone(error.what, hint="retention was faster than we: use --from earliest") from error
                for record in records:
                    await self._offer(stream, record)
        finally:
            await reader.close()

    async def _hear(self) -> None:
        layout = self._bus.context.layout
        listener = await self._bus.context.transport.listen(f"{layout.namespace}.live.>")
        try:
            async for record in listener:
                await self._offer("", record)
        finally:
            await listener.close()

    async def _offer(self, stream: str, record: Record) -> None:
        event = self._reading.event(stream, record)
        if event is not None and (not self._type or event.type == self._type):
            await self._arrived.put(event)

    def _spawn(self, name: str, work: Any) -> None:
        self._tasks[name] = asyncio.get_running_loop().create_task(work)


async def tail_events(session: Session, settings: TailSettings) -> int | None:
    reading = Reading(settings.where)
    start = parse_start(settings.start, datetime.now(UTC))
    async with session.bus(create=False) as bus:
        if settings.type:
            await bus.describe(settings.type)
        session.output.note(f"events of {bus.context.transport.status().server or 'this bus'}; Ctrl-C ends")
        shown = 0
        async with contextlib.aclosing(Tail(bus, settings.type, reading, start).events()) as events:
            async for event in events:
                session.output.show(event)
                shown += 1
                if shown == settings.count:
                    break
    return None
