"""What may be declared as an event type, checked once per class, before anything is sent.

1. An event is a struct or a dataclass whose data are a JSON object: that is where filters find its fields.
2. One field has one name everywhere, so nothing is renamed on the wire.
3. Fields may be added later, so nothing may insist on knowing them all, or on their order.
4. Every field is of a kind that JSON carries and that can be checked when it arrives.
5. A routing attribute or a key is a single value: a text, number, truth value, enum, date, moment or UUID, or absent.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator
from typing import Any, Final, Literal

import msgspec
from msgspec import inspect

from tutti.errors import DeclarationError
from tutti.limits import ROUTING_ATTRIBUTES_MAX_COUNT

Kind = Literal["string", "integer", "boolean", "float", "decimal", "date", "datetime", "uuid"]

_WITH_FIELDS: Final = (inspect.StructType, inspect.DataclassType, inspect.TypedDictType, inspect.NamedTupleType)
_RESERVED_FIELDS: Final = frozenset({"ce"})  # filters reach context attributes as `ce.name`


class Marker(msgspec.Struct, frozen=True):
    """Something said about a field inside `Annotated[…]`."""

    name: str

    def __repr__(self) -> str:
        return f"tutti.{self.name}"


class RoutingAttribute(msgspec.Struct, frozen=True):
    """A field that is a token of the event's subject, so that servers filter on it. `kind` is what its values are."""

    name: str
    kind: Kind
    optional: bool = False


class Fields(msgspec.Struct, frozen=True):
    """What the fields of a class say about the type."""

    names: tuple[str, ...]
    routing: tuple[RoutingAttribute, ...]
    key: str | None
    unbounded: bool  # values can be nested as deep as one likes
    decimals: bool  # somewhere in it


def examine(cls: type, routing: Marker, key: Marker) -> Fields:
    """The fields of an event class; `DeclarationError` if it cannot be one."""
    kind = _inspected(cls)
    if not isinstance(kind, inspect.StructType | inspect.DataclassType):
        raise DeclarationError(
            f"{_name(cls)} cannot be an event type: its values are not structs",
            hint="derive it from tutti.Event, or make it a dataclass or a msgspec.Struct",
        )
    walk = _Walk()
    walk.check(kind, _name(cls))
    for field in kind.fields:
        if field.name in _RESERVED_FIELDS:
            raise DeclarationError(
                f"{_name(cls)}.{field.name}: this name is reserved",
                hint="filters use it to reach context attributes, as in ce.id",
            )
    hints = typing.get_type_hints(cls, include_extras=True)
    attributes = tuple(
        _attribute(cls, field, "routing attribute") for field in kind.fields if _marked(cls, field.name, hints, routing)
    )
    keys = [_attribute(cls, field, "key") for field in kind.fields if _marked(cls, field.name, hints, key)]
    _check_counts(cls, attributes, keys)
    return Fields(
        tuple(f.name for f in kind.fields), attributes, keys[0].name if keys else None, walk.unbounded, walk.decimals
    )


def _inspected(cls: type) -> inspect.Type:
    try:
        return inspect.type_info(cls)
    except NameError as error:
        raise DeclarationError(
            f"{_name(cls)}: a field's annotation names something unknown: {error}",
            hint="define or import it at the level of the module, not only under TYPE_CHECKING or inside a function",
        ) from error
    except (TypeError, ValueError, AttributeError) as error:
        raise DeclarationError(
            f"{_name(cls)} cannot be an event type: {error}",
            hint="use the kinds of fields listed in docs/events.md; members of a union of structs need tags",
        ) from error


def _check_counts(cls: type, attributes: tuple[RoutingAttribute, ...], keys: list[RoutingAttribute]) -> None:
    if len(attributes) > ROUTING_ATTRIBUTES_MAX_COUNT:
        raise DeclarationError(
            f"{_name(cls)} has {len(attributes)} routing attributes; the limit is {ROUTING_ATTRIBUTES_MAX_COUNT}",
            hint="mark only what most filters ask for: the rest is filtered at the subscriber all the same",
        )
    if len(keys) > 1:
        raise DeclarationError(
            f"{_name(cls)} has {len(keys)} keys: {', '.join(k.name for k in keys)}",
            hint="mark one field with tutti.key; where two belong together, make a field that holds both",
        )


class _Walk:
    """Visits every kind that a class is made of, each class once."""

    def __init__(self) -> None:
        self.unbounded = False
        self.decimals = False
        self._seen: set[object] = set()
        self._open: set[object] = set()

    def check(self, kind: inspect.Type, place: str) -> None:
        _refuse_odd(kind, place)
        self.unbounded |= isinstance(kind, inspect.AnyType)
        self.decimals |= isinstance(kind, inspect.DecimalType)
        if not isinstance(kind, _WITH_FIELDS):
            return self._check_parts(kind, place)
        self.unbounded |= kind.cls in self._open
        if kind.cls not in self._seen:
            self._seen.add(kind.cls)
            self._open.add(kind.cls)
            self._check_parts(kind, place)
            self._open.discard(kind.cls)
        return None

    def _check_parts(self, kind: inspect.Type, place: str) -> None:
        for name, part in parts_of(kind):
            self.check(part, f"{place}{name}")


