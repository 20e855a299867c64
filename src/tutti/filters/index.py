"""Which of very many filters does an event pass?

1. Each way in which a filter can come true (conditions.py) is entered under one of its predicates: the one that, going
   by what is in the index already, the fewest events will meet. Equal filters are entered once.
2. An event is looked up field by field; what is found, and what could be entered nowhere, is evaluated.

So the result is always that of evaluating every filter: the look-up only leaves out filters that cannot pass.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any, Generic, TypeVar

from tutti.filters.columns import UNUSED, Column
from tutti.filters.conditions import Predicate, Way, ways
from tutti.filters.evaluate import Evaluator, compile_filter
from tutti.filters.expression import Expression, render
from tutti.filters.filter import Filter
from tutti.filters.resolvers import EventResolver, Resolver

K = TypeVar("K", bound=Hashable)


class _Rule(Generic[K]):
    """One filter and everybody who has it. `anchors` says where it was entered, None where it is evaluated always."""

    __slots__ = ("anchors", "evaluator", "key", "others", "text")

    def __init__(self, text: str, evaluator: Evaluator[Any], key: K) -> None:
        self.text = text
        self.evaluator = evaluator
        self.key = key
        self.others: set[K] | None = None  # most filters have one key: a set for each would be a third of the index
        self.anchors: tuple[Predicate, ...] | None = None

    def share_with(self, key: K) -> None:
        if self.others is None:
            self.others = set()
        self.others.add(key)

    def leave(self, key: K) -> bool:
        """Take a key away; whether it was the last."""
        if self.others:
            if key == self.key:
                self.key = self.others.pop()
            else:
                self.others.discard(key)
            return False
        return True


class Index(Generic[K]):
    """Filters by key. Adding and discarding take about as long as parsing; neither may run during a match."""

    def __init__(self, resolver: Resolver[Any] | None = None) -> None:
        self._resolver = _Shared(resolver if resolver is not None else EventResolver())
        self._rules: dict[str, _Rule[K]] = {}
        self._by_key: dict[K, _Rule[K]] = {}
        self._columns: dict[str, Column] = {}
        self._always: dict[_Rule[K], None] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def __contains__(self, key: object) -> bool:
        return key in self._by_key

    def __iter__(self) -> Iterator[K]:
        return iter(self._by_key)

    def add(self, key: K, wanted: str | Filter | Expression) -> None:
        """Enter a filter; a filter that the key had before is replaced. Raises FilterError for a text that is none."""
        expression = Filter.parse(wanted).expression if isinstance(wanted, str) else wanted
        expression = expression.expression if isinstance(expression, Filter) else expression
        text = render(expression)
        self.discard(key)
        rule = self._rules.get(text)
        if rule is None:
            rule = self._rules[text] = self._entered(
                _Rule(text, compile_filter(expression, self._resolver), key), expression
            )
        else:
            rule.share_with(key)
        self._by_key[key] = rule

    def discard(self, key: K) -> None:
        """Forget a key, if it is known."""
        rule = self._by_key.pop(key, None)
        if rule is not None and rule.leave(key):
            del self._rules[rule.text]
            self._remove(rule)

    def match(self, record: object) -> set[K]:
        """The keys whose filters let the record pass."""
        found: set[_Rule[K]] = set(self._always)
        for column in self._columns.values():
            column.collect(record, found)
        passed: set[K] = set()
        for rule in found:
            if rule.evaluator.matches(record):
                passed.add(rule.key)
                if rule.others is not None:
                    passed |= rule.others
        return passed

    def _entered(self, rule: _Rule[K], expression: Expression) -> _Rule[K]:
        found = ways(expression)
        if () in found:
            self._always[rule] = None
            return rule
        rule.anchors = tuple(self._most_selective(way) for way in found)
        for anchor in rule.anchors:
            self._column(anchor.name).enter(anchor, rule)
        return rule

    def _remove(self, rule: _Rule[K]) -> None:
        if rule.anchors is None:
            del self._always[rule]
            return
        for anchor in rule.anchors:
            column = self._columns[anchor.name]
            column.remove(anchor, rule)
            if column.empty:
                del self._columns[anchor.name]

    def _most_selective(self, way: Way) -> Predicate:
        return min(way, key=lambda predicate: self._columns.get(predicate.name, UNUSED).share(predicate))

    def _column(self, name: str) -> Column:
        column = self._columns.get(name)
        if column is None:
            column = self._columns[name] = Column(name, self._resolver.accessor(name))
        return column


class _Shared:
    """A resolver that gives every filter the same accessor for a name."""

    def __init__(self, resolver: Resolver[Any]) -> None:
        self._resolver = resolver
        self._known: dict[str, Callable[[Any], object] | None] = {}

    def accessor(self, name: str) -> Callable[[Any], object] | None:
        if name not in self._known:
            self._known[name] = self._resolver.accessor(name)
        return self._known[name]
