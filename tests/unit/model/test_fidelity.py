"""Finding the place where a value would arrive as another one."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest

from tutti.model.fidelity import Change, depth_of, fault_in, first_change, shown, value_at

NAN = float("nan")


class Inner(msgspec.Struct):
    number: Any


@dataclasses.dataclass
class Outer:
    inner: Inner
    more: dict[str, list[Any]]


def outer(number: Any = 1, last: Any = 2) -> Outer:
    return Outer(Inner(number), {"a b": [1, last]})


def test_equal_values_have_no_change() -> None:
    assert first_change(outer(), outer()) is None


@pytest.mark.parametrize(
    ("sent", "received", "path"),
    [
        (outer(NAN), outer(None), "$.inner.number"),
        (outer(last=NAN), outer(last=None), "$.more['a b'][1]"),
        (outer(Decimal("sNaN")), outer(Decimal("sNaN")), "$.inner.number"),
        (outer((1,)), outer([1]), "$.inner.number"),
        (outer([1]), outer([1, 2]), "$.inner.number"),
        (outer({1: 1}), outer({"1": 1}), "$.inner.number"),
        (outer({1, 2}), outer({1}), "$.inner.number"),
        (5, outer(), "$"),
    ],
)
def test_the_first_change(sent: object, received: object, path: str) -> None:
    found = first_change(sent, received)
    assert found is not None
    assert found.path == path


def test_moments_are_compared_as_instants() -> None:
    repeated = datetime(2023, 10, 29, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin"))
    arrived = datetime(2023, 10, 29, 2, 30, tzinfo=timezone(timedelta(hours=1)))
    assert repeated != arrived
    assert first_change(repeated, arrived) is None
    assert first_change(repeated.replace(fold=0), arrived) is not None


def test_a_moment_with_and_one_without_a_zone_differ() -> None:
    assert first_change(datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=UTC)) is not None  # noqa: DTZ001 - meant
    assert first_change(datetime(2026, 1, 1), datetime(2026, 1, 1)) is None  # noqa: DTZ001 - meant


def test_moments_outside_the_calendar() -> None:
    early = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))
    assert first_change(early, early.replace(hour=1)) == Change("$", early, early.replace(hour=1))


def test_sentences() -> None:
    assert Change("$.a", NAN, None).sentence() == "nan at `$.a` would arrive as None"
    assert Change("$.a", NAN, NAN).sentence() == "nan at `$.a` is equal to nothing, not even to itself"


def test_values_are_shown_short_and_safely() -> None:
    nested: list[Any] = []
    for _ in range(10_000):
        nested = [nested]
    assert shown("x") == "'x'"
    assert len(shown("x" * 1_000)) == 80
    assert shown(10**5_000) == "<int>"
    assert shown(nested) == "<list>"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("$.inner.number", 7),
        ("$.more", {"a b": [1, 2]}),
        ("$.more[...]", {"a b": [1, 2]}),
        ("$.inner.missing", Inner(7)),
        ("$.inner.number[3]", 7),
    ],
)
def test_value_at(path: str, expected: object) -> None:
    assert value_at(outer(7), path) == expected


def test_value_at_in_lists_and_dicts() -> None:
    assert value_at({"rows": [{"a": 1}, {"a": 2}]}, "$.rows[1].a") == 2
    assert value_at([1], "$[5]") == [1]


def test_fault_in_names_the_innermost() -> None:
    assert fault_in(outer("bad"), lambda part: "bad" not in repr(part)) == "$.inner.number"
    assert fault_in(outer(last="bad"), lambda part: "bad" not in repr(part)) == "$.more['a b'][1]"
    assert fault_in(5, lambda _: False) == "$"


@pytest.mark.parametrize(
    ("data", "depth"),
    [
        (b"[[[]]]", 3),
        (b'{"a":{"b":[]},"c":[]}', 3),
        (b'["[[[[","\\"[[[",{"{":"}"}]', 2),
        (b"[],[]", 0),
    ],
)
def test_depth(data: bytes, depth: int) -> None:
    assert depth_of(data, 2) == depth
