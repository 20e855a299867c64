"""The code in a Markdown page, and what its comments ask for.

A fence may be preceded by one HTML comment:

    <!-- not run: reason -->      python: compiled only
    <!-- file: desk.py -->        python: compiled, and written to the page's working folder
    <!-- run -->                  console: its `$` lines are run, and the output shown must be there, in that order

A fence inside an HTML comment is invisible to readers and run like any other: preparations belong there.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

_OPEN: Final = re.compile(r"^(?P<indent>\s*)(?P<fence>`{3,})(?P<language>[\w-]*)\s*$")
_COMMENT: Final = re.compile(r"^\s*<!--\s*(?P<word>not run|file|run)\s*(?::\s*(?P<value>.*?))?\s*-->\s*$")

Wish = Literal["", "not run", "file", "run"]


@dataclass(frozen=True)
class Block:
    """One fence. `line` is that of its first line of code."""

    language: str
    line: int
    code: str
    wish: Wish = ""
    value: str = ""  # the reason, or the file's name


@dataclass(frozen=True)
class Command:
    line: int
    text: str
    expected: tuple[str, ...]


class WrongPage(Exception):
    """The page promises what does not happen, or cannot be read; says where."""


def blocks(path: Path) -> list[Block]:
    return list(_blocks(path, path.read_text().splitlines()))


def _blocks(path: Path, lines: list[str]) -> Iterator[Block]:
    number = 0
    before = ""
    while number < len(lines):
        found = _OPEN.match(lines[number])
        if not found:
            before = lines[number] if lines[number].strip() else before
            number += 1
            continue
        first = number + 1
        last = _closing(path, lines, first, found["fence"])
        wish, value = _wish(path, first, before)
        code = textwrap.dedent("\n".join(line.removeprefix(found["indent"]) for line in lines[first:last]) + "\n")
        yield Block(found["language"], first + 1, code, wish, value)
        number, before = last + 1, ""


def _closing(path: Path, lines: list[str], first: int, fence: str) -> int:
    for number in range(first, len(lines)):
        if lines[number].strip() == fence:
            return number
    raise WrongPage(f"{path}:{first} this fence is never closed")


def _wish(path: Path, line: int, before: str) -> tuple[Wish, str]:
    found = _COMMENT.match(before)
    if not found:
        return "", ""
    value = found["value"] or ""
    match found["word"]:
        case "not run" if value:
            return "not run", value
        case "file" if value and "/" not in value:
            return "file", value
        case "run":
            return "run", ""
        case word:
            raise WrongPage(
                f"{path}:{line} the comment {word!r} needs a {'reason' if word == 'not run' else 'file name'}"
            )


def commands(block: Block) -> list[Command]:
    """The `$` lines of a console block, each with the output that the page shows below it."""
    found: list[Command] = []
    for offset, line in enumerate(block.code.splitlines()):
        if line.startswith("$ "):
            found.append(Command(block.line + offset, line.removeprefix("$ "), ()))
        elif found and line.strip():
            found[-1] = Command(found[-1].line, found[-1].text, (*found[-1].expected, line.strip()))
    return found


def missing(expected: tuple[str, ...], output: str) -> str | None:
    """The first expected line that does not appear, in order. `…` stands for anything, within a line or as a line."""
    rest = [" ".join(line.split()) for line in output.splitlines()]
    for line in expected:
        pattern = ".*".join(re.escape(part) for part in " ".join(line.split()).split("…"))
        index = next((number for number, shown in enumerate(rest) if re.fullmatch(pattern, shown)), None)
        if index is None and line != "…":
            return line
        rest = rest[index + 1 :] if index is not None and line != "…" else rest
    return None
