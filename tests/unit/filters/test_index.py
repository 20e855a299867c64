from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pytest

from tutti.errors import FilterError
from tutti.filters import EventResolver, Filter, Index, MappingResolver, parse


class Trade(msgspec.Struct):
    symbol: str
    price: Decimal


class Seen(msgspec.Struct):
    event: object
    attributes: dict[str, str]


def index(**filters: str) -> Index[str]:
    made: Index[str] = Index(MappingResolver())
    for key, text in filters.items():
        made.add(key, text)
    return made


@pytest.fixture
def mixed() -> Index[str]:
    return index(
        equality="symbol = 'IBM'",
        conjunction="symbol = 'IBM' AND price > 100",
        membership="symbol IN ('IBM', 'SAP')",
        interval="price >= 100 AND price < 110",
        open_range="price > 50",
        prefix="symbol LIKE 'I%'",
        disjunction="symbol = 'SAP' OR price < 10",
        negation="NOT (symbol = 'IBM')",
        opposite="NOT (price > 50)",
        computed="price * 2 > 250",
        constant="TRUE",
        impossible="FALSE",
        presence="EXISTS venue",
        absence="NOT EXISTS venue",
        error="symbol > 5",
    )


@pytest.mark.parametrize(
    ("record", "passed"),
    [
        (
            {"symbol": "IBM", "price": 105},
            "equality conjunction membership interval open_range prefix constant absence",
        ),
        (
            {"symbol": "SAP", "price": 130, "venue": "X"},
            "membership open_range disjunction negation computed constant presence",
        ),
        ({"symbol": "X", "price": 5}, "disjunction negation opposite constant absence"),
        ({"price": 5}, "opposite constant absence"),  # a missing symbol is an error in `symbol = … OR price < 10`
        ({"symbol": "SAP"}, "membership disjunction negation constant absence"),
        ({}, "constant absence"),
        ({"symbol": "7", "price": "105"}, "interval open_range negation constant absence error"),
        ({"symbol": [1], "price": None}, "constant absence"),
    ],
)
def test_keys_of_filters_that_pass(mixed: Index[str], record: dict[str, Any], passed: str) -> None:
    assert mixed.match(record) - {"error"} == set(passed.split()) - {"error"}
    assert ("error" in mixed.match(record)) == (record.get("symbol") == "7")


def test_replaced_and_discarded(mixed: Index[str]) -> None:
    assert len(mixed) == 15
    mixed.add("equality", "symbol = 'SAP'")
    assert len(mixed) == 15
    assert "equality" not in mixed.match({"symbol": "IBM"})
    assert "equality" in mixed.match({"symbol": "SAP"})
    for key in list(mixed):
        mixed.discard(key)
        mixed.discard(key)
        assert key not in mixed
    assert mixed.match({"symbol": "IBM", "price": 105}) == set()
    assert not mixed


def test_equal_filters_share_one_entry() -> None:
    made: Index[int] = Index(MappingResolver())
    for key in range(100):
        made.add(key, "a = 1 AND b = 2" if key % 2 else "(a) = 1   and b = 2")
    assert made.match({"a": 1, "b": 2}) == set(range(100))
    for key in range(0, 100, 3):
        made.discard(key)
    assert made.match({"a": 1, "b": 2}) == {key for key in range(100) if key % 3}


def test_filters_come_as_text_as_filter_or_as_expression() -> None:
    made: Index[str] = Index(EventResolver(Trade))
    made.add("text", "symbol = 'IBM'")
    made.add("filter", Filter.parse("price > 100"))
    made.add("expression", parse("source LIKE '/desk%'"))
    assert made.match(Seen(Trade("IBM", Decimal(128)), {"source": "/desk/1"})) == {"text", "filter", "expression"}


def test_a_text_that_is_no_filter_changes_nothing() -> None:
    made = index(a="x = 1")
    with pytest.raises(FilterError):
        made.add("a", "x = ")
    assert made.match({"x": 1}) == {"a"}


def test_without_a_resolver_records_are_events_with_attributes() -> None:
    made: Index[str] = Index()
    made.add("a", "symbol = 'IBM' AND ce.id = '1'")
    assert made.match(Seen(Trade("IBM", Decimal(1)), {"id": "1"})) == {"a"}
    assert made.match(Seen({"symbol": "IBM"}, {"id": "1"})) == {"a"}


def test_an_error_in_one_way_hides_the_others() -> None:
    made = index(a="a = 1 OR b = 2", b="b = 2 OR a = 1")
    assert made.match({"b": 2}) == {"b"}
    assert made.match({"a": 1}) == {"a"}


def test_only_candidates_are_evaluated() -> None:
    read = 0

    class Counting:
        def accessor(self, name: str) -> Any:
            def fetch(record: dict[str, object]) -> object:
                nonlocal read
                read += 1
                return record.get(name)

            return fetch

    made: Index[int] = Index(Counting())
    for key in range(2_000):
        made.add(key, f"user = 'u{key}' AND price > 10 AND kind = 'trade'")
    assert made.match({"user": "u7", "price": 11, "kind": "trade"}) == {7}
    assert read < 200
