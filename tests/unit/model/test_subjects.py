"""Subject tokens, partitions and the layout of a namespace."""

from __future__ import annotations

import enum
import re
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from tutti.errors import DeclarationError
from tutti.limits import PARTITIONS_COUNT, ROUTING_TOKEN_MAX_BYTES
from tutti.model.subjects import Layout, checked_name, partition_in, partition_of, routing_text, token


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 2


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("IBM", "IBM"),
        ("a_b-9", "a_b-9"),
        ("", "="),
        (None, "=-"),
        ("-", "-"),
        ("=", "=3D"),
        ("=-", "=3D-"),
        ("a.b", "a=2Eb"),
        ("*", "=2A"),
        (">", "=3E"),
        ("$SYS", "=24SYS"),
        ("a b\r\n\0", "a=20b=0D=0A=00"),
        ("é", "=C3=A9"),
        ("\ud800", "=ED=A0=80"),
        (True, "true"),
        (7, "7"),
        (-7, "-7"),
        (Decimal("1.50"), "1=2E5"),
        (Colour.RED, "red"),
        (Level.HIGH, "2"),
        (date(2026, 3, 1), "2026-03-01"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    ],
)
def test_tokens(value: object, expected: str) -> None:
    assert token(value) == expected


def test_long_values_become_digests() -> None:
    longest = "x" * ROUTING_TOKEN_MAX_BYTES
    assert token(longest) == longest
    assert re.fullmatch(r"=~[0-9a-f]{32}", token(longest + "x"))
    assert token(longest + "x") != token(longest + "y")
    assert token("é" * 12) != token("é" * 11)


@pytest.mark.parametrize(
    "equals",
    [
        [1, 1.0, Decimal(1), Decimal("1.000"), Decimal("1E0"), Decimal("10E-1")],
        [0, 0.0, -0.0, Decimal("-0.0"), Decimal("0E+5")],
        [100, 100.0, Decimal("1E+2"), Decimal("100.00")],
        [-0.5, Decimal("-0.50")],
        [10**64, Decimal("1E+64")],
        [10**65, Decimal("1E+65"), Decimal("10E+64")],
        [10**6_000, Decimal("1E+6000")],
        [Decimal("1E-70"), Decimal("10E-71")],
        [datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(2026, 1, 1, 14, tzinfo=timezone(timedelta(hours=2)))],
    ],
)
def test_equal_values_have_equal_texts(equals: list[Any]) -> None:
    assert all(value == equals[0] for value in equals)
    assert len({routing_text(value) for value in equals}) == 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Decimal("1E+999999"), "1E999999"),
        (Decimal("-12E-999999"), "-12E-999999"),
        (1e300, "1E300"),
        (1e-7, "0.0000001"),
        (0.1, "0.1"),
        (123456789.125, "123456789.125"),
        (2**63, "9223372036854775808"),
    ],
)
def test_numbers_of_any_size_stay_short(value: object, text: str) -> None:
    assert routing_text(value) == text


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        Decimal("NaN"),
        Decimal("-Infinity"),
        [1],
        b"bytes",
        object(),
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))),
    ],
)
def test_values_that_cannot_route(value: object) -> None:
    with pytest.raises(DeclarationError, match="cannot be a routing attribute"):
        token(value)


def test_partitions_never_move() -> None:
    """Part of the wire format: publishers of all versions and languages must agree."""
    assert [partition_of(key) for key in ("", "IBM", "é", "\ud800", "7")] == [6, 10, 0, 14, 13]
    assert {partition_of(str(n)) for n in range(1_000)} == set(range(PARTITIONS_COUNT))


@pytest.mark.parametrize("name", ["a", "A-b_9", "9", "x" * 64])
def test_names(name: str) -> None:
    assert checked_name(name, "queue") == name


@pytest.mark.parametrize("name", ["", "-a", "_a", "a.b", "a b", "é", "x" * 65, "a\n"])
def test_names_that_cannot_be(name: str) -> None:
    with pytest.raises(DeclarationError, match="cannot name a queue"):
        checked_name(name, "queue")


def test_the_layout() -> None:
    layout = Layout("shop")
    assert layout.event("trades", "Trade", "_", "3", ("IBM", "=-")) == "shop.event.trades.Trade._.3.IBM.=-"
    assert layout.live("Trade", "_", "3", ()) == "shop.live.Trade._.3"
    assert layout.queue("billing", "Trade") == "shop.queue.billing.Trade"
    assert layout.dead("desk", "on.trade") == "shop.dead.desk.on=2Etrade"
    assert (layout.event_stream("trades"), layout.event_subjects("trades")) == (
        "shop-events-trades",
        "shop.event.trades.>",
    )
    assert (layout.queue_stream, layout.queue_subjects) == ("shop-queues", "shop.queue.>")
    assert (layout.dead_stream, layout.dead_subjects) == ("shop-dead", "shop.dead.>")
    assert (layout.state_stream, layout.state_subjects) == ("shop-state", "shop.state.>")


@pytest.mark.parametrize("partition", range(PARTITIONS_COUNT))
def test_the_partition_of_an_event_stands_in_its_subject(partition: int) -> None:
    assert partition_in(Layout().event("events", "TradeDone", "_", str(partition), ("IBM", "=-"))) == partition


@pytest.mark.parametrize(
    "subject", ["orders.new", "a.b.c.d.e", f"t.event.s.T._.{PARTITIONS_COUNT}", "t.event.s.T._.-1", "t.event.s.T._.٣"]
)
def test_other_subjects_name_no_partition(subject: str) -> None:
    assert partition_in(subject) is None
