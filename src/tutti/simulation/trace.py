"""What happened, in order: kept as values, put into words only when somebody reads it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import msgspec


class Entry(msgspec.Struct, frozen=True):
    time: float
    where: str
    tx: str
    what: Any  # an input, an effect, a fact, or words

    def line(self) -> str:
        said = self.what if isinstance(self.what, str) else _short(self.what)
        return f"{self.time:9.3f}  {self.where:<8} {self.tx:<6} {said}"


class Trace:
    """`digest` is equal for two runs exactly if they were the same."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: list[tuple[float, str, str, Any]] = []

    def note(self, time: float, where: str, tx: str, what: Any) -> None:
        self._entries.append((time, where, tx, what))

    def __len__(self) -> int:
        return len(self._entries)

    def entries(self, tx: str = "") -> Iterator[Entry]:
        """All, or those of one transaction and of the world around it."""
        for time, where, about, what in self._entries:
            if not tx or about in {tx, ""}:
                yield Entry(time, where, about, what)

    def lines(self, *, tx: str = "", last: int | None = None) -> list[str]:
        lines = [entry.line() for entry in self.entries(tx)]
        return lines if last is None else lines[max(0, len(lines) - last) :]

    def digest(self) -> str:
        found = hashlib.sha256()
        for entry in self._entries:
            found.update(repr(entry).encode())
        return found.hexdigest()


def _short(value: Any) -> str:
    """`Vote(round=1, value='yes')`: without the transaction, which stands beside it, and without what is empty."""
    if not isinstance(value, msgspec.Struct):
        return _cut(repr(value))
    fields = ((name, getattr(value, name)) for name in value.__struct_fields__ if name not in {"tx", "now", "verbatim"})
    shown = (f"{name}={_short(field)}" for name, field in fields if field not in ("", (), None, {}, b""))
    return f"{type(value).__name__}({', '.join(shown)})"


def _cut(text: str, length: int = 80) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"
