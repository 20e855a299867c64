"""What a call of `publish` may say of its event, and what it gets back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from tutti.errors import DeclarationError, InvalidEvent
from tutti.limits import LIFETIME_MAX_SECONDS, SUBJECTS_KEPT_COUNT
from tutti.model import attributes
from tutti.model.event import PRIORITY_MOST, EventType, Grade
from tutti.model.subjects import NO_TRANSACTION, Layout, partition_of


class Published(msgspec.Struct, frozen=True, gc=False):
    """The acknowledgement of one event: its place in a stream of events, or in a queue. Best-effort events have no
    place."""

    id: str
    stream: str = ""  # of events, as its type names it; empty for what was sent to a queue
    sequence: int = 0
    duplicate: bool = False  # this publisher's event of this id was stored before; nothing was stored now
    queue: str = ""


class Options(msgspec.Struct, frozen=True):
    """What one call of `publish` may say about its event, instead of the type's own settings."""

    id: str | None = None
    grade: Grade | None = None
    lifetime: float | None = None  # seconds
    priority: int | None = None
    time: datetime | None = None  # when it happened; the moment of publishing if not said
    subject: str | None = None  # CloudEvents subject: what the event is about
    traceparent: str = ""
    attributes: Mapping[str, str] | None = None  # further CloudEvents extension attributes
    reply_to: str = ""
    timeout: float | None = None  # seconds
    correlation: str = ""  # the id of the request that this answers

    @property
    def says_nothing(self) -> bool:
        """Nothing that an event's headers would show."""
        return self is PLAIN or (
            self.id is None
            and self.lifetime is None
            and self.priority is None
            and self.time is None
            and self.subject is None
            and not (self.traceparent or self.attributes or self.reply_to or self.correlation)
        )

    def check(self) -> None:
        """What a caller may get wrong beside the event itself; nothing was sent then."""
        if self.id is not None and not _is_word(self.id):
            raise InvalidEvent(f"the event's id is {self.id!r}", hint="give a text, or leave it to Tutti")
        if self.subject is not None and not _is_word(self.subject):
            raise InvalidEvent(f"the event's subject is {self.subject!r}", hint="give a text, or leave it out")
        if self.priority is not None and self.priority not in range(PRIORITY_MOST + 1):
            raise DeclarationError(
                f"priority is {self.priority!r}", hint=f"give a whole number from 0 to {PRIORITY_MOST}"
            )
        if self.lifetime is not None and not 0 < self.lifetime <= LIFETIME_MAX_SECONDS:
            raise DeclarationError(
                f"lifetime is {self.lifetime!r}", hint=f"give seconds above 0, at most {LIFETIME_MAX_SECONDS:,.0f}"
            )
        if self.attributes is not None:
            attributes.check_own(self.attributes)


PLAIN: Final = Options()


class Subjects:
    """The subjects of one publisher's events without a key: what a subject is made of is mostly the same again."""

    def __init__(self, layout: Layout, publisher: str) -> None:
        self.partition = str(partition_of(publisher))
        self._layout = layout
        self._known: dict[EventType, dict[object, str]] = {}
        self._count = 0

    def of(self, kind: EventType, events: Sequence[object]) -> list[str] | None:
        """The subject of each; None if one of them has none."""
        try:
            if kind.read_routing is None:
                return [self._subject(kind, events[0])] * len(events)
            values = list(map(kind.read_routing, events))
            known = self._known.setdefault(kind, {})
            found = [known.get(value) for value in values]
            told = zip(found, events, values, strict=True)
            return [subject or self._learn(kind, event, value) for subject, event, value in told]
        except (InvalidEvent, AttributeError, TypeError):  # or no value of the kind that it should be
            return None

    def _subject(self, kind: EventType, event: object) -> str:
        tokens = kind.routing_tokens(event)
        return self._layout.event(kind.stream, kind.token, NO_TRANSACTION, self.partition, tokens)

    def _learn(self, kind: EventType, event: object, value: object) -> str:
        """Only texts are looked up: 1, 1.0 and True are equal, but have subjects of their own."""
        subject = self._subject(kind, event)
        if all(type(part) is str for part in (value if isinstance(value, tuple) else (value,))):
            if self._count >= SUBJECTS_KEPT_COUNT:
                self._known.clear()
                self._count = 0
            self._known.setdefault(kind, {})[value] = subject
            self._count += 1
        return subject


class Stamp:
    """RFC 3339 texts; the part down to the second is made once a second."""

    __slots__ = ("_prefix", "_second")

    def __init__(self) -> None:
        self._second: int | None = None
        self._prefix = ""

    def text(self, seconds: float) -> str:
        whole = math.floor(seconds)
        if whole != self._second:
            self._second = whole
            self._prefix = datetime.fromtimestamp(whole, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{self._prefix}.{str(int((seconds - whole) * 1_000_000)).zfill(6)}Z"


def moment_text(time: datetime) -> str:
    if getattr(time, "tzinfo", None) is None:
        raise DeclarationError(f"the event's time {time!r} is no moment with a time zone", hint="use datetime.now(UTC)")
    return time.isoformat().replace("+00:00", "Z")


def _is_word(value: object) -> bool:
    return isinstance(value, str) and bool(value)
