"""Does this event concern the subscription?

1. Without a filter, every event of the type does.
2. With a filter, those for which it is true. A filter that is false, or has an error, turns the event away; an error is
   counted, because it is usually a mistake in the filter.
3. With an index of many filters, those that at least one of them lets pass; the matching keys go with the event.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Final

import msgspec

from tutti.filters import Evaluator, Filter, Index, compile_filter
from tutti.filters.resolvers import EventResolver, Record

ALL: Final[frozenset[Hashable]] = frozenset()


class Seen(msgspec.Struct, gc=False):
    """What a filter looks at: the event's fields, and its context attributes."""

    event: object
    attributes: Mapping[str, str]


class Matcher:
    """`event` is the class of the events, so that names are settled once; None if they are of any kind."""

    def __init__(self, wanted: Filter | None, index: Index[Hashable] | None, event: type | None = None) -> None:
        self._evaluator: Evaluator[Record] | None = (
            compile_filter(wanted.expression, EventResolver(event)) if wanted is not None else None
        )
        self._index = index
        self.errors = 0

    @property
    def open(self) -> bool:
        """Everything passes."""
        return self._evaluator is None and self._index is None

    def match(self, seen: Record) -> frozenset[Hashable] | None:
        """None if the event is turned away; else the keys of the index that it passes (none without an index)."""
        if self._index is not None:
            return frozenset(self._index.match(seen)) or None
        if self._evaluator is None or self._evaluator.matches(seen):
            return ALL
        if self._evaluator.evaluate(seen).error is not None:
            self.errors += 1
        return None
