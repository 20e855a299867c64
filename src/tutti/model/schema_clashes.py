"""Would both sides still understand each other if one schema took the place of another?

Old events lie in the log, old publishers and old subscribers run beside new ones: so new subscribers must be able to
read old events, and old subscribers new ones. What follows for a field:

1. One that is only on one side must be optional there.
2. One that is on both must be required on both, or on neither.
3. Its values must be the same set on both: a wider one breaks the old readers, a narrower one the new.

What does not decide which values fit (titles, descriptions, defaults, names of classes) may change.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tutti.model.schema import Schema

_REMARKS: Final = frozenset({"title", "description", "default", "examples", "deprecated", "discriminator", "$defs"})
_COMPARED_APART: Final = frozenset(
    {"properties", "required", "items", "prefixItems", "additionalProperties", "enum", "anyOf", "type", "format"}
)


def schema_clashes(old: Schema, new: Schema) -> tuple[str, ...]:
    """A sentence for each place where the two do not go together; none if they do."""
    return tuple(dict.fromkeys(_Comparison(old, new).compare(old, new, "")))


def same_values(old: Schema, new: Schema) -> bool:
    """Whether the two describe the same fields with the same values, whatever they call their parts."""
    comparison = _Comparison(old, new, exact=True)
    return next(comparison.compare(old, new, ""), None) is None


class _Comparison:
    """Walks two schemas side by side; each pair of parts once, because types may contain themselves."""

    def __init__(self, old: Schema, new: Schema, *, exact: bool = False) -> None:
        self._old_parts: Schema = old.get("$defs", {})
        self._new_parts: Schema = new.get("$defs", {})
        self._exact = exact
        self._seen: set[tuple[int, int]] = set()

    def compare(self, old: Schema, new: Schema, place: str) -> Iterator[str]:
        befores, nows = list(_members(old, self._old_parts)), list(_members(new, self._new_parts))
        tagged = max(_objects(befores), _objects(nows)) > 1
        olds = {_key(member, tagged=tagged): member for member in befores}
        news = {_key(member, tagged=tagged): member for member in nows}
        if len(olds) == len(news) == 1 and olds.keys() != news.keys():
            yield f"{_at(place)}its type changed from {_words(next(iter(olds)))} to {_words(next(iter(news)))}"
            return
        for key in sorted(olds.keys() - news.keys()):
            yield f"{_at(place)}{_words(key)} is no longer allowed, but old events may hold it"
        for key in sorted(news.keys() - olds.keys()):
            yield f"{_at(place)}{_words(key)} is now allowed, but old subscribers cannot read it"
        for key, member in olds.items():
            if key in news:
                yield from self._compare_member(member, news[key], place)

    def _compare_member(self, old: Schema, new: Schema, place: str) -> Iterator[str]:
        pair = (id(old), id(new))  # a named part is one object, however many references lead to it
        if pair in self._seen:
            return
        self._seen.add(pair)
        yield from self._compare_fields(old, new, place)
        yield from self._compare_items(old, new, place)
        yield from _compare_enum(old, new, place)
        for keyword in sorted((old.keys() | new.keys()) - _REMARKS - _COMPARED_APART):
            if old.get(keyword) != new.get(keyword):
                yield f"{_at(place)}{keyword} changed from {old.get(keyword)} to {new.get(keyword)}"

    def _compare_fields(self, old: Schema, new: Schema, place: str) -> Iterator[str]:
        olds: Schema = old.get("properties", {})
        news: Schema = new.get("properties", {})
        required_before, required_now = set(old.get("required", ())), set(new.get("required", ()))
        for name in sorted(olds.keys() - news.keys()):
            if name in required_before:
                yield f"{_at(_inside(place, name))}it was removed, but old subscribers require it"
            elif self._exact:
                yield f"{_at(_inside(place, name))}it was removed"
        for name in sorted(news.keys() - olds.keys()):
            if name in required_now:
                yield f"{_at(_inside(place, name))}it was added without a default, but old events lack it"
            elif self._exact:
                yield f"{_at(_inside(place, name))}it was added"
        for name in olds:
            if name in news:
                yield from _compare_requirement(name in required_before, name in required_now, _inside(place, name))
                yield from self.compare(olds[name], news[name], _inside(place, name))

    def _compare_items(self, old: Schema, new: Schema, place: str) -> Iterator[str]:
        for keyword, inner in (("items", f"{place}[]"), ("additionalProperties", f"{place}[]")):
            before, now = old.get(keyword), new.get(keyword)
            if isinstance(before, dict) and isinstance(now, dict):
                yield from self.compare(before, now, inner)
            elif before != now:
                yield f"{_at(inner)}{keyword} changed from {before} to {now}"
        befores, nows = old.get("prefixItems", []), new.get("prefixItems", [])
        if len(befores) == len(nows):  # if not, minItems and maxItems say so
            for i, (before, now) in enumerate(zip(befores, nows, strict=True)):
                yield from self.compare(before, now, f"{place}[{i}]")


def _compare_requirement(before: object, now: object, place: str) -> Iterator[str]:
    if before and not now:
        yield f"{_at(place)}it is now optional, but old subscribers require it"
    elif now and not before:
        yield f"{_at(place)}it is now required, but old events may lack it"


def _compare_enum(old: Schema, new: Schema, place: str) -> Iterator[str]:
    before, now = old.get("enum", []), new.get("enum", [])
    for value in before:
        if value not in now:
            yield f"{_at(place)}the value {value!r} was removed, but old events may hold it"
    for value in now:
        if value not in before:
            yield f"{_at(place)}the value {value!r} was added, but old subscribers do not know it"


def _members(schema: Schema, parts: Schema) -> Iterator[Schema]:
    """What a value may be: one thing, or one of several."""
    if "$ref" in schema:  # msgspec's references lead to a definition, never to another reference
        schema = parts[schema["$ref"].removeprefix("#/$defs/")]
    if "anyOf" in schema:
        for member in schema["anyOf"]:
            yield from _members(member, parts)
    else:
        yield schema


def _objects(members: list[Schema]) -> int:
    return sum("properties" in member for member in members)


def _key(member: Schema, *, tagged: bool) -> tuple[str, ...]:
    """What tells the members of a union apart: the kind of JSON value and, of several objects, the tag."""
    if "enum" in member:
        return ("enum", *sorted({_JSON_KINDS.get(type(value), "other") for value in member["enum"]}))
    if "properties" in member:
        return ("object", *_tags(member)) if tagged else ("object",)
    kind = member.get("type", "anything")
    return tuple(part for part in (kind, member.get("format", ""), member.get("contentEncoding", "")) if part)


_JSON_KINDS: Final = {str: "string", int: "integer", bool: "boolean", type(None): "null"}


def _tags(member: Schema) -> Iterator[str]:
    """The fields that always hold one and the same value."""
    for name, part in member["properties"].items():
        values = part.get("enum", ())
        if len(values) == 1 and "title" not in part and name in member.get("required", ()):
            yield f"{name}={values[0]}"


def _words(key: tuple[str, ...]) -> str:
    return key[0] if len(key) == 1 else f"{key[0]} ({', '.join(key[1:])})"


def _inside(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _at(place: str) -> str:
    return f"field `{place}`: " if place else ""
