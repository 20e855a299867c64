"""How the names in a filter are reached in a record: decided once, when the filter is compiled.

A name of an event: the field of that exact name, nested fields by dots; else the context attribute, whose names are
always in lower case. `ce.name` is the context attribute even where a field has its name. Only declared fields of
structs and dataclasses and keys of mappings are ever read: never a method, a property or `__class__`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Final, Protocol, TypeVar

from tutti.filters.values import MISSING

R = TypeVar("R")
R_contra = TypeVar("R_contra", contravariant=True)

CONTEXT_PREFIX: Final = "ce."


class Resolver(Protocol[R_contra]):
    def accessor(self, name: str) -> Callable[[R_contra], object] | None:
        """A function that fetches the value of a name from a record, MISSING if the record has none, None if no record
        ever will."""
        ...


class Record(Protocol):
    """What filters are evaluated on: an event, and the context attributes it came with."""

    @property
    def event(self) -> object: ...
    @property
    def attributes(self) -> Mapping[str, str]: ...


class MappingResolver:
    """Records are plain mappings; nested mappings by dots."""

    def accessor(self, name: str) -> Callable[[Mapping[str, object]], object]:
        first, *rest = name.removeprefix(CONTEXT_PREFIX).split(".")
        lowered = first.lower()

        def plain(record: Mapping[str, object]) -> object:
            return record[first] if first in record else record.get(lowered, MISSING)

        if not rest:
            return plain
        return lambda record: _nested(plain(record), rest)


class EventResolver:
    """Records have an `event` and `attributes`. With the events' type, names are settled here and now; without it, once
    for each type that arrives."""

    def __init__(self, event_type: type | None = None) -> None:
        self._event_type = event_type

    def accessor(self, name: str) -> Callable[[Record], object] | None:
        if name.startswith(CONTEXT_PREFIX):
            attribute = name.removeprefix(CONTEXT_PREFIX)
            return None if "." in attribute else _context_accessor(attribute)
        if self._event_type is not None:
            return _accessor_for(self._event_type, name)
        return _adaptive_accessor(name)


def _accessor_for(event_type: type, name: str) -> Callable[[Record], object] | None:
    first, *rest = name.split(".")
    if issubclass(event_type, Mapping):
        return _mapping_accessor(name, first, rest)
    if not has_field(event_type, first):
        return None if rest else _context_accessor(name)
    fetch = attrgetter(f"event.{first}")
    if not rest:
        return fetch
    return lambda record: _nested(fetch(record), rest)


def _mapping_accessor(name: str, first: str, rest: list[str]) -> Callable[[Record], object]:
    attribute = name.lower()

    def fetch(record: Record) -> object:
        event = record.event
        if isinstance(event, Mapping) and first in event:
            return _nested(event[first], rest) if rest else event[first]
        return record.attributes.get(attribute, MISSING)

    return fetch


def _adaptive_accessor(name: str) -> Callable[[Record], object]:
    known: dict[type, Callable[[Record], object]] = {}

    def fetch(record: Record) -> object:
        try:
            return known[type(record.event)](record)
        except KeyError:
            kind = type(record.event)
        if kind not in known:
            known[kind] = _accessor_for(kind, name) or _never
        return known[kind](record)

    return fetch


def _never(_record: object) -> object:
    return MISSING


def _context_accessor(name: str) -> Callable[[Record], object]:
    attribute = name.lower()
    return lambda record: record.attributes.get(attribute, MISSING)


def _nested(holder: object, path: list[str]) -> object:
    for name in path:
        if isinstance(holder, Mapping):
            holder = holder.get(name, MISSING)
        elif has_field(type(holder), name):
            holder = getattr(holder, name, MISSING)
        else:
            return MISSING
    return holder


def has_field(kind: type, name: str) -> bool:
    """Whether a struct or dataclass declares a field; no other type has any."""
    return name in getattr(kind, "__struct_fields__", ()) or name in getattr(kind, "__dataclass_fields__", ())
