from __future__ import annotations

import operator
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from tutti.filters.operators import calculate, cast_like, equal, ordered
from tutti.filters.values import FaultKind, FaultRaised, Number, Value

NEW_YEAR = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        ("5", 5, True),
        ("05", 5, True),
        (5, "05", False),  # the right operand decides: compared as texts
        (True, "TRUE", False),
        ("TRUE", True, True),
        (5, True, True),
        (True, 1, True),
        ("1.50", Decimal("1.5"), True),
        (Decimal("5.0"), 5, True),
        (Decimal("1.50"), "1.5", True),
        (NEW_YEAR, "2024-01-01T01:00:00+01:00", True),
        ("2024-01-01", NEW_YEAR, True),
        ("a", "A", False),
    ],
)
def test_equality_casts(left: Value, right: Value, result: bool) -> None:
    assert equal(left, right, 0) is result


@pytest.mark.parametrize(("left", "right"), [("x", 5), ("5.0", 5), ("maybe", True), (NEW_YEAR, 5), ("x", NEW_YEAR)])
def test_equality_of_what_cannot_be_cast(left: Value, right: Value) -> None:
    with pytest.raises(FaultRaised) as caught:
        equal(left, right, 0)
    assert caught.value.kind is FaultKind.CAST


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        ("5", "10", True),
        (True, 2, True),
        (1, Decimal("1.5"), True),
        ("1.4", Decimal("1.5"), True),
        (Decimal("1.4"), "1.5", True),
        (NEW_YEAR, "2024-01-02", True),
        (2**80, 2**81, True),
    ],
)
def test_order_casts(left: Value, right: Value, result: bool) -> None:
    assert ordered(operator.lt, left, right, 0) is result


def test_texts_have_no_order() -> None:
    with pytest.raises(FaultRaised):
        ordered(operator.lt, "a", "b", 0)


@pytest.mark.parametrize(
    ("value", "model", "result"),
    [(5, "x", "5"), ("5", 1, 5), (Decimal("1.5"), 1, Decimal("1.5")), ("1.5", Decimal(0), Decimal("1.5"))],
)
def test_members_are_cast_to_the_left_operand(value: Value, model: Value, result: Value) -> None:
    assert cast_like(value, model, 0) == result


@pytest.mark.parametrize(
    ("sign", "left", "right", "result"),
    [
        ("/", 5, 3, 1),
        ("/", -5, 3, -1),
        ("/", 5, -3, -1),
        ("%", 5, 3, 2),
        ("%", -5, 3, -2),
        ("%", 5, -3, 2),
        ("/", 5, Decimal(2), Decimal("2.5")),
        ("+", Decimal("0.1"), Decimal("0.2"), Decimal("0.3")),
        ("%", Decimal("-5.5"), 2, Decimal("-1.5")),
        ("*", 2**31, 2**31, 2**62),
    ],
)
def test_arithmetic(sign: str, left: Number, right: Number, result: Number) -> None:
    assert calculate(sign, left, right, 0) == result


@pytest.mark.parametrize(
    ("sign", "left", "right"),
    [
        ("/", 5, 0),
        ("%", 5, Decimal("0.0")),
        ("+", 2**63 - 1, 1),
        ("*", 2**62, 4),
        ("/", -(2**63), -1),
        ("*", Decimal("1E+6000"), Decimal("1E+6000")),
        ("%", Decimal("1E+6000"), Decimal("1E-6000")),
    ],
)
def test_arithmetic_out_of_range(sign: str, left: Number, right: Number) -> None:
    with pytest.raises(FaultRaised) as caught:
        calculate(sign, left, right, 4)
    assert (caught.value.kind, caught.value.value, caught.value.position) == (FaultKind.MATH, 0, 4)
