"""Where the index enters filters: everything that is known about one field, by what it may be.

Hash tables for equality, one for each kind that casts lead to; hash tables by length for prefixes; sorted bounds for
one-sided ranges; for intervals a grid per power of two: an interval lies in at most two cells of the grid that is as
coarse as it is wide, so an event meets it in one cell, and adding one moves no other.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Final, Generic, TypeAlias, TypeVar, assert_never

from tutti.filters.conditions import Absent, Begins, Between, Equals, Predicate, Present
from tutti.filters.values import (
    FaultRaised,
    Number,
    Value,
    absent,
    to_boolean,
    to_decimal,
    to_text,
    to_timestamp,
    value_of,
)
from tutti.limits import FILTER_PREFIX_MAX_CHARACTERS

T = TypeVar("T")
Entry: TypeAlias = Any  # what is found: anything with a hash that is no list
Entries: TypeAlias = Any | list[Entry]  # one, as is usual, without a list around it
Found: TypeAlias = set[Entry]

_LARGEST: Final = 2.0**900  # numbers beyond it share a cell; far enough from overflow for every grid
_VALUES_EXPECTED: Final = 100  # that a field has, as long as the filters do not tell
_FINEST: Final = -20  # intervals narrower than 2**-20 share the cells of that width


class _Table(Generic[T]):
    """Entries by the value that leads to them."""

    __slots__ = ("entries", "total")

    def __init__(self) -> None:
        self.entries: dict[T, Entries] = {}
        self.total = 0

    def enter(self, value: T, entry: Entry) -> None:
        known = self.entries.get(value)
        if known is None:
            self.entries[value] = entry
        elif isinstance(known, list):
            known.append(entry)
        else:
            self.entries[value] = [known, entry]
        self.total += 1

    def remove(self, value: T, entry: Entry) -> None:
        known = self.entries[value]
        self.total -= 1
        if isinstance(known, list) and len(known) > 1:
            known.remove(entry)
        else:
            del self.entries[value]

    def collect(self, value: T, found: Found) -> None:
        known = self.entries.get(value)
        if known is None:
            return
        if isinstance(known, list):
            found.update(known)
        else:
            found.add(known)

    def share(self, value: T) -> float:
        """The part of all events that is expected to meet a value, if events are like the filters so far; while there
        are few, it is taken to be small, or no equality would ever be preferred to a range."""
        known = self.entries.get(value)
        count = 0 if known is None else len(known) if isinstance(known, list) else 1
        return (count + 1) / (self.total + len(self.entries) + _VALUES_EXPECTED)


class _Bounds:
    """One-sided ranges: entries in the order of their bound."""

    __slots__ = ("entries", "points")

    def __init__(self) -> None:
        self.points: list[float] = []
        self.entries: list[list[Entry]] = []

    def enter(self, bound: float, entry: Entry) -> None:
        place = bisect_left(self.points, bound)
        if place == len(self.points) or self.points[place] != bound:
            self.points.insert(place, bound)
            self.entries.insert(place, [])
        self.entries[place].append(entry)

    def remove(self, bound: float, entry: Entry) -> None:
        place = bisect_left(self.points, bound)
        self.entries[place].remove(entry)
        if not self.entries[place]:
            del self.points[place], self.entries[place]


class _Ranges:
    """Ranges over one kind of value, as floats: rounding keeps their order, so no event is missed."""

    __slots__ = ("cells", "from_", "levels", "to")

    def __init__(self) -> None:
        self.from_ = _Bounds()  # passed by values at or above
        self.to = _Bounds()  # passed by values at or below
        self.cells: _Table[tuple[int, int]] = _Table()
        self.levels: dict[int, int] = {}  # how many entries use each grid

    def __bool__(self) -> bool:
        return bool(self.levels or self.from_.points or self.to.points)

    def enter(self, low: float | None, high: float | None, entry: Entry) -> None:
        if low is not None and high is not None:
            level, cells = _grid_cells(low, high)
            self.levels[level] = self.levels.get(level, 0) + 1
            for cell in cells:
                self.cells.enter((level, cell), entry)
        elif low is not None:
            self.from_.enter(low, entry)
        elif high is not None:
            self.to.enter(high, entry)

    def remove(self, low: float | None, high: float | None, entry: Entry) -> None:
        if low is not None and high is not None:
            level, cells = _grid_cells(low, high)
            self.levels[level] -= 1
            if not self.levels[level]:
                del self.levels[level]
            for cell in cells:
                self.cells.remove((level, cell), entry)
        elif low is not None:
            self.from_.remove(low, entry)
        elif high is not None:
            self.to.remove(high, entry)

    def collect(self, value: float, found: Found) -> None:
        if self.from_.points:
            found.update(*self.from_.entries[: bisect_right(self.from_.points, value)])
        if self.to.points:
            found.update(*self.to.entries[bisect_left(self.to.points, value) :])
        for level in self.levels:
            self.cells.collect((level, math.floor(math.ldexp(value, -level))), found)

    def share(self, low: float | None, high: float | None) -> float:
        if low is None or high is None:
            return 0.5
        level, cells = _grid_cells(low, high)
        return sum(self.cells.share((level, cell)) for cell in cells)


def _grid_cells(low: float, high: float) -> tuple[int, range]:
    """The finest grid in which an interval takes no more than two cells, and those cells."""
    level = max(_FINEST, math.frexp(high - low)[1] - 1)
    while True:
        first, last = math.floor(math.ldexp(low, -level)), math.floor(math.ldexp(high, -level))
        if last - first <= 1:
            return level, range(first, last + 1)
        level += 1


def _as_float(value: Number | datetime) -> float:
    if isinstance(value, datetime):
        return value.timestamp()
    try:
        return max(-_LARGEST, min(_LARGEST, float(value)))
    except OverflowError:
        return _LARGEST if value > 0 else -_LARGEST


class Column:
    """All that is entered under one field."""

    def __init__(self, name: str, fetch: Callable[[Any], object] | None) -> None:
        self.name = name
        self.fetch = fetch
        self.text: _Table[str] = _Table()
        self.number: _Table[Number] = _Table()
        self.moment: _Table[datetime] = _Table()
        self.truth: _Table[bool] = _Table()  # looked up by the field cast to Boolean
        self.boolean: _Table[bool] = _Table()  # looked up by a field that is a Boolean
        self.prefixes: dict[int, _Table[str]] = {}
        self.numbers = _Ranges()
        self.moments = _Ranges()
        self.present: _Table[None] = _Table()
        self.absent: _Table[None] = _Table()

    @property
    def empty(self) -> bool:
        tables = (self.text, self.number, self.moment, self.truth, self.boolean, self.present, self.absent)
        return not (any(table.total for table in tables) or self.prefixes or self.numbers or self.moments)

    def enter(self, predicate: Predicate, entry: Entry) -> None:
        match predicate:
            case Equals():
                for table, value in self._places(predicate):
                    table.enter(value, entry)
            case Between():
                self._ranges(predicate).enter(*_bounds(predicate), entry)
            case Begins():
                prefix = _prefix(predicate)
                self.prefixes.setdefault(len(prefix), _Table()).enter(prefix, entry)
            case Present():
                self.present.enter(None, entry)
            case Absent():
                self.absent.enter(None, entry)
            case _:
                assert_never(predicate)

    def remove(self, predicate: Predicate, entry: Entry) -> None:
        match predicate:
            case Equals():
                for table, value in self._places(predicate):
                    table.remove(value, entry)
            case Between():
                self._ranges(predicate).remove(*_bounds(predicate), entry)
            case Begins():
                prefix = _prefix(predicate)
                table = self.prefixes[len(prefix)]
                table.remove(prefix, entry)
                if not table.total:
                    del self.prefixes[len(prefix)]
            case Present():
                self.present.remove(None, entry)
            case Absent():
                self.absent.remove(None, entry)
            case _:
                assert_never(predicate)

    def share(self, predicate: Predicate) -> float:
        """The part of all events that a predicate is expected to hold for."""
        match predicate:
            case Equals():
                return sum(table.share(value) for table, value in self._places(predicate))
            case Between():
                return self._ranges(predicate).share(*_bounds(predicate))
            case Begins():
                prefix = _prefix(predicate)
                return self.prefixes.get(len(prefix), _NO_PREFIXES).share(prefix)
            case Present():
                return 2.0  # whatever else there is, is better
            case Absent():
                return 1.0
            case _:
                assert_never(predicate)

    def collect(self, record: object, found: Found) -> None:
        raw = self.fetch(record) if self.fetch is not None else None
        if absent(raw):
            self.absent.collect(None, found)
            return
        self.present.collect(None, found)
        try:
            value = value_of(raw, self.name, 0)
        except FaultRaised:
            return  # a list or an object: it is there, and that is all a filter can say of it
        if isinstance(value, datetime):
            self._collect_moment(value, found)
        else:
            if self.text.total:
                _collect(self.text, value, to_text, found)
            if self.number.total or self.numbers:
                self._collect_number(value, found)
            if isinstance(value, str) and (self.moment.total or self.moments):
                self._collect_moment(value, found)
            self._collect_truth(value, found)
        if self.prefixes:
            self._collect_prefixes(value, found)

    def _collect_number(self, value: Value, found: Found) -> None:
        try:
            number = to_decimal(value, 0)
        except FaultRaised:
            return
        self.number.collect(number, found)
        if self.numbers:
            self.numbers.collect(_as_float(number), found)

    def _collect_moment(self, value: Value, found: Found) -> None:
        try:
            moment = to_timestamp(value, 0)
        except FaultRaised:
            return
        self.moment.collect(moment, found)
        if self.moments:
            self.moments.collect(_as_float(moment), found)

    def _collect_truth(self, value: Value, found: Found) -> None:
        if self.truth.total:
            _collect(self.truth, value, to_boolean, found)
        if self.boolean.total and isinstance(value, bool):
            self.boolean.collect(value, found)

    def _collect_prefixes(self, value: Value, found: Found) -> None:
        try:
            text = to_text(value, 0)
        except FaultRaised:
            return
        for length, table in self.prefixes.items():
            table.collect(text[:length], found)

    def _ranges(self, predicate: Between) -> _Ranges:
        return self.moments if predicate.temporal else self.numbers

    def _places(self, predicate: Equals) -> list[tuple[_Table[Any], Value]]:
        """Where an equality is entered, so that every field that is equal after its casts leads there."""
        places: dict[tuple[int, Value], tuple[_Table[Any], Value]] = {}
        for value in predicate.values:
            for table, cast in self._casts(value, values_cast=predicate.values_cast):
                try:
                    key = cast(value, 0)
                except FaultRaised:
                    continue
                places[id(table), key] = (table, key)
        return list(places.values())

    def _casts(self, value: Value, *, values_cast: bool) -> Iterable[tuple[_Table[Any], Callable[[Value, int], Value]]]:
        if values_cast:
            return (
                (self.text, to_text),
                (self.number, to_decimal),
                (self.moment, to_timestamp),
                (self.boolean, to_boolean),
            )
        match value:
            case bool():
                return ((self.truth, to_boolean),)
            case str():
                return ((self.text, to_text), (self.moment, to_timestamp))  # beside a timestamp, a text is cast to one
            case datetime():
                return ((self.moment, to_timestamp),)
            case _:
                return ((self.number, to_decimal),)


def _collect(table: _Table[T], value: Value, cast: Callable[[Value, int], T], found: Found) -> None:
    try:
        key = cast(value, 0)
    except FaultRaised:
        return
    table.collect(key, found)


def _bounds(predicate: Between) -> tuple[float | None, float | None]:
    low, high = predicate.low, predicate.high
    return (None if low is None else _as_float(low)), (None if high is None else _as_float(high))


def _prefix(predicate: Begins) -> str:
    return predicate.prefix[:FILTER_PREFIX_MAX_CHARACTERS]


_NO_PREFIXES: Final[_Table[str]] = _Table()
UNUSED: Final = Column("", None)  # what a field tells before anything was entered
