from __future__ import annotations

from uuid import UUID

import pytest

from tutti.filters import RoutingAttribute, parse, subject_tokens
from tutti.limits import FILTER_SUBJECTS_MAX_COUNT
from tutti.model.subjects import token

SYMBOL = RoutingAttribute("symbol", "string")
VENUE = RoutingAttribute("venue", "string")
SIZE = RoutingAttribute("size", "integer")
PRICE = RoutingAttribute("price", "decimal")
ACTIVE = RoutingAttribute("active", "boolean")
AT = RoutingAttribute("at", "datetime")
DAY = RoutingAttribute("day", "date")
KEY = RoutingAttribute("key", "uuid")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("symbol = 'IBM'", {("IBM", "*")}),
        ("'IBM' = symbol AND price > 5", {("IBM", "*")}),
        ("symbol = 'IBM' AND venue = 'NYSE'", {("IBM", "NYSE")}),
        ("symbol IN ('IBM', 'SAP')", {("IBM", "*"), ("SAP", "*")}),
        ("symbol = 'IBM' OR symbol = 'SAP' AND venue = 'X'", {("IBM", "X"), ("SAP", "X")}),
        ("symbol LIKE 'a.b'", {("a=2Eb", "*")}),
        ("symbol = ''", {("=", "*")}),
        ("symbol = 'IBM' AND symbol = 'SAP'", set()),
        ("FALSE", set()),
        ("symbol = 'IBM' OR venue = 'NYSE'", {("*", "*")}),  # they would overlap
        ("symbol = 'IBM' OR (symbol = 'IBM' AND venue = 'X')", {("IBM", "*")}),
        ("symbol = 5", {("*", "*")}),  # '05' would pass too
        ("symbol IN ('IBM', 5)", {("*", "*")}),
        ("symbol LIKE 'I%'", {("*", "*")}),
        ("symbol != 'IBM'", {("*", "*")}),
        ("NOT (symbol != 'IBM')", {("IBM", "*")}),
        ("ce.symbol = 'IBM'", {("*", "*")}),
        ("SYMBOL = 'IBM'", {("*", "*")}),
        ("price > 5", {("*", "*")}),
        ("TRUE", {("*", "*")}),
    ],
)
def test_tokens_of_texts(text: str, expected: set[tuple[str, ...]]) -> None:
    assert set(subject_tokens(parse(text), [SYMBOL, VENUE])) == expected


@pytest.mark.parametrize(
    ("text", "attribute", "expected"),
    [
        ("size = 5", SIZE, {"5"}),
        ("size = 5.0", SIZE, {"5"}),
        ("size = '5'", SIZE, {"*"}),
        ("size = TRUE", SIZE, {"*"}),
        ("price = 1.50", PRICE, {"1=2E5"}),
        ("price IN (1, -0.0)", PRICE, {"1", "0"}),
        ("active", ACTIVE, {"true"}),
        ("NOT active", ACTIVE, {"false"}),
        ("active != TRUE", ACTIVE, {"false"}),
        ("active = 1", ACTIVE, {"*"}),
        ("at = '2024-01-01T01:00:00+01:00'", AT, {token("2024-01-01T00:00:00+00:00")}),
        ("at = TIMESTAMP('2024-01-01')", AT, {token("2024-01-01T00:00:00+00:00")}),
        ("at = 'soon'", AT, {"*"}),
        ("day = '2024-01-01'", DAY, {"2024-01-01"}),
        ("day = '2024-01-01T12:00:00Z'", DAY, set()),
        ("key = '00000000-0000-0000-0000-000000000001'", KEY, {token(UUID(int=1))}),
        ("key LIKE '00000000-0000-0000-0000-000000000001'", KEY, {token(UUID(int=1))}),
        ("key = 1", KEY, {"*"}),
    ],
)
def test_tokens_of_every_kind(text: str, attribute: RoutingAttribute, expected: set[str]) -> None:
    assert {tokens[0] for tokens in subject_tokens(parse(text), [attribute])} == expected


def test_without_routing_attributes_there_is_one_subject_or_none() -> None:
    assert subject_tokens(parse("symbol = 'IBM'"), []) == ((),)
    assert subject_tokens(parse("FALSE"), []) == ()


def test_too_many_subjects_are_widened() -> None:
    symbols = ", ".join(f"'S{n}'" for n in range(FILTER_SUBJECTS_MAX_COUNT + 1))
    assert subject_tokens(parse(f"symbol IN ({symbols}) AND venue = 'X'"), [SYMBOL, VENUE]) == (("*", "X"),)
    pairs = " OR ".join(f"(symbol = 'S{n}' AND venue IN ('X', 'Y', 'Z'))" for n in range(40))
    assert set(subject_tokens(parse(pairs), [SYMBOL, VENUE])) == {("*", "X"), ("*", "Y"), ("*", "Z")}


def test_many_values_in_two_attributes_narrow_one() -> None:
    numbers = ", ".join(f"'{n}'" for n in range(20))
    found = subject_tokens(parse(f"symbol IN ({numbers}) AND venue IN ({numbers})"), [SYMBOL, VENUE])
    assert len(found) == 20
    assert {tokens[1] for tokens in found} == {"*"}
