"""Event types: what a class says about its events, and the fast way between values and bytes.

    class TradeDone(tutti.Event, version=2, lifetime=60):
        symbol: Annotated[str, tutti.routing, tutti.key]
        price: Decimal

A value that does not survive the way to the other side never leaves: `EventType.encode` reads back what it wrote and
compares. `docs/events.md` lists the kinds of fields.
"""

from __future__ import annotations

import builtins
import math
import operator
import re
from collections.abc import Callable
from typing import Any, Final, Literal, TypeVar, dataclass_transform, overload

import msgspec

from tutti.errors import DeclarationError, EventTooLarge, InvalidEvent
from tutti.limits import EVENT_MAX_BYTES, EVENT_MAX_DEPTH, TYPE_NAME_MAX_CHARACTERS
from tutti.model.declaration import Kind, Marker, RoutingAttribute, examine
from tutti.model.envelope import Envelope
from tutti.model.fidelity import depth_of, fault_in, first_change, shown, value_at
from tutti.model.subjects import checked_name, routing_text, token

Grade = Literal["at_least_once", "best_effort"]

routing: Final = Marker("routing")  # Annotated[str, tutti.routing]: a subject token, on which servers filter
key: Final = Marker("key")  # Annotated[str, tutti.key]: order is kept per value of this field, not per publisher

PRIORITY_MOST: Final = 9  # priorities are 0 … 9, as in most message systems
_OPTIONS: Final = "__tutti_options__"
_TYPE_NAME: Final = re.compile(r"[^\x00-\x20\x7f-\xa0\ud800-\udfff]+").fullmatch
_OWN_PREFIX: Final = "tutti."
_UNENCODABLE: Final = (msgspec.MsgspecError, TypeError, ValueError, ArithmeticError, RecursionError)

_T = TypeVar("_T")


class Options(msgspec.Struct, frozen=True):
    """What the declaration of a type says beside its fields."""

    type: str
    version: int = 1
    stream: str = "events"
    grade: Grade = "at_least_once"
    lifetime: float | None = None  # seconds
    priority: int = 0


def _options(name: str, given: dict[str, Any], inherited: Options | None) -> Options:
    """The options of one type, checked. What is not given comes from the type it derives from."""
    options = msgspec.structs.replace(inherited or Options(name), type=name, version=1)
    options = msgspec.structs.replace(
        options, **{option: value for option, value in given.items() if value is not None}
    )
    _check_name(options.type)
    checked_name(options.stream, "stream")
    _check_number(options, "version", options.version, least=1, most=2**31)
    _check_number(options, "priority", options.priority, least=0, most=PRIORITY_MOST)
    if options.grade not in ("at_least_once", "best_effort"):
        raise DeclarationError(
            f"{name}: grade={options.grade!r} is unknown", hint="use 'at_least_once' or 'best_effort'"
        )
    if options.lifetime is not None and not (options.lifetime > 0 and math.isfinite(options.lifetime)):
        raise DeclarationError(
            f"{name}: lifetime={options.lifetime!r} is no time", hint="give seconds above 0, or None for ever"
        )
    return options


def _check_name(name: str) -> None:
    if not _TYPE_NAME(name) or len(name) > TYPE_NAME_MAX_CHARACTERS:
        raise DeclarationError(
            f"{shown(name)} cannot name an event type",
            hint=f"use 1 to {TYPE_NAME_MAX_CHARACTERS} characters without spaces, as TradeDone or com.example.done",
        )
    if name.startswith(_OWN_PREFIX):
        raise DeclarationError(
            f"{name!r}: names that start with {_OWN_PREFIX!r} are Tutti's own", hint="choose another prefix"
        )


