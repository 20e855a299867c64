"""`tutti publish`: events from the shell, checked and stored as the publisher's own class would."""

from __future__ import annotations

import asyncio
import difflib
import sys
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, get_args

import msgspec
from rich.console import RenderableType
from rich.text import Text

from tutti.cli.advertised import event_class
from tutti.cli.options import Session
from tutti.errors import DeclarationError, InvalidEvent
from tutti.model.event import EventType, Grade, event_type
from tutti.runtime.bus import Bus
from tutti.runtime.publication import Published

IN_FLIGHT_MAX_COUNT: Final = 500  # lines sent ahead of their acknowledgement
_HOW: Final = "give a JSON object, FIELD=VALUE pairs, or - for one JSON object a line from the standard input"


class PublishSettings(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    name: str = ""
    id: str | None = None
    lifetime: float | None = None
    priority: int | None = None
    grade: str | None = None

    def __post_init__(self) -> None:
        if self.grade is not None and self.grade not in get_args(Grade):
            raise DeclarationError(
                f"--grade {self.grade} is unknown", hint=f"use {' or '.join(map(str, get_args(Grade)))}"
            )


class Acknowledged(msgspec.Struct, frozen=True):
    """One published event. Best-effort events have no stream and no sequence."""

    type: str
    id: str
    stream: str
    sequence: int
    duplicate: bool

    def __rich__(self) -> RenderableType:
        place = f"{self.stream} {self.sequence}" if self.stream else "not stored: best effort"
        again = " (stored before; nothing was stored now)" if self.duplicate else ""
        return Text.assemble((self.type, "bold"), f" {self.id} → {place}{again}")


async def publish_events(session: Session, settings: PublishSettings, values: list[str]) -> int | None:
    if values == ["-"] and settings.id is not None:
        raise DeclarationError("--id names one event, but many are read from stdin", hint="leave it out")
    # An id is its publisher's: without a name, each call would be another publisher, and a repetition another event.
    name = settings.name or ("tutti-publish" if settings.id is not None else "")
    async with session.bus(name=name, create=False) as bus:
        kind = await known_type(bus, settings.type)
        publication = _Publication(session, bus, kind, settings)
        if values == ["-"]:
            await publication.publish_lines(sys.stdin.buffer.readline)
        else:
            await publication.publish_one(parse_values(kind, values))
    return None


async def known_type(bus: Bus, name: str) -> EventType:
    """The advertised type, with a class made from its advertisement."""
    return event_type(event_class(await bus.describe(name)))


class _Publication:
    def __init__(self, session: Session, bus: Bus, kind: EventType, settings: PublishSettings) -> None:
        self._session = session
        self._bus = bus
        self._kind = kind
        self._settings = settings

    async def publish_one(self, event: object) -> None:
        self._tell(await self._publish(event))

    async def publish_lines(self, read_line: Callable[[], bytes]) -> None:
        """In order, several in flight. The first line that is wrong ends it, when all before it are settled."""
        await self._bus.context.catalogue.require(self._kind)  # else each of the first would ask, and could overtake
        flight: deque[asyncio.Task[Published]] = deque()
        number = 0
        try:
            while line := await asyncio.to_thread(read_line):
                number += 1
                if not line.strip():
                    continue
                event = _line(self._kind, line, number)
                flight.append(asyncio.ensure_future(self._publish(event)))
                await asyncio.sleep(0)  # sent before the next line is read: that keeps their order
                while flight and (flight[0].done() or len(flight) >= IN_FLIGHT_MAX_COUNT):
                    self._tell(await flight.popleft())
        finally:
            while flight:
                self._tell(await flight.popleft())

    async def _publish(self, event: object) -> Published:
        settings = self._settings
        grade: Any = settings.grade
        return await self._bus.publish(
            event, id=settings.id, grade=grade, lifetime=settings.lifetime, priority=settings.priority
        )

    def _tell(self, published: Published) -> None:
        self._session.output.show(
            Acknowledged(
                self._kind.name, published.id, published.stream, published.sequence, duplicate=published.duplicate
            )
        )


def _line(kind: EventType, line: bytes, number: int) -> object:
    try:
        return from_json(kind, line)
    except InvalidEvent as error:
        raise InvalidEvent(
            f"line {number}: {error.what}", hint=f"the lines before it were published. {error.hint}"
        ) from error


def parse_values(kind: EventType, values: list[str]) -> object:
    """One event, from a JSON object or from FIELD=VALUE pairs."""
    if len(values) == 1 and values[0].lstrip().startswith("{"):
        return from_json(kind, values[0].encode("utf-8", "surrogateescape"))
    return from_pairs(kind, values)


def from_json(kind: EventType, data: bytes) -> object:
    try:
        given = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidEvent(f"this is not JSON: {error}", hint=_HOW) from error
    if not isinstance(given, dict):
        raise InvalidEvent(f"{kind.name}: the data are no JSON object", hint=_HOW)
    _refuse_unknown(kind, given)
    return kind.decode(data)


def from_pairs(kind: EventType, pairs: list[str]) -> object:
    """`field=text`, taken as whatever the field is, or `field:=json`."""
    given = dict(_pair(pair) for pair in pairs)
    _refuse_unknown(kind, given)
    try:
        return msgspec.convert(given, kind.python, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidEvent(f"{kind.name}: {error}", hint=f"see `tutti types show {kind.name}`") from error


def _pair(pair: str) -> tuple[str, object]:
    name, equals, text = pair.partition("=")
    if not equals or not name.rstrip(":"):
        raise InvalidEvent(f"{pair!r} is no FIELD=VALUE", hint=_HOW)
    if not name.endswith(":"):
        return name, text
    try:
        return name[:-1], msgspec.json.decode(text.encode("utf-8", "surrogateescape"))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidEvent(f"{name[:-1]}: {text!r} is not JSON: {error}", hint="field:=JSON, or field=text") from error


def _refuse_unknown(kind: EventType, given: dict[str, object]) -> None:
    """Subscribers ignore fields that they do not know; somebody at a keyboard has probably mistyped one."""
    known = (*kind.field_names, *_tag(kind))
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, kind.field_names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"its fields are {', '.join(kind.field_names)}"
            raise InvalidEvent(f"{kind.name} has no field {name!r}", hint=hint)


def _tag(kind: EventType) -> Iterator[str]:
    config = getattr(kind.python, "__struct_config__", None)
    if config is not None and config.tag_field is not None:
        yield config.tag_field
