from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from tutti.filters.columns import UNUSED, Column
from tutti.filters.conditions import Absent, Begins, Between, Equals, Predicate, Present
from tutti.limits import FILTER_PREFIX_MAX_CHARACTERS

NEW_YEAR = datetime(2024, 1, 1, tzinfo=UTC)


def column(**entries: Predicate) -> Column:
    made = Column("a", lambda record: record)
    for name, predicate in entries.items():
        made.enter(predicate, name)
    return made


def found(made: Column, value: object) -> set[Any]:
    entries: set[Any] = set()
    made.collect(value, entries)
    return entries


@pytest.mark.parametrize(
    ("predicate", "met", "unmet"),
    [
        (Equals("a", ("5",)), ["5", 5], ["05", 6, None]),
        (Equals("a", ("2024-01-01",)), ["2024-01-01", NEW_YEAR], [5]),
        (Equals("a", (5,)), [5, "5", "05", Decimal("5.0"), 5.0], [6, "x", NEW_YEAR]),
        (Equals("a", (1,)), [1, True, "1"], [False, "true"]),
        (Equals("a", (True,)), [True, 7, "TRUE", Decimal("0.1")], [False, 0, "yes"]),
        (Equals("a", (NEW_YEAR,)), [NEW_YEAR, "2024-01-01T00:00:00Z"], ["x", 5]),
        (Equals("a", ("05",), values_cast=True), ["05", 5], ["6", 6]),
        (Equals("a", ("TRUE",), values_cast=True), ["TRUE", True], ["true", 1]),
        (Equals("a", (7, 8), values_cast=True), [7, "8", True], [9, False]),
        (Between("a", 5, None), [5, 6, "7", 5.5, 10**400], [4, "x", -(10**400), NEW_YEAR]),
        (Between("a", None, 5), [5, -6, True], [6]),
        (Between("a", 5, 7), [5, 7, Decimal("6.5")], [100, -100]),
        (Between("a", 5, 5), [5], [9]),
        (Between("a", -(10**400), 10**400), [0, 1], ["x"]),
        (Between("a", NEW_YEAR, None), [NEW_YEAR, "2025-01-01"], ["2023-01-01", 5]),
        (Begins("a", "ab"), ["ab", "abc"], ["a", "b"]),
        (Begins("a", "2024-01"), [NEW_YEAR], [NEW_YEAR.replace(year=2023)]),
        (Begins("a", "x" * 100), ["x" * 100], ["x" * (FILTER_PREFIX_MAX_CHARACTERS - 1)]),
        (Present("a"), [0, "", [1]], [None]),
        (Absent("a"), [None], [0, "", [1]]),
    ],
)
def test_a_value_leads_to_every_predicate_it_can_satisfy(
    predicate: Predicate, met: list[object], unmet: list[object]
) -> None:
    made = column(entry=predicate)
    assert [value for value in met if not found(made, value)] == []
    assert [value for value in unmet if found(made, value)] == []


def test_what_was_entered_can_be_removed() -> None:
    predicates: list[Predicate] = [
        Equals("a", ("5", 5, True)),
        Equals("a", ("5", 5, True), values_cast=True),
        Between("a", 1, None),
        Between("a", None, 9),
        Between("a", 1, 9),
        Between("a", NEW_YEAR, None),
        Begins("a", "5"),
        Present("a"),
        Absent("a"),
    ]
    made = column()
    for predicate in predicates:
        for entry in range(3):
            made.enter(predicate, entry)
    assert found(made, 5) == {0, 1, 2}
    for entry in (1, 0, 2):
        assert not made.empty
        for predicate in predicates:
            made.remove(predicate, entry)
        assert entry not in found(made, 5)
    assert made.empty


def test_intervals_are_met_in_few_cells() -> None:
    made = column()
    for number in range(1_000):
        made.enter(Between("a", number, Decimal(number) + Decimal("0.5")), number)
    for value in (0, 17, Decimal("17.25"), Decimal("999.5")):
        assert int(value) in found(made, value)
        assert len(found(made, value)) <= 4


def test_shares_prefer_what_few_filters_have() -> None:
    made = column()
    for number in range(500):
        made.enter(Equals("a", ("popular" if number % 2 else f"rare{number}",)), number)
    popular, rare = (made.share(Equals("a", (value,))) for value in ("popular", "rare2"))
    assert rare < popular < made.share(Between("a", 1, None)) < made.share(Absent("a")) < made.share(Present("a"))
    assert UNUSED.share(Equals("a", (1,))) < UNUSED.share(Between("a", 1, None))


def test_a_field_that_no_record_has_is_absent() -> None:
    made = Column("a", None)
    made.enter(Absent("a"), "entry")
    made.enter(Present("a"), "other")
    assert found(made, "whatever") == {"entry"}
