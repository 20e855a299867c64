"""Who waits for an answer, and until when?

1. Every request is answered once: with the decision, or, when its time is up, with what it waits for.
2. A commit waits until its time-out; an abort as long as it takes.
3. When the last commit has been given up nobody wants one any more, and none may be proposed.
"""

from __future__ import annotations

from tutti.control.transaction.messages import Answer, CommitAnswer


class Requests:
    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until: dict[int, float | None] = {}  # by request; None: as long as it takes

    def __bool__(self) -> bool:
        return bool(self._until)

    def wait(self, request: int, until: float | None) -> None:
        self._until[request] = until

    @property
    def for_commit(self) -> bool:
        return any(until is not None for until in self._until.values())

    @property
    def wake_at(self) -> float | None:
        return min((until for until in self._until.values() if until is not None), default=None)

    def answer_all(self, answer: CommitAnswer) -> list[Answer]:
        answers = [Answer(request, answer) for request in self._until]
        self._until.clear()
        return answers

    def give_up(self, now: float) -> list[int]:
        """Those whose time is up; they wait no longer, and must be answered."""
        due = [request for request, until in self._until.items() if until is not None and now >= until]
        for request in due:
            del self._until[request]
        return due
