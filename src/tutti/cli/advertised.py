"""A class for a type of which only the advertisement is known.

`tutti publish` and `tutti tail` have no Python class at hand. They make one from the advertised schema, with the same
kinds of fields, so that values are checked, routed, partitioned and written as the publisher's own class would.
"""

from __future__ import annotations

import datetime as dt
import itertools
import sys
import typing
import uuid
from collections.abc import Callable
from decimal import Decimal
from types import ModuleType
from typing import Annotated, Any, Final, Literal, Union

import msgspec

from tutti.errors import DeclarationError
from tutti.model.advertisement import Advertisement, advertise
from tutti.model.event import event, event_type, key, routing
from tutti.model.schema_clashes import same_values

Schema = dict[str, Any]

_FORMATS: Final[dict[str, Any]] = {
    "date-time": dt.datetime,
    "date": dt.date,
    "time": dt.time,
    "duration": dt.timedelta,
    "uuid": uuid.UUID,
    "decimal": Decimal,
}
# Of moments and clock times: whether they have a time zone. Not said: they must.
_OFFSETS: Final = {"none": False, "optional": None}
# Of the keys of dicts, which are texts in JSON.
_KEYS: Final[dict[str, Any]] = {
    "int": int,
    "float": float,
    "bool": bool,
    "decimal": Decimal,
    "uuid": uuid.UUID,
    "datetime": dt.datetime,
    "date": dt.date,
    "time": dt.time,
    "timedelta": dt.timedelta,
    "bytes": bytes,
}
_SIMPLE: Final[dict[str, Any]] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "null": None,
}
_CONSTRAINTS: Final = {
    "minimum": "ge",
    "exclusiveMinimum": "gt",
    "maximum": "le",
    "exclusiveMaximum": "lt",
    "multipleOf": "multiple_of",
    "pattern": "pattern",
    "minLength": "min_length",
    "maxLength": "max_length",
    "minItems": "min_length",
    "maxItems": "max_length",
    "minProperties": "min_length",
    "maxProperties": "max_length",
}
_count = itertools.count(1)


def event_class(advertisement: Advertisement) -> type:
    """The class; `DeclarationError` if the schema says something for which there is no kind of field."""
    try:
        cls = _Builder(advertisement).build()
        same = same_values(advertisement.schema, advertise(event_type(cls)).schema)
    except (TypeError, ValueError, KeyError, RecursionError, DeclarationError) as error:
        raise _unknown(advertisement, str(error)) from error
    if not same:
        raise _unknown(advertisement, "its schema uses something that cannot be rebuilt")
    return cls


def _unknown(advertisement: Advertisement, reason: str) -> DeclarationError:
    return DeclarationError(
        f"no class can be made from the advertisement of {advertisement.type}: {reason}",
        hint="publish and filter its events from Python, with the publisher's own class",
    )