def _check_number(options: Options, option: str, value: int, *, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        raise DeclarationError(
            f"{options.type}: {option}={value!r} is out of range", hint=f"give a whole number from {least} to {most}"
        )


class EventMeta(msgspec.StructMeta):
    """Takes the options of an event type as class keywords, beside those of msgspec."""

    def __new__(  # noqa: PYI034 - Self cannot stand in a metaclass
        mcls: type[EventMeta],
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        type: str | None = None,  # noqa: A002 - the word for it in CloudEvents
        version: int = 1,
        stream: str | None = None,
        grade: Grade | None = None,
        lifetime: float | None = None,
        priority: int | None = None,
        **struct_options: Any,
    ) -> EventMeta:
        if struct_options.get("frozen") is False:
            raise DeclarationError(f"{name}: events are values and stay frozen", hint="leave frozen=False out")
        inherited = next((found for base in bases if (found := getattr(base, _OPTIONS, None)) is not None), None)
        given = {"version": version, "stream": stream, "grade": grade, "lifetime": lifetime, "priority": priority}
        namespace[_OPTIONS] = _options(name if type is None else type, given, inherited)
        return super().__new__(mcls, name, bases, namespace, **struct_options)


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class Event(msgspec.Struct, frozen=True, metaclass=EventMeta):
    """Derive from it to declare an event type. Class keywords, beside those of msgspec:

    `type` (default: the name of the class), `version` (1), `stream` ("events"), `grade` ("at_least_once"; or
    "best_effort"), `lifetime` in seconds (for ever), `priority` from 0 to 9 (0). A class derived from an event type
    inherits all but the first two.
    """


@overload
def event(cls: type[_T], /) -> type[_T]: ...
@overload
def event(
    *,
    type: str | None = None,
    version: int = 1,
    stream: str | None = None,
    grade: Grade | None = None,
    lifetime: float | None = None,
    priority: int | None = None,
) -> Callable[[type[_T]], type[_T]]: ...
def event(
    cls: type[_T] | None = None,
    /,
    *,
    type: str | None = None,  # noqa: A002 - the word for it in CloudEvents
    version: int = 1,
    stream: str | None = None,
    grade: Grade | None = None,
    lifetime: float | None = None,
    priority: int | None = None,
) -> type[_T] | Callable[[type[_T]], type[_T]]:
    """Declare a dataclass or a plain msgspec struct as an event type, with the options that `Event` takes."""
    given = {"version": version, "stream": stream, "grade": grade, "lifetime": lifetime, "priority": priority}
    declare = _Declare(type, given)
    return declare if cls is None else declare(cls)


class _Declare(msgspec.Struct, frozen=True):
    """The decorator that `event(...)` returns."""

    type: str | None
    given: dict[str, Any]

    def __call__(self, target: builtins.type[_T]) -> builtins.type[_T]:
        inherited = getattr(target, _OPTIONS, None)
        setattr(target, _OPTIONS, _options(target.__name__ if self.type is None else self.type, self.given, inherited))
        event_type(target)  # what cannot work is said where it is declared
        return target


class EventType(msgspec.Struct, frozen=True, eq=False):
    """One event type: what it is called, how its events are delivered, and the way between values and bytes.

    Made by `event_type`, once per class; two are the same type if they are the same object.
    """

    name: str
    version: int
    stream: str
    grade: Grade
    lifetime: float | None
    priority: int
    key: str | None
    routing: tuple[RoutingAttribute, ...]
    token: str
    python: type  # the class
    field_names: tuple[str, ...]
    decoder: msgspec.json.Decoder[Any]
    unbounded: bool
    decimals: bool
    read_routing: Callable[[Any], Any] | None
    read_key: Callable[[Any], Any] | None
    is_plain: bool  # its events need no header of their own for lifetime or priority

    def encode(self, value: object) -> bytes:
        """The event's data. `InvalidEvent` if the value does not fit the type or would arrive as another value."""
        try:
            data = _ENCODE(value)
            received = self.decoder.decode(data)
            faithful = received == value
            if self.decimals and faithful:  # 1 is equal to Decimal(1), but travels in another form
                faithful = _ENCODE(received) == data
        except _UNENCODABLE:
            faithful = False
        if not faithful:
            data = self._encode_closely(value)
        if len(data) > EVENT_MAX_BYTES:
            raise EventTooLarge(
                f"{self.name}: the event has {len(data):,} bytes; the limit is {EVENT_MAX_BYTES:,}",
                hint="store the bulk elsewhere and publish where it is",
            )
        if self.unbounded and depth_of(data, EVENT_MAX_DEPTH) > EVENT_MAX_DEPTH:
            raise self._too_deep()
        return data

    def encode_all(self, values: list[Any]) -> list[bytes] | None:
        """The data of each, if nothing is wrong with any of them; else None, and `encode` says with which, and what."""
        if self.unbounded:
            return None
        try:
            data = list(map(_ENCODE, values))
            received = list(map(self.decoder.decode, data))
            faithful = received == values and (not self.decimals or list(map(_ENCODE, received)) == data)
        except _UNENCODABLE:
            return None
        return data if faithful and max(map(len, data)) <= EVENT_MAX_BYTES else None

    def decode(self, data: bytes) -> Any:
        """The value that `data` hold. `InvalidEvent` names the field that does not fit."""
        try:
            return self.decoder.decode(data)
        except _UNENCODABLE as error:
            raise InvalidEvent(
                f"{self.name}: {_reason(error)}",
                hint=f"the data do not fit version {self.version} of the type: see `tutti types show {self.name}`",
            ) from error

    def decode_envelope(self, envelope: Envelope) -> Any:
        """The value that an envelope holds; for `CloudEvent`, its attributes too."""
        if self.python is CloudEvent:
            return CloudEvent.of(envelope)
        return self.decode(envelope.data)

    def routing_tokens(self, value: object) -> tuple[str, ...]:
        """The subject tokens of this event, in the order in which the routing attributes are declared."""
        read = self.read_routing
        if read is None:
            return ()
        try:
            found = read(value)
            return (token(found),) if len(self.routing) == 1 else tuple(map(token, found))
        except (DeclarationError, AttributeError, ValueError) as error:
            raise InvalidEvent(f"{self.name}: a routing attribute has no subject token: {error}") from error

    def key_of(self, value: object) -> str | None:
        """The text of the key; None if the type has none, or this event has no value for it."""
        read = self.read_key
        if read is None:
            return None
        try:
            found = read(value)
            return found if found is None or type(found) is str else routing_text(found)
        except (DeclarationError, AttributeError, ValueError) as error:
            raise InvalidEvent(f"{self.name}: the key {self.key} has no text: {error}") from error

    def _encode_closely(self, value: object) -> bytes:
        """The slow way: says what is wrong with the value, or finds that all is well. Values can be the same without
        being equal: a class without equality, the hour that a clock change repeats."""
        try:
            try:
                data = _ENCODE(value)
            except _UNENCODABLE as error:
                raise self._unfit(value, fault_in(value, _encodes), error) from error
            try:
                received = self.decoder.decode(data)
            except _UNENCODABLE as error:
                raise self._unfit(value, _path(error), error) from error
            change = first_change(value, received)
        except RecursionError as error:
            raise self._too_deep() from error
        if change is not None:
            raise InvalidEvent(
                f"{self.name}: {change.sentence()}",
                hint="the event was not sent: JSON cannot carry this value; use one of the declared kind that it can",
            )
        return data

    def _unfit(self, value: object, path: str, error: Exception) -> InvalidEvent:
        return InvalidEvent(
            f"{self.name}: {_AT.sub('', _reason(error))}; the value at `{path}` is {shown(value_at(value, path))}",
            hint="the event was not sent: correct the value, or the declaration of the type",
        )

    def _too_deep(self) -> InvalidEvent:
        return InvalidEvent(
            f"{self.name}: values lie in each other more than {EVENT_MAX_DEPTH} deep",
            hint="refer to parts by an identifier instead of nesting them",
        )


def _encodes(value: object) -> bool:
    try:
        _ENCODE(value)
    except _UNENCODABLE:
        return False
    return True


_ENCODE: Final = msgspec.json.Encoder().encode
_AT: Final = re.compile(r" - at `([^`]+)`$")


def _path(error: Exception) -> str:
    """Where msgspec found the fault; the whole value if it does not say."""
    found = _AT.search(str(error))
    return found[1] if found else "$"


def _lowered(text: str) -> str:
    """In the middle of a sentence; JSON stays JSON."""
    return text if text[:2].isupper() else text[:1].lower() + text[1:]


def _reason(error: Exception) -> str:
    text = str(error)
    return _lowered(text) if isinstance(error, msgspec.MsgspecError) else f"{type(error).__name__}: {text}"


_KNOWN: Final[dict[type, EventType]] = {}


def event_type(cls_or_instance: object) -> EventType:
    """The event type of a class or of one of its values. `DeclarationError` for what cannot be one."""
    cls = cls_or_instance if isinstance(cls_or_instance, type) else type(cls_or_instance)
    known = _KNOWN.get(cls)
    if known is None:
        known = _KNOWN[cls] = _declared(cls)
    return known


def _declared(cls: type) -> EventType:
    if cls is Event:
        raise DeclarationError(
            "Event itself is no event type", hint="derive a class from it, with the fields of your event"
        )
    fields = examine(cls, routing, key)
    options: Options = cls.__dict__.get(_OPTIONS) or _options(cls.__name__, {}, getattr(cls, _OPTIONS, None))
    return EventType(
        name=options.type,
        version=options.version,
        stream=options.stream,
        grade=options.grade,
        lifetime=options.lifetime,
        priority=options.priority,
        key=fields.key,
        routing=fields.routing,
        token=token(options.type),
        python=cls,
        field_names=fields.names,
        decoder=msgspec.json.Decoder(cls),
        unbounded=fields.unbounded,
        decimals=fields.decimals,
        read_routing=operator.attrgetter(*(a.name for a in fields.routing)) if fields.routing else None,
        read_key=operator.attrgetter(fields.key) if fields.key else None,
        is_plain=options.lifetime is None and not options.priority,
    )


class CloudEvent(msgspec.Struct, frozen=True):
    """An event of a type that has no class here: its context attributes, and its data as JSON gives them, or as bytes.

    Usable wherever a class of events is expected; its event type is called `*`, for any.
    """

    attributes: dict[str, str]
    data: Any = None

    @property
    def id(self) -> str:
        return self.attributes["id"]

    @property
    def source(self) -> str:
        return self.attributes["source"]

    @property
    def type(self) -> str:
        return self.attributes["type"]

    @classmethod
    def of(cls, envelope: Envelope) -> CloudEvent:
        """Data that are declared to be JSON must be; data that are declared to be nothing are JSON if they can be."""
        if not envelope.data:
            return cls(envelope.attributes(), None)
        if not envelope.holds_json:
            return cls(envelope.attributes(), envelope.data)
        try:
            return cls(envelope.attributes(), _ANY_JSON(envelope.data))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            if envelope.datacontenttype is None:
                return cls(envelope.attributes(), envelope.data)
            raise InvalidEvent(
                f"{envelope.type}: the data are declared {envelope.datacontenttype} but are not JSON: {_reason(error)}",
                hint="the publisher must send JSON, or declare what it sends in datacontenttype",
            ) from error


_ANY_JSON: Final = msgspec.json.Decoder().decode
_KNOWN[CloudEvent] = msgspec.structs.replace(
    _declared(CloudEvent),
    name="*",
    token="*",  # as a subject token: any type
)

__all__ = [
    "PRIORITY_MOST",
    "CloudEvent",
    "Event",
    "EventMeta",
    "EventType",
    "Grade",
    "Kind",
    "Options",
    "RoutingAttribute",
    "event",
    "event_type",
    "key",
    "routing",
]
