"""Patterns of subjects: `*` stands for one token, `>` for one or more at the end.

A consumer's filters must not overlap (the servers refuse them), but a reader's may. `disjoint` makes them so: what
another filter covers is left out, and two that overlap become one that is wider than both; the reader then drops what
only the wider one matches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Pattern = tuple[str, ...]  # the tokens


def parsed(pattern: str) -> Pattern:
    return tuple(pattern.split("."))


def matches(pattern: Pattern, subject: Sequence[str]) -> bool:
    for position, part in enumerate(pattern):
        if part == ">":
            return len(subject) > position
        if position >= len(subject) or (part not in ("*", subject[position])):
            return False
    return len(pattern) == len(subject)


def overlap(one: Pattern, other: Pattern) -> bool:
    """Is there a subject that both match?"""
    for mine, yours in zip(one, other, strict=False):
        if ">" in (mine, yours):
            return True
        if mine != yours and "*" not in (mine, yours):
            return False
    return len(one) == len(other)


def widened(one: Pattern, other: Pattern) -> Pattern:
    """The narrowest pattern that matches whatever one of them matches."""
    tokens: list[str] = []
    for mine, yours in zip(one, other, strict=False):
        if ">" in (mine, yours):
            return (*tokens, ">")
        tokens.append(mine if mine == yours else "*")
    if len(one) == len(other):
        return tuple(tokens)
    # The shorter one ends here. To reach past its end, its last token gives way.
    return (*tokens[:-1], ">")


def disjoint(patterns: Iterable[str]) -> tuple[str, ...]:
    """Patterns without overlap that together match at least what the given ones do."""
    result: list[Pattern] = []
    for pattern in sorted({parsed(pattern) for pattern in patterns}):
        wide = pattern
        while clash := next((other for other in result if overlap(other, wide)), None):
            result.remove(clash)
            wide = widened(clash, wide)
        result.append(wide)
    return tuple(".".join(pattern) for pattern in sorted(result))
