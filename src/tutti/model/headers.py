"""Headers as text: lines of `Name: value`, each ended by CR LF, as they stand on the wire.

Putting headers together and taking them apart is most of what a small event costs, and few who get a record look at
them. So a block of lines travels as it is, and becomes a mapping when somebody looks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping


class HeaderText(Mapping[str, str]):
    """The mapping that the lines stand for. Of a repeated name the first value counts; a line without a colon is left
    out: a stranger's message must not stop a reader."""

    __slots__ = ("_fields", "text")

    def __init__(self, text: str) -> None:
        self.text = text

    def __getitem__(self, name: str) -> str:
        return self.fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __repr__(self) -> str:
        return f"HeaderText({self.text!r})"

    @property
    def fields(self) -> dict[str, str]:
        try:
            return self._fields
        except AttributeError:
            self._fields: dict[str, str] = fields_in(self.text)
            return self._fields


def fields_in(text: str) -> dict[str, str]:
    """What the lines say."""
    lines = text.removesuffix("\r\n").split("\r\n")
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        fields[name] = value
    names = "".join(fields)
    common = len(fields) == len(lines) and ":" not in names and "" not in fields and "" not in fields.values()
    if common and ":  " not in text and ": \t" not in text:
        return fields
    fields = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon and name:
            fields.setdefault(name, value.lstrip(" \t"))
    return fields
