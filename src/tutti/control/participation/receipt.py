"""Which events of the transaction have come, which one is being handled, and which wait for what."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping

from tutti.model.transaction import Consumed, Counts, counted


class Receipt:
    """Numbers count per publisher and type, from 1."""

    __slots__ = ("_held", "_queue", "_seen", "running")

    def __init__(self, handled: Iterable[Consumed] = ()) -> None:
        self._seen: dict[tuple[str, str], set[int]] = {}
        self._held: list[tuple[Consumed, bool]] = []  # before the begin, after a vote, or deferred (then True)
        self._queue: deque[Consumed] = deque()
        self.running: Consumed | None = None
        for event in handled:
            self._seen.setdefault((event.publisher, event.type), set()).add(event.number)

    def is_new(self, event: Consumed) -> bool:
        return event.number not in self._seen.get((event.publisher, event.type), ())

    def take(self, event: Consumed, *, deferred: bool) -> None:
        """Nothing is handled before `release`."""
        self._seen.setdefault((event.publisher, event.type), set()).add(event.number)
        self._held.append((event, deferred))

    def release(self, *, work_ended: bool) -> None:
        """What waited may be handled; deferred events only if the work has ended."""
        self._queue.extend(event for event, deferred in self._held if work_ended or not deferred)
        self._held = [] if work_ended else [item for item in self._held if item[1]]

    def next(self) -> Consumed | None:
        """The event to be handled now; None if one is at work, or none is there."""
        if self.running is not None or not self._queue:
            return None
        self.running = self._queue.popleft()
        return self.running

    def finish(self, event: Consumed) -> bool:
        """Whether this was the one at work; then none is."""
        if event != self.running:
            return False
        self.running = None
        return True

    @property
    def idle(self) -> bool:
        return self.running is None and not self._queue

    @property
    def holds(self) -> bool:
        return bool(self._held)

    def counts(self) -> Counts:
        counts: Counts = {}
        for (publisher, event_type), numbers in sorted(self._seen.items()):
            counts.setdefault(publisher, {})[event_type] = len(numbers)
        return counts

    def missing(
        self, counts: Mapping[str, Mapping[str, int]], types: Iterable[str]
    ) -> Iterator[tuple[str, str, tuple[int, ...]]]:
        """What was counted and did not come: publisher, type, numbers."""
        for event_type in types:
            for publisher in sorted(counts):
                seen = self._seen.get((publisher, event_type), set())
                numbers = range(1, counted(counts, publisher, event_type) + 1)
                if lost := tuple(number for number in numbers if number not in seen):
                    yield publisher, event_type, lost

    def surplus(self, counts: Mapping[str, Mapping[str, int]], types: Iterable[str]) -> bool:
        """Whether something came that was not counted."""
        handled = set(types)
        return any(
            event_type in handled and max(numbers) > counted(counts, publisher, event_type)
            for (publisher, event_type), numbers in self._seen.items()
        )