class _Builder:
    """Makes one class for each named part of a schema. They refer to each other by name, so that a part may contain
    itself; the names are found in a module of their own."""

    def __init__(self, advertisement: Advertisement) -> None:
        self._advertisement = advertisement
        self._module = ModuleType(f"{__name__}.type{next(_count)}")
        self._parts: dict[str, Schema] = advertisement.schema.get("$defs", {})
        self._names = {part: f"Part{i}" for i, part in enumerate(self._parts)}

    def build(self) -> type:
        sys.modules[self._module.__name__] = self._module  # where annotations are looked up
        top = self._advertisement.schema.get("$ref", "").removeprefix("#/$defs/")
        for part, schema in self._parts.items():
            made = self._struct(part, schema, top=part == top) if "properties" in schema else self.kind(schema)
            setattr(self._module, self._names[part], made)
        cls: type = getattr(self._module, self._names[top])
        known = self._advertisement
        declare: Callable[[type], type] = event(
            type=known.type,
            version=known.version,
            stream=known.stream,
            grade=known.grade,
            lifetime=known.lifetime,
            priority=known.priority,
        )
        return declare(cls)

    def kind(self, schema: Schema) -> Any:
        """The annotation for which msgspec would write this schema."""
        plain = self._plain(schema)
        limits = {_CONSTRAINTS[word]: value for word, value in schema.items() if word in _CONSTRAINTS}
        if not limits or "prefixItems" in schema:
            return plain
        return Annotated[plain, msgspec.Meta(**limits)]

    def _plain(self, schema: Schema) -> Any:
        match schema:
            case {"$ref": str(reference)}:
                return typing.ForwardRef(self._names[reference.removeprefix("#/$defs/")])
            case {"anyOf": list(members)}:
                return Union[tuple(self.kind(member) for member in members)]  # noqa: UP007  built at run time
            case {"enum": list(values)}:
                return Literal[tuple(values)]
            case {"type": "array"}:
                return self._array(schema)
            case {"type": "object"}:
                values = schema.get("additionalProperties", {})
                return dict[self._key(schema.get("propertyNames", {})), self.kind(values)]  # type: ignore[misc]  # built at run time
            case {"contentEncoding": "base64"}:
                return bytes
            case {"format": "date-time" | "time" as name}:
                offset = _OFFSETS.get(schema.get("x-offset", ""), True)
                return _FORMATS[name] if offset is None else Annotated[_FORMATS[name], msgspec.Meta(tz=offset)]
            case {"format": str(name)} if name in _FORMATS:
                return _FORMATS[name]
            case {"type": str(name)}:
                return _SIMPLE[name]
            case _:
                return Any

    def _key(self, schema: Schema) -> Any:
        match schema:
            case {"x-kind": str(name)}:
                return _KEYS[name]
            case {"enum": _}:
                return self.kind(schema)
            case _:
                return self.kind({"type": "string"} | schema)

    def _array(self, schema: Schema) -> Any:
        if "prefixItems" in schema:
            return tuple[tuple(self.kind(item) for item in schema["prefixItems"])]  # type: ignore[misc]  # built at run time
        items = self.kind(schema.get("items", {}))
        return frozenset[items] if schema.get("uniqueItems") else list[items]  # type: ignore[valid-type]  # built at run time

    def _struct(self, part: str, schema: Schema, *, top: bool) -> type:
        properties: Schema = dict(schema["properties"])
        tag_field, tag = self._tag(schema)
        if tag_field is not None:
            del properties[tag_field]
        required = schema.get("required", ())
        fields = [self._field(name, field, required=name in required, top=top) for name, field in properties.items()]
        return msgspec.defstruct(
            part,
            fields,
            frozen=True,
            kw_only=True,
            module=self._module.__name__,
            tag_field=tag_field,
            tag=tag,
        )

    def _tag(self, schema: Schema) -> tuple[str | None, str | int | None]:
        """msgspec writes the tag of a struct as its first field, with one value that it always has."""
        nothing: tuple[str, Schema] = ("", {})
        name, first = next(iter(schema["properties"].items()), nothing)
        held = {a.name for a in self._advertisement.routing} | {self._advertisement.key}
        values = first.get("enum", ())
        if len(values) == 1 and name in schema.get("required", ()) and name not in held:
            return name, values[0]
        return None, None

    def _field(self, name: str, schema: Schema, *, required: bool, top: bool) -> Any:
        kind = self.kind(schema)
        markers = []
        if top and any(attribute.name == name for attribute in self._advertisement.routing):
            markers.append(routing)
        if top and name == self._advertisement.key:
            markers.append(key)
        for marker in markers:
            kind = Annotated[kind, marker]
        if required:
            return name, kind
        if "default" not in schema:  # made anew by the publisher's class each time: then by the receiver's
            return name, Union[kind, msgspec.UnsetType], msgspec.UNSET  # noqa: UP007  built at run time
        make = _Default(self._module, kind, msgspec.json.encode(schema["default"]))
        return name, kind, msgspec.field(default_factory=make)


class _Default:
    """A default, as JSON; decoded when first asked for, because only then all the parts are there."""

    def __init__(self, module: ModuleType, kind: Any, text: bytes) -> None:
        self._module = module
        self._kind = kind
        self._text = text

    def __call__(self) -> Any:
        holder = msgspec.defstruct("Holder", [("value", self._kind)], module=self._module.__name__)
        return msgspec.json.decode(b'{"value":' + self._text + b"}", type=holder).value  # type: ignore[attr-defined]  # made a line above
