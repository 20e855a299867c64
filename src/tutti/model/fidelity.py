"""Does a value arrive as it was sent?

JSON cannot carry everything that Python can hold, and an encoder that meets such a value may silently send another: NaN
as null, an offset of seconds rounded to minutes. `first_change` finds the first place where the value that would arrive
differs from the one that was given.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

import msgspec

_SHOWN_MAX_CHARACTERS: Final = 80
_TEXT: Final = re.compile(rb'"(?:[^"\\]|\\.)*"').sub  # a JSON string, whose brackets do not count
_BRACKET: Final = re.compile(rb"[\[\]{}]").findall


class Change(msgspec.Struct, frozen=True):
    """At `path`, `sent` would arrive as `received`."""

    path: str
    sent: object
    received: object

    def sentence(self) -> str:
        sent, received = shown(self.sent), shown(self.received)
        if sent == received and type(self.sent) is type(self.received):
            return f"{sent} at `{self.path}` is equal to nothing, not even to itself"
        return f"{sent} at `{self.path}` would arrive as {received}"


def first_change(sent: object, received: object, path: str = "$") -> Change | None:
    """The first place where the two differ, or None if they are the same value."""
    if isinstance(sent, datetime) and isinstance(received, datetime):
        return None if _same_moment(sent, received) else Change(path, sent, received)
    if isinstance(sent, Decimal) and sent.is_snan():
        return Change(path, sent, received)  # comparing it raises
    if isinstance(received, Decimal) and not isinstance(sent, Decimal):
        return Change(
            path, sent, received
        )  # as a JSON number it would not fit the schema, and 0.1 is not Decimal("0.1")
    parts = _parts(sent, received, path)
    if parts is None:
        return None if sent == received else Change(path, sent, received)
    for part_path, sent_part, received_part in parts:
        if (change := first_change(sent_part, received_part, part_path)) is not None:
            return change
    return None


def shown(value: object) -> str:
    """A value for an error's sentence: short, and harmless to show."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _SHOWN_MAX_CHARACTERS else text[: _SHOWN_MAX_CHARACTERS - 1] + "…"


def _same_moment(sent: datetime, received: datetime) -> bool:
    """In the hour that a clock change repeats, Python calls no times of two zones equal; their instants may be."""
    if sent.tzinfo is None or received.tzinfo is None:
        return sent == received
    if sent == received:
        return True
    try:
        return sent.astimezone(UTC) == received.astimezone(UTC)
    except OverflowError:
        return False


def _parts(sent: object, received: object, path: str) -> Iterable[tuple[str, object, object]] | None:
    """What the two consist of, side by side; None if they are to be compared as wholes."""
    if type(sent) is not type(received):
        return None
    if isinstance(sent, msgspec.Struct):
        return _attributes(sent, received, sent.__struct_fields__, path)
    if dataclasses.is_dataclass(sent):
        return _attributes(sent, received, tuple(field.name for field in dataclasses.fields(sent)), path)
    if isinstance(sent, Mapping) and isinstance(received, Mapping):
        return _entries(sent, received, path) if sent.keys() == received.keys() else None
    if isinstance(sent, list | tuple) and isinstance(received, list | tuple) and len(sent) == len(received):
        return ((f"{path}[{i}]", one, other) for i, (one, other) in enumerate(zip(sent, received, strict=True)))
    return None


def _attributes(
    sent: object, received: object, names: tuple[str, ...], path: str
) -> Iterator[tuple[str, object, object]]:
    for name in names:
        yield f"{path}.{name}", getattr(sent, name), getattr(received, name)


def _entries(
    sent: Mapping[object, object], received: Mapping[object, object], path: str
) -> Iterator[tuple[str, object, object]]:
    for key, value in sent.items():
        yield f"{path}[{shown(key)}]", value, received[key]


def fault_in(value: object, sound: Callable[[object], bool], path: str = "$") -> str:
    """The path of the innermost part of `value` that is not sound."""
    for part_path, part, _ in _parts(value, value, path) or ():
        if not sound(part):
            return fault_in(part, sound, part_path)
    return path


def value_at(value: object, path: str) -> object:
    """The part of `value` at a path such as `$.lines[2].price`; where a path is vague (`[...]`), the part before it."""
    part = value
    for name, index in _steps(path):
        try:
            if name:
                part = part[name] if isinstance(part, Mapping) else getattr(part, name)
            elif isinstance(part, list | tuple) and index.isdigit():
                part = part[int(index)]
            else:
                return part
        except (AttributeError, KeyError, IndexError):
            return part
    return part


def _steps(path: str) -> Iterator[tuple[str, str]]:
    for piece in path.removeprefix("$").replace("[...]", "[*]").replace("[", ".[").split("."):
        if piece.startswith("["):
            yield "", piece.strip("[]")
        elif piece:
            yield piece, ""


def depth_of(data: bytes, limit: int) -> int:
    """How deep the arrays and objects of a JSON text lie in each other; 0 if it cannot be more than `limit`."""
    if data.count(b"[") + data.count(b"{") <= limit:
        return 0
    depth = deepest = 0
    for bracket in _BRACKET(_TEXT(b"", data)):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest
