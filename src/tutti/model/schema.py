"""The JSON Schema of an event class.

msgspec's own, with what it leaves out: moments, clock times and the keys of dicts look like any text in it, so that a
change from one to another could not be seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import inspect

from tutti.model.declaration import parts_of

Schema = dict[str, Any]

_Class = inspect.StructType | inspect.DataclassType | inspect.TypedDictType | inspect.NamedTupleType


def json_schema(cls: type) -> Schema:
    """JSON Schema 2020-12: a reference to the class, and the definitions of all classes that it is made of."""
    classes = {kind.cls: kind for kind in _classes(inspect.type_info(cls), set())}
    references, definitions = msgspec.json.schema_components(classes)
    for kind, reference in zip(classes.values(), references, strict=True):
        _complete_fields(kind, definitions[reference["$ref"].removeprefix("#/$defs/")])
    schema = {"$ref": references[0]["$ref"], "$defs": definitions}
    return msgspec.json.decode(msgspec.json.encode(schema), type=Schema)  # as it will be read back


def _classes(kind: inspect.Type, seen: set[object]) -> Iterator[_Class]:
    """Every class with fields, the outermost first."""
    if isinstance(kind, _Class):
        if kind.cls in seen:
            return
        seen.add(kind.cls)
        yield kind
    for _, part in parts_of(kind):
        yield from _classes(part, seen)


def _complete_fields(kind: _Class, schema: Schema) -> None:
    for i, field in enumerate(kind.fields):
        place = (
            schema["prefixItems"][i] if isinstance(kind, inspect.NamedTupleType) else schema["properties"][field.name]
        )
        _complete(field.type, place)


def _complete(kind: inspect.Type, schema: Schema) -> None:
    """Changes `schema`, which is msgspec's for `kind`. Classes are left alone: each has a definition of its own."""
    match kind:
        case inspect.Metadata():
            _complete(kind.type, schema)
        case inspect.UnionType():
            for member in kind.types:
                _complete(member, _member_for(member, schema))
        case inspect.DateTimeType():
            schema |= {"format": "date-time"} | _offset(kind.tz)
        case inspect.TimeType():
            schema |= {"format": "time"} | _offset(kind.tz)
        case inspect.ListType() | inspect.SetType() | inspect.FrozenSetType() | inspect.VarTupleType():
            if "items" in schema:  # not if they are anything
                _complete(kind.item_type, schema["items"])
        case inspect.TupleType():
            for i, item in enumerate(kind.item_types):
                _complete(item, schema["prefixItems"][i])
        case inspect.DictType():
            if not isinstance(kind.key_type, inspect.StrType | inspect.AnyType):
                schema.setdefault("propertyNames", _key_schema(kind.key_type))
            if isinstance(schema.get("additionalProperties"), dict):
                _complete(kind.value_type, schema["additionalProperties"])
        case _:
            pass


def _offset(tz: bool | None) -> Schema:  # noqa: FBT001 - msgspec's three states: must, must not, may
    match tz:
        case True:
            return {}  # what the format says anyway
        case False:
            return {"x-offset": "none"}
        case None:
            return {"x-offset": "optional"}


def _member_for(kind: inspect.Type, schema: Schema) -> Schema:
    """The member of a union's schema that stands for `kind`. There is one at most: JSON could not tell two apart."""
    wanted = _JSON_TYPES.get(type(kind.type if isinstance(kind, inspect.Metadata) else kind))
    for member in schema.get("anyOf", (schema,)):
        if member.get("type") == wanted and not member.keys() & {"enum", "format", "contentEncoding"}:
            found: Schema = member
            return found
    return {}


_JSON_TYPES: dict[type, str] = {
    inspect.DateTimeType: "string",
    inspect.TimeType: "string",
    inspect.ListType: "array",
    inspect.SetType: "array",
    inspect.FrozenSetType: "array",
    inspect.VarTupleType: "array",
    inspect.TupleType: "array",
    inspect.DictType: "object",
}


def _key_schema(kind: inspect.Type) -> Schema:
    match kind:
        case inspect.Metadata():
            return _key_schema(kind.type)
        case inspect.EnumType():
            return {"enum": sorted(str(member.value) for member in kind.cls)}
        case inspect.LiteralType():
            return {"enum": sorted(map(str, kind.values))}
        case _:
            return {"x-kind": type(kind).__name__.removesuffix("Type").lower()}
