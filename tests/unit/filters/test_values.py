from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from uuid import UUID

import msgspec
import pytest

from tutti.filters.values import (
    MISSING,
    FaultKind,
    FaultRaised,
    Value,
    to_boolean,
    to_decimal,
    to_integer,
    to_number,
    to_text,
    to_timestamp,
    value_of,
)


class Side(Enum):
    BUY = "buy"
    SELL = 2


class Level(IntEnum):
    LOW = 1


class Colour(StrEnum):
    RED = "red"


NEW_YEAR = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("x", "x"),
        (5, 5),
        (2**100, 2**100),
        (True, True),
        (Side.BUY, "buy"),
        (Side.SELL, 2),
        (Level.LOW, 1),
        (Colour.RED, "red"),
        (Decimal("1.50"), Decimal("1.5")),
        (0.1, Decimal("0.1")),
        (1e22, Decimal("1E+22")),
        (datetime(2024, 1, 1), NEW_YEAR),  # noqa: DTZ001 (naive means UTC)
        (datetime(2024, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), NEW_YEAR),
        (date(2024, 1, 1), NEW_YEAR),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (b"hi", "aGk="),
    ],
)
def test_fields_become_values(raw: object, value: Value) -> None:
    made = value_of(raw, "x", 0)
    assert made == value
    assert type(made) is type(value)


@pytest.mark.parametrize("raw", [None, MISSING, msgspec.UNSET])
def test_absent_is_missing(raw: object) -> None:
    with pytest.raises(FaultRaised) as caught:
        value_of(raw, "x", 7)
    assert (caught.value.kind, caught.value.position) == (FaultKind.MISSING_ATTRIBUTE, 7)


@pytest.mark.parametrize(
    "raw",
    [
        [1],
        {"a": 1},
        math.nan,
        math.inf,
        Decimal("NaN"),
        Decimal("-Infinity"),
        object(),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
    ],
)
def test_what_is_no_value_is_a_cast_error(raw: object) -> None:
    with pytest.raises(FaultRaised) as caught:
        value_of(raw, "x", 0)
    assert caught.value.kind is FaultKind.CAST


@pytest.mark.parametrize(
    ("cast", "value", "result"),
    [
        (to_boolean, "TrUe", True),
        (to_boolean, "false", False),
        (to_boolean, 0, False),
        (to_boolean, -50, True),
        (to_boolean, Decimal("0.0"), False),
        (to_integer, "+5", 5),
        (to_integer, "-05", -5),
        (to_integer, "0" * 9_000 + "7", 7),
        (to_integer, "-0", 0),
        (to_integer, True, 1),
        (to_integer, Decimal("-2.9"), -2),
        (to_integer, str(2**63 - 1), 2**63 - 1),
        (to_number, Decimal("2.9"), Decimal("2.9")),
        (to_decimal, "2.90", Decimal("2.9")),
        (to_decimal, 3, 3),
        (to_decimal, False, 0),
        (to_text, True, "true"),
        (to_text, -1, "-1"),
        (to_text, Decimal("1.50"), "1.5"),
        (to_text, Decimal("1E+3"), "1000"),
        (to_text, Decimal("-0.00"), "0"),
        (to_text, NEW_YEAR, "2024-01-01T00:00:00Z"),
        (to_timestamp, "2024-01-01", NEW_YEAR),
        (to_timestamp, "2024-01-01T00:00:00Z", NEW_YEAR),
        (to_timestamp, "2024-01-01T02:00:00+02:00", NEW_YEAR),
    ],
)
def test_casts(cast: Callable[[Value, int], Value], value: Value, result: Value) -> None:
    made = cast(value, 0)
    assert made == result
    assert type(made) is type(result)


@pytest.mark.parametrize(
    ("cast", "value", "instead"),
    [
        (to_boolean, "yes", False),
        (to_boolean, "", False),
        (to_boolean, NEW_YEAR, False),
        (to_integer, "ABC", 0),
        (to_integer, "", 0),
        (to_integer, " 5", 0),
        (to_integer, "5.0", 0),
        (to_integer, "1_000", 0),
        (to_integer, "٣", 0),
        (to_integer, str(2**63), 0),
        (to_integer, Decimal("1E+30"), 0),
        (to_integer, NEW_YEAR, 0),
        (to_decimal, "1e5", 0),
        (to_decimal, "NaN", 0),
        (to_decimal, "1" * 7_000, 0),
        (to_text, Decimal("1E+999999"), ""),
        (to_text, 10**400, ""),
        (to_timestamp, "yesterday", datetime(1970, 1, 1, tzinfo=UTC)),
        (to_timestamp, 5, datetime(1970, 1, 1, tzinfo=UTC)),
    ],
)
def test_refused_casts_give_the_zero_value(cast: Callable[[Value, int], Value], value: Value, instead: Value) -> None:
    with pytest.raises(FaultRaised) as caught:
        cast(value, 3)
    assert caught.value.fault.kind is FaultKind.CAST
    assert (caught.value.value, caught.value.position) == (instead, 3)
