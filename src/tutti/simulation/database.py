"""What a member's database holds: work in sessions, prepared branches, rows that others see, and barrier rows.

Sessions die with their process; everything else is durable. `place` is a member's hash, or `own:<tx>`."""

from __future__ import annotations

from collections.abc import Iterable

from tutti.model.transaction import Consumed
from tutti.simulation.facts import Applied, Committed, Prepared, RolledBack, Undone
from tutti.simulation.ground import Ground

Branch = tuple[str, int]  # place and round


class Database:
    def __init__(self, name: str, ground: Ground) -> None:
        self._name, self._ground = name, ground
        self._sessions: dict[Branch, list[Consumed]] = {}
        self._prepared: dict[Branch, tuple[str, tuple[Consumed, ...]]] = {}
        self._rows: dict[tuple[str, Consumed], None] = {}
        self._barrier: set[tuple[str, Consumed]] = set()

    def lose_sessions(self) -> None:
        self._sessions.clear()

    def prepared(self) -> list[tuple[str, str, int]]:
        """Transaction, place and round of every branch that waits."""
        return [(tx, place, number) for (place, number), (tx, _) in self._prepared.items()]

    def work(self, place: str, number: int, event: Consumed) -> None:
        self._sessions.setdefault((place, number), []).append(event)

    def prepare(self, tx: str, place: str, number: int) -> None:
        if (place, number) not in self._prepared:
            self._prepared[place, number] = (tx, tuple(self._sessions.pop((place, number), ())))
            self._ground.see(self._name, Prepared(tx, place, number))

    def commit(self, tx: str, place: str, rounds: Iterable[int]) -> None:
        """A branch that does not exist any more was committed before: the decision is known."""
        for number in rounds:
            found = self._prepared.pop((place, number), None)
            if found is None:
                continue
            self._ground.see(self._name, Committed(tx, place, number))
            for event in found[1]:
                self._apply(tx, place, event, prepared=True)

    def roll_back(self, tx: str, place: str, rounds: Iterable[int]) -> None:
        for number in rounds:
            self._sessions.pop((place, number), None)
            if self._prepared.pop((place, number), None) is not None:
                self._ground.see(self._name, RolledBack(tx, place, number))

    def commit_session(self, tx: str, place: str, number: int) -> None:
        """What a compensatable member does when it votes."""
        for event in self._sessions.pop((place, number), ()):
            self._apply(tx, place, event, prepared=False)

    def commit_event(self, tx: str, place: str, event: Consumed) -> bool:
        """With the barrier row: whether it was not undone, or done, before."""
        if (place, event) in self._barrier or (place, event) in self._rows:
            return False
        self._apply(tx, place, event, prepared=False)
        return True

    def compensate(self, tx: str, place: str, event: Consumed) -> None:
        """Behind the barrier row: once, and only what is there."""
        if self.undone_before(place, event):
            return
        self._barrier.add((place, event))
        if self._rows.pop((place, event), 0) is None:
            self._ground.see(self._name, Undone(tx, place, event))

    def undone_before(self, place: str, event: Consumed) -> bool:
        return (place, event) in self._barrier

    def _apply(self, tx: str, place: str, event: Consumed, *, prepared: bool) -> None:
        self._rows[place, event] = None
        self._ground.see(self._name, Applied(tx, place, event, prepared))
