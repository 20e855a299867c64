"""The numbers that a publisher gives its events, so that a loss in the log is noticed."""

from __future__ import annotations

from collections.abc import Sequence


class Numbering:
    """Numbers for (this publisher, exact subject), starting at 1. A number that was refused is given again if nothing
    behind it was stored, so that a refusal leaves no hole for subscribers to worry about."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}
        self._refused: dict[str, set[int]] = {}

    def __len__(self) -> int:
        return len(self._next)

    def take(self, subject: str) -> int:
        number = self._next.get(subject, 1)
        self._next[subject] = number + 1
        return number

    def take_all(self, subjects: Sequence[str]) -> list[int]:
        """A number for each, in this order."""
        following = self._next
        numbers = []
        for subject in subjects:
            number = following.get(subject, 1)
            following[subject] = number + 1
            numbers.append(number)
        return numbers

    def give_back(self, subject: str, number: int) -> None:
        refused = self._refused.setdefault(subject, set())
        refused.add(number)
        while self._next[subject] - 1 in refused:
            self._next[subject] -= 1
            refused.discard(self._next[subject])
        if not refused:
            del self._refused[subject]
