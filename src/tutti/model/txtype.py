"""Transaction types: what a census announces, and which events may be published in such a transaction.

    class Meeting(tutti.TxType, events=[Invitation, Cancellation]):
        subject: str
        starts: datetime

A transaction type is declared like an event type and is made of the same kinds of fields, so candidates filter
invitations as subscribers filter events. `events` are the types that a transaction of this type may publish; whoever
takes part is told of these and no others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Generic, TypeVar, dataclass_transform

import msgspec

from tutti.errors import DeclarationError, InvalidEvent
from tutti.model.event import CloudEvent, EventMeta, EventType, event_type
from tutti.model.schema import json_schema
from tutti.model.schema_clashes import same_values, schema_clashes
from tutti.model.transaction import Scope

_EVENTS: Final = "__tutti_events__"

T = TypeVar("T")


class TxMeta(EventMeta):
    """Takes `events` as a class keyword, beside what the declaration of an event takes."""

    def __new__(  # noqa: PYI034 - Self cannot stand in a metaclass
        mcls: type[TxMeta],
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        events: Iterable[type] | None = None,
        **options: Any,
    ) -> TxMeta:
        for option in ("stream", "grade", "lifetime", "priority"):
            if option in options:
                raise DeclarationError(
                    f"{name}: {option}= has no meaning for a transaction type",
                    hint="it is announced on the wire, not stored; declare it with the events",
                )
        if events is not None:
            namespace[_EVENTS] = tuple(_event(name, event) for event in events)
        return super().__new__(mcls, name, bases, namespace, **options)  # type: ignore[return-value]  # of this class


def _event(name: str, event: object) -> EventType:
    if not isinstance(event, type) or (isinstance(event, TxMeta)) or event is CloudEvent:
        raise DeclarationError(
            f"{name}: events= names {event!r}, which is no class of events", hint=f"write events=[SomeEvent] in {name}"
        )
    return event_type(event)


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class TxType(msgspec.Struct, frozen=True, metaclass=TxMeta):
    """Derive from it to declare a transaction type. Class keywords: `events`, `type`, `version`. A class derived from a
    transaction type inherits its events unless it names its own."""


class TransactionType(msgspec.Struct, frozen=True):
    """One transaction type. Made by `transaction_type`, once per class."""

    kind: EventType  # its name, token, fields, and the way between values and data
    events: tuple[EventType, ...]

    @property
    def name(self) -> str:
        return self.kind.name

    @property
    def token(self) -> str:
        return self.kind.token

    @property
    def event_names(self) -> tuple[str, ...]:
        return tuple(event.name for event in self.events)

    def encode(self, value: object) -> Any:
        """The value as an invitation carries it: what JSON can hold."""
        return msgspec.json.decode(self.kind.encode(value))

    def decode(self, data: object) -> Any:
        """The value that an invitation carries. `InvalidEvent` names the field that does not fit."""
        try:
            encoded = data if isinstance(data, bytes) else msgspec.json.encode(data)
        except (TypeError, ValueError) as error:
            raise InvalidEvent(f"an invitation to {self.name} carries {type(data).__name__}: {error}") from error
        return self.kind.decode(encoded)

    def check_event(self, event: EventType) -> None:
        """`DeclarationError` unless such an event may be published in a transaction of this type."""
        if event not in self.events:
            names = ", ".join(self.event_names) or "none"
            raise DeclarationError(
                f"{event.name} is not among the events of {self.name}: {names}",
                hint=f"declare class {self.kind.python.__name__}(tutti.TxType, events=[…, {event.python.__name__}])",
            )


_KNOWN: Final[dict[type, TransactionType]] = {}


def transaction_type(cls_or_instance: object) -> TransactionType:
    """The transaction type of a class or of one of its values. `DeclarationError` for what is none."""
    cls = cls_or_instance if isinstance(cls_or_instance, type) else type(cls_or_instance)
    known = _KNOWN.get(cls)
    if known is None:
        if not issubclass(cls, TxType) or cls is TxType:
            raise DeclarationError(
                f"{cls.__name__} is no transaction type",
                hint=f"declare class {cls.__name__}(tutti.TxType, events=[…]) with the fields that a census announces",
            )
        known = _KNOWN[cls] = TransactionType(event_type(cls), getattr(cls, _EVENTS, ()))
    return known


def is_transaction_type(cls: type) -> bool:
    return isinstance(cls, TxMeta) and cls is not TxType


class Invite(msgspec.Struct, Generic[T], frozen=True):
    """What the callback of a join gets. `data` is the value that the census announces; until `deadline` (seconds since
    the epoch) the transaction is decided; `events` are the names of the types that it may publish."""

    tx: str
    type: str
    data: T
    scope: Scope
    deadline: float
    events: tuple[str, ...] = ()


class TxAdvertisement(msgspec.Struct, frozen=True):
    """One transaction type, as everybody may know it: a record under `txtype.<token>`."""

    type: str
    version: int
    schema: dict[str, Any]
    events: tuple[str, ...] = ()
    format: int = 1  # of this record


def tx_clashes(known: TxAdvertisement, new: TxAdvertisement) -> tuple[str, ...]:
    """Why `new` cannot stand beside `known`, a sentence for each reason. Fields change as those of events may; event
    types may be added, in a higher version, and not taken away: members wait for what old publishers still send."""
    older, newer = (known, new) if new.version >= known.version else (new, known)
    found = list(schema_clashes(older.schema, newer.schema))
    gone = [name for name in older.events if name not in newer.events]
    found += [f"{name} was among its events, and is not any more" for name in gone]
    changed = set(known.events) != set(new.events) or not same_values(known.schema, new.schema)
    if not found and changed and new.version == known.version:
        found.append(f"it changed, but the version is still {new.version}: declare version={new.version + 1}")
    return tuple(found)


def advertised(kind: TransactionType) -> TxAdvertisement:
    return TxAdvertisement(kind.name, kind.kind.version, json_schema(kind.kind.python), kind.event_names)
