"""Content transformation: from the type that is published to the type that a subscriber wants.

    metric = mapping(TradeDone, Quote, ticker="symbol", cents=lambda trade: int(trade.price * 100))

A field of the target is, in this order: what the mapping says (a field of the source by its name, or a function of the
source event), the field of the source with the same name, its own default. What cannot work is said at the declaration.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import inspect

from tutti.errors import DeclarationError, InvalidEvent
from tutti.model.declaration import parts_of
from tutti.model.event import CloudEvent, EventType, event_type
from tutti.model.fidelity import shown


class Mapping(msgspec.Struct, frozen=True, eq=False):
    """Made by `mapping`. `renames` tells for each target field that is a plain copy which source field it copies: so a
    filter on the target can still be pushed down to the servers."""

    source: EventType
    target: EventType
    renames: dict[str, str]
    fields: dict[str, Callable[[Any], Any]]

    def apply(self, event: object) -> Any:
        """The target event. `InvalidEvent` if a function fails or gives what does not fit the target's field."""
        values: dict[str, Any] = {}
        for name, read in self.fields.items():
            try:
                values[name] = read(event)
            except Exception as error:  # a user's function may raise anything
                raise self._failed(event, name, error) from error
        try:
            return msgspec.convert(values, self.target.python, strict=True)
        except (msgspec.ValidationError, TypeError, ValueError, RecursionError) as error:
            raise InvalidEvent(
                f"{self._label}: {error}",
                hint="a function of this mapping gives what its field cannot hold: correct it",
            ) from error

    def _failed(self, event: object, name: str, error: Exception) -> InvalidEvent:
        return InvalidEvent(
            f"{self._label}: the function for {name} raised {type(error).__name__}: {error}, for {shown(event)}",
            hint="correct the function, or let it cover this value",
        )

    @property
    def _label(self) -> str:
        return f"mapping {self.source.name} → {self.target.name}"


def mapping(source: type, target: type, **fields: str | Callable[[Any], Any]) -> Mapping:
    """A mapping from `source` to `target`; `DeclarationError` for unknown or missing fields and for wrong kinds."""
    published, wanted = event_type(source), event_type(target)
    label = f"mapping {published.name} → {wanted.name}"
    if CloudEvent in (source, target):
        raise DeclarationError(
            f"{label}: a CloudEvent has no fields of its own", hint="declare a class with its fields"
        )
    from_kinds, to_fields = _kinds(source), {field.name: field for field in _fields(target)}
    _check_known(label, fields, published, wanted)
    reads = {name: given for name, given in fields.items() if not isinstance(given, str)}
    renames = {name: given for name, given in fields.items() if isinstance(given, str)}
    renames |= {name: name for name in to_fields if name not in fields and name in from_kinds}
    _check_complete(label, to_fields, renames.keys() | reads.keys())
    _check_kinds(label, renames, from_kinds, to_fields)
    getters = {name: operator.attrgetter(field) for name, field in renames.items()}
    return Mapping(published, wanted, renames, {**getters, **reads})


def _fields(cls: type) -> tuple[inspect.Field, ...]:
    info = inspect.type_info(cls)
    return info.fields if isinstance(info, inspect.StructType | inspect.DataclassType) else ()


def _kinds(cls: type) -> dict[str, inspect.Type]:
    return {field.name: field.type for field in _fields(cls)}


def _check_known(label: str, fields: dict[str, Any], published: EventType, wanted: EventType) -> None:
    for name, given in fields.items():
        if name not in wanted.field_names:
            raise DeclarationError(
                f"{label}: {wanted.name} has no field {name!r}", hint=f"its fields are {', '.join(wanted.field_names)}"
            )
        if isinstance(given, str) and given not in published.field_names:
            raise DeclarationError(
                f"{label}: {published.name} has no field {given!r} for {name}",
                hint=f"its fields are {', '.join(published.field_names)}; a fixed value is lambda event: {given!r}",
            )
        if not isinstance(given, str) and not callable(given):
            raise DeclarationError(
                f"{label}: {name} is {shown(given)}, neither a field's name nor a function",
                hint=f"for a fixed value write {name}=lambda event: {shown(given)}",
            )


def _check_complete(label: str, to_fields: dict[str, inspect.Field], covered: set[str]) -> None:
    missing = [name for name, field in to_fields.items() if field.required and name not in covered]
    if missing:
        raise DeclarationError(
            f"{label}: nothing fills the required field{'s' if len(missing) > 1 else ''} {', '.join(missing)}",
            hint="name a field of the source or a function for each, or give it a default",
        )


def _check_kinds(
    label: str, renames: dict[str, str], from_kinds: dict[str, inspect.Type], to_fields: dict[str, inspect.Field]
) -> None:
    """A copied field must hold everything that its source can: otherwise it fails later, on some event."""
    for name, field in renames.items():
        ours = {_identity(kind) for kind in _members(to_fields[name].type)}
        theirs = {_identity(kind) for kind in _members(from_kinds[field])}
        if ours & _WIDER:
            ours.add(("IntType",))
        if ("AnyType",) not in ours | theirs and not theirs <= ours:
            raise DeclarationError(
                f"{label}: {field} of the source does not fit {name} of the target: their kinds differ",
                hint=f"convert it: {name}=lambda event: …(event.{field})",
            )


_WIDER: Final = {("FloatType",), ("DecimalType",)}  # hold whole numbers too


def _members(kind: inspect.Type) -> tuple[inspect.Type, ...]:
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    return kind.types if isinstance(kind, inspect.UnionType) else (kind,)


def _identity(kind: inspect.Type) -> tuple[object, ...]:
    """What a kind is, whatever its constraints: those are checked for each event."""
    match kind:
        case inspect.Metadata():
            return _identity(kind.type)
        case inspect.EnumType():
            return (kind.cls,)
        case inspect.LiteralType():
            return ("LiteralType", *kind.values)
        case inspect.StructType() | inspect.DataclassType() | inspect.TypedDictType() | inspect.NamedTupleType():
            return (kind.cls,)
        case _:
            return (type(kind).__name__, *(_identity(part) for _, part in parts_of(kind)))
