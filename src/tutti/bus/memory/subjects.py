"""What is a subject, what a filter of subjects, and which filters meet."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from tutti.errors import Refused

is_subject: Final = re.compile(r"[^\s\x00.*>]+(?:\.[^\s\x00.*>]+)*").fullmatch
_is_filter: Final = re.compile(r"(?:(?:\*|[^\s\x00.*>]+)\.)*(?:\*|>|[^\s\x00.*>]+)").fullmatch

Matches = Callable[[str], object]


def check_subject(subject: str) -> None:
    if not is_subject(subject):
        raise Refused(
            f"{subject!r} is not a subject", hint="tokens between dots, without spaces, wildcards and empty tokens"
        )


def matcher(subjects: Sequence[str]) -> Matches:
    """Whether a subject matches one of the filters; no filter at all lets everything through."""
    for subject in subjects:
        if not _is_filter(subject):
            raise Refused(f"{subject!r} is not a filter of subjects", hint="'*' is one token, '>' the rest")
    if not subjects or ">" in subjects:
        return lambda _subject: True
    return re.compile("|".join(_pattern(subject) for subject in subjects)).fullmatch


def _pattern(subject: str) -> str:
    words = {"*": r"[^.]+", ">": r".+"}
    return r"\.".join(words.get(token) or re.escape(token) for token in subject.split("."))


def queue_of(subject: str) -> str:
    """`<namespace>.queue.<queue>`, whatever follows."""
    return ".".join(subject.split(".", 3)[:3])


def overlap(some: Sequence[str], others: Sequence[str]) -> bool:
    """Whether a subject exists that both sides would take."""
    return any(_meet(one.split("."), other.split(".")) for one in some for other in others)


def _meet(one: list[str], other: list[str]) -> bool:
    for mine, theirs in zip(one, other, strict=False):
        if ">" in (mine, theirs):
            return True
        if mine != theirs and "*" not in (mine, theirs):
            return False
    return len(one) == len(other)
