"""The patterns of LIKE: `%` is any text, `_` any one character, and `\\` before either of them takes its meaning away.

A pattern is cut at its `%` into segments. The first and the last are bound to the ends of the text; those between
float, and each is looked for from where the one before it ended, the leftmost place being always good enough. So
nothing is tried twice: a text is gone through once, whatever the pattern (no backtracking, and no regular expression).
A floating segment with `_` in it is found by running all of its positions at once, a bit each (Shift-And).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

Matcher: TypeAlias = Callable[[str], bool]
ANY: Final = None  # one character, whatever it is

_PIECE: Final = re.compile(r"\\[%_]|.", re.DOTALL)


class Pattern(msgspec.Struct, frozen=True):
    """The segments of a pattern: characters, None for any. A segment that is alone is the whole text."""

    segments: tuple[tuple[str | None, ...], ...]

    @property
    def prefix(self) -> str:
        """What every matching text begins with."""
        known = ""
        for character in self.segments[0]:
            if character is None:
                break
            known += character
        return known

    @property
    def exact(self) -> str | None:
        """The one text that matches, if there is only one."""
        return self.prefix if len(self.segments) == 1 and len(self.prefix) == len(self.segments[0]) else None

    @property
    def is_prefix(self) -> bool:
        """Whether it is some text and then `%`, nothing else."""
        return len(self.segments) == 2 and not self.segments[1] and ANY not in self.segments[0]

    def cost(self, text: str) -> int:
        """Characters gone through, at most: nothing to speak of unless a segment floats."""
        return sum(
            len(text) * (1 + len(segment) // 64 if ANY in segment else 1) for segment in self.segments[1:-1] if segment
        )

    @property
    def floats(self) -> bool:
        return any(self.segments[1:-1])


def pattern_of(text: str) -> Pattern:
    segments: list[tuple[str | None, ...]] = []
    current: list[str | None] = []
    for piece in _PIECE.findall(text):
        if piece == "%":
            segments.append(tuple(current))
            current = []
        else:
            current.append(ANY if piece == "_" else piece[-1])
    return Pattern((*segments, tuple(current)))


def matcher_of(pattern: Pattern) -> Matcher:
    """The quickest function for a pattern."""
    if pattern.exact is not None:
        return pattern.exact.__eq__
    if len(pattern.segments) == 1:
        return _fixed(pattern.segments[0])
    first, *middle, last = pattern.segments
    floating = [_finder(segment) for segment in middle if segment]
    if pattern.is_prefix:
        start = pattern.prefix
        return lambda text: text.startswith(start)
    return _general(first, floating, last)


def _fixed(segment: tuple[str | None, ...]) -> Matcher:
    fits = _at(segment)
    length = len(segment)
    return lambda text: len(text) == length and fits(text, 0)


def _general(
    first: tuple[str | None, ...], floating: list[Callable[[str, int, int], int]], last: tuple[str | None, ...]
) -> Matcher:
    begins, ends = _at(first), _at(last)
    head, tail = len(first), len(last)

    def matches(text: str) -> bool:
        end = len(text) - tail
        if end < head or not begins(text, 0) or not ends(text, end):
            return False
        place = head
        for find in floating:
            place = find(text, place, end)
            if place < 0:
                return False
        return True

    return matches


def _at(segment: tuple[str | None, ...]) -> Callable[[str, int], bool]:
    """Whether a segment stands at a place of a text that is known to be long enough."""
    if ANY not in segment:
        whole = "".join(character for character in segment if character is not None)
        return lambda text, place: text.startswith(whole, place)
    known = [(offset, character) for offset, character in enumerate(segment) if character is not None]
    return lambda text, place: all(text[place + offset] == character for offset, character in known)


def _finder(segment: tuple[str | None, ...]) -> Callable[[str, int, int], int]:
    """Where the leftmost occurrence between two places ends, or -1."""
    if ANY in segment:
        return _shift_and(segment)
    whole = "".join(character for character in segment if character is not None)
    length = len(whole)

    def find(text: str, start: int, end: int) -> int:
        place = text.find(whole, start, end)
        return place + length if place >= 0 else -1

    return find


def _shift_and(segment: tuple[str | None, ...]) -> Callable[[str, int, int], int]:
    anywhere = sum(1 << offset for offset, character in enumerate(segment) if character is None)
    masks: dict[str, int] = {}
    for offset, character in enumerate(segment):
        if character is not None:
            masks[character] = masks.get(character, anywhere) | 1 << offset
    done = 1 << (len(segment) - 1)

    def find(text: str, start: int, end: int) -> int:
        alive = 0  # bit n: the last n + 1 characters fit the first n + 1 of the segment
        for place in range(start, end):
            alive = (alive << 1 | 1) & masks.get(text[place], anywhere)
            if alive & done:
                return place + 1
        return -1

    return find
