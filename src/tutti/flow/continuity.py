"""Is anything missing?

A publisher numbers its events per exact subject: 1, 2, 3, … A number that is skipped in the log was lost there, or was
never stored. One `Continuity` for each partition while it is ours: what another owner read in between is not missing.

1. The first event of a publisher on a subject is number 1. One more than the last is continuous.
2. More than one above the last is a gap; it is reported once.
3. At or below the last is a repeat, if it stands behind the last in the log: a duplicate, or a publisher that tried
   again. If it does not stand behind, we only read it again, and it was judged before.
4. The first number that we see may be above 1: the earlier ones were before our time. It is *unproven* until somebody
   looks back in the log and says what stands there (`resolve`). What follows is judged in the meantime.
5. Memory is limited: who was not heard of for longest is forgotten, and is unproven when he is heard of again.

The life of a (publisher, subject): unknown → known (number 1), or unknown → unproven → known (resolved) → unknown
(forgotten).
"""

from __future__ import annotations

from typing import Final

import msgspec

from tutti.errors import invariant
from tutti.limits import CONTINUITY_MAX_COUNT

# Verdicts


class Continuous(msgspec.Struct, frozen=True, gc=False):
    """Nothing is missing."""


class Gap(msgspec.Struct, frozen=True, gc=False):
    """These numbers are missing, both ends included."""

    publisher: str
    subject: str
    first_missing: int
    last_missing: int


class Unproven(msgspec.Struct, frozen=True, gc=False):
    """The first event we see of this publisher on this subject: look back in the log, then say `resolve`."""

    publisher: str
    subject: str
    number: int


class Repeat(msgspec.Struct, frozen=True, gc=False):
    """This number was there before."""

    publisher: str
    subject: str
    number: int


Verdict = Continuous | Gap | Unproven | Repeat

CONTINUOUS: Final = Continuous()

# State


class _Line(msgspec.Struct, gc=False):
    """What is known of one publisher on one subject."""

    number: int  # the last
    position: int  # where the last stands in the log
    unproven: int  # the first that we saw, until it is resolved; 0: proven


_Key = tuple[str, str]


class Continuity:
    """Two generations instead of a sorted list: whoever is heard of moves to the young one; when that is full, it
    becomes the old one, and the old one is forgotten. So at least the latest half of the limit is remembered, and
    following a line that is young costs one look."""

    __slots__ = ("_most", "_old", "_young")

    def __init__(self, limit: int = CONTINUITY_MAX_COUNT) -> None:
        invariant(limit >= 2, f"continuity needs room for two generations, not {limit}")
        self._most = limit // 2
        self._young: dict[_Key, _Line] = {}
        self._old: dict[_Key, _Line] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def observe(self, publisher: str, subject: str, number: int, position: int) -> Verdict:
        """An event was read at this position of the log."""
        key = (publisher, subject)
        line = self._young.get(key)
        if line is None:
            line = self._old.pop(key, None)
            if line is None:
                return self._meet(key, number, position)
            self._remember(key, line)
        last = line.number
        if number == last + 1:
            line.number = number
            line.position = position
            return CONTINUOUS
        if position <= line.position:
            return CONTINUOUS
        line.position = position
        if number <= last:
            return Repeat(publisher, subject, number)
        line.number = number
        return Gap(publisher, subject, last + 1, number - 1)

    def resolve(self, publisher: str, subject: str, previous: int | None) -> Continuous | Gap:
        """What stands in the log before the first event that we saw: its number; 0 if the log is complete and holds
        none; None if that cannot be known (it was purged). Counts once; what is not waited for is continuous."""
        line = self._young.get((publisher, subject)) or self._old.get((publisher, subject))
        if line is None or not line.unproven:
            return CONTINUOUS
        first, line.unproven = line.unproven, 0
        if previous is None or previous >= first - 1:
            return CONTINUOUS
        return Gap(publisher, subject, previous + 1, first - 1)

    def _meet(self, key: _Key, number: int, position: int) -> Verdict:
        if number <= 1:
            self._remember(key, _Line(number, position, 0))
            return CONTINUOUS
        self._remember(key, _Line(number, position, number))
        return Unproven(*key, number)

    def _remember(self, key: _Key, line: _Line) -> None:
        if len(self._young) >= self._most:
            self._old, self._young = self._young, {}
        self._young[key] = line

    def check(self) -> None:
        """Raises `InvariantViolated` if the state contradicts itself."""
        invariant(len(self._young) <= self._most, "more young lines than the limit")
        invariant(len(self._old) <= self._most, "more old lines than the limit")
        invariant(not self._young.keys() & self._old.keys(), "a line in two generations")
        for line in (*self._young.values(), *self._old.values()):
            invariant(0 <= line.unproven <= line.number, "unproven beyond the last number")