def parts_of(kind: inspect.Type) -> Iterator[tuple[str, inspect.Type]]:
    """The kinds that a kind is made of, each with its place in it."""
    match kind:
        case inspect.StructType() | inspect.DataclassType() | inspect.TypedDictType() | inspect.NamedTupleType():
            yield from ((f".{field.name}", field.type) for field in kind.fields)
        case inspect.UnionType():
            yield from (("", member) for member in kind.types)
        case inspect.TupleType():
            yield from ((f"[{i}]", item) for i, item in enumerate(kind.item_types))
        case inspect.ListType() | inspect.VarTupleType() | inspect.SetType() | inspect.FrozenSetType():
            yield "[]", kind.item_type
        case inspect.DictType():
            yield "[key]", kind.key_type
            yield "[]", kind.value_type
        case inspect.Metadata():
            yield "", kind.type
        case _:
            pass


def _refuse_odd(kind: inspect.Type, place: str) -> None:
    match kind:
        case inspect.StructType(array_like=True):
            raise DeclarationError(
                f"{place}: an array_like struct has no field names on the wire",
                hint="leave array_like out: fields could not be filtered, added or removed",
            )
        case inspect.StructType(forbid_unknown_fields=True):
            raise DeclarationError(
                f"{place}: forbid_unknown_fields would refuse every event of a newer publisher",
                hint="leave it out: fields that a subscriber does not know are ignored",
            )
        case inspect.StructType() | inspect.DataclassType() | inspect.TypedDictType():
            for field in kind.fields:
                if field.encode_name != field.name:
                    raise DeclarationError(
                        f"{place}.{field.name} is renamed to {field.encode_name!r} on the wire",
                        hint="give the field its name on the wire: filters, routing and mappings use that one",
                    )
        case inspect.CustomType() | inspect.RawType() | inspect.ExtType() | inspect.MemoryViewType():
            raise DeclarationError(
                f"{place}: a field of this kind cannot be carried and checked as JSON",
                hint="use the kinds of fields listed in docs/events.md",
            )
        case _:
            pass


def _marked(cls: type, name: str, hints: dict[str, Any], marker: Marker) -> bool:
    hint = hints[name]
    if typing.get_origin(hint) is typing.Annotated and marker in hint.__metadata__:
        return True
    if _mentions(hint, marker):
        raise DeclarationError(
            f"{_name(cls)}.{name}: {marker!r} stands inside the type",
            hint=f"let it stand outside: Annotated[str | None, {marker!r}]",
        )
    return False


def _mentions(hint: Any, marker: Marker) -> bool:
    return any(part is marker or _mentions(part, marker) for part in typing.get_args(hint))


def _attribute(cls: type, field: inspect.Field, role: str) -> RoutingAttribute:
    kind, optional = _without_none(field.type)
    simple = _simple(kind)
    if simple is None:
        raise DeclarationError(
            f"{_name(cls)}.{field.name} cannot be a {role}: it is no single text, number, enum, date, moment or UUID",
            hint="mark a field of one of these kinds, or of one of them | None",
        )
    return RoutingAttribute(field.name, simple, optional)


def _without_none(kind: inspect.Type) -> tuple[inspect.Type, bool]:
    if isinstance(kind, inspect.Metadata):
        return _without_none(kind.type)
    if isinstance(kind, inspect.UnionType) and kind.includes_none and len(kind.types) == 2:
        return next(member for member in kind.types if not isinstance(member, inspect.NoneType)), True
    return kind, False


def _simple(kind: inspect.Type) -> Kind | None:
    match kind:
        case inspect.Metadata():
            return _simple(kind.type)
        case inspect.StrType():
            return "string"
        case inspect.IntType():
            return "integer"
        case inspect.BoolType():
            return "boolean"
        case inspect.FloatType():
            return "float"
        case inspect.DecimalType():
            return "decimal"
        case inspect.DateType():
            return "date"
        case inspect.DateTimeType():
            return "datetime"
        case inspect.UUIDType():
            return "uuid"
        case inspect.EnumType():
            return _kind_of_values(tuple(member.value for member in kind.cls))
        case inspect.LiteralType():
            return _kind_of_values(kind.values)
        case _:
            return None


def _kind_of_values(values: tuple[object, ...]) -> Kind | None:
    if values and all(isinstance(value, str) for value in values):
        return "string"
    if values and all(isinstance(value, int) for value in values):
        return "integer"
    return None


def _name(cls: object) -> str:
    return getattr(cls, "__qualname__", None) or repr(cls)
