"""Mappings from the published type to the subscriber's own."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any

import msgspec
import pytest

from tutti.errors import DeclarationError, InvalidEvent
from tutti.model.event import CloudEvent, Event, routing
from tutti.model.mapping import mapping

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Party(msgspec.Struct, frozen=True):
    name: str


class Trade(Event):
    symbol: Annotated[str, routing]
    price: Decimal
    at: datetime
    parties: list[Party] = msgspec.field(default_factory=list)
    size: int = 1
    venue: str | None = None


class Quote(Event):
    ticker: str
    cents: int
    at: datetime
    parties: list[Party] = msgspec.field(default_factory=list)
    size: float = 0.0
    source: str = "exchange"


TRADE = Trade("IBM", Decimal("128.50"), NOON, [Party("a")], size=3)


def test_renames_functions_and_fields_of_the_same_name() -> None:
    quotes = mapping(Trade, Quote, ticker="symbol", cents=lambda trade: int(trade.price * 100))
    assert quotes.apply(TRADE) == Quote("IBM", 12850, NOON, [Party("a")], 3.0, "exchange")
    assert (quotes.source.name, quotes.target.name) == ("Trade", "Quote")


def test_renames_are_only_the_plain_ones() -> None:
    quotes = mapping(Trade, Quote, ticker="symbol", cents=lambda _: 1, parties=lambda _: [])
    assert quotes.renames == {"ticker": "symbol", "at": "at", "size": "size"}


def test_what_is_said_wins_over_the_same_name() -> None:
    quotes = mapping(Trade, Quote, ticker="symbol", cents=lambda _: 1, size=lambda trade: trade.size * 2)
    assert quotes.apply(TRADE).size == 6
    assert "size" not in quotes.renames


def test_dataclasses() -> None:
    @dataclasses.dataclass
    class Seen:
        symbol: str
        label: str = "none"

    assert mapping(Trade, Seen, label="symbol").apply(TRADE) == Seen("IBM", "IBM")


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"ticker": "symbol"}, "nothing fills the required field cents"),
        ({}, "nothing fills the required fields ticker, cents"),
        ({"ticker": "symbol", "cents": lambda _: 1, "price": "price"}, "Quote has no field 'price'"),
        ({"ticker": "sumbol", "cents": lambda _: 1}, "Trade has no field 'sumbol' for ticker"),
        ({"ticker": "symbol", "cents": 5}, "cents is 5, neither a field's name nor a function"),
        ({"ticker": "symbol", "cents": "price"}, "price of the source does not fit cents of the target"),
        ({"ticker": "venue", "cents": "size"}, "venue of the source does not fit ticker"),
        ({"ticker": "symbol", "cents": "size", "parties": "symbol"}, "symbol of the source does not fit parties"),
    ],
)
def test_what_cannot_work_is_said_when_it_is_declared(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(DeclarationError, match=f"^mapping Trade → Quote: {says}") as caught:
        mapping(Trade, Quote, **fields)
    assert caught.value.hint


@pytest.mark.parametrize(("source", "target"), [(CloudEvent, Quote), (Trade, CloudEvent)])
def test_events_without_a_class(source: type, target: type) -> None:
    with pytest.raises(DeclarationError, match="a CloudEvent has no fields of its own"):
        mapping(source, target)


def test_a_function_that_raises() -> None:
    quotes = mapping(Trade, Quote, ticker="symbol", cents=lambda trade: 1 // (trade.size - 3))
    with pytest.raises(InvalidEvent, match=r"the function for cents raised ZeroDivisionError.* for Trade"):
        quotes.apply(TRADE)


def test_a_function_that_gives_something_else() -> None:
    quotes = mapping(Trade, Quote, ticker="symbol", cents=lambda trade: trade.price)
    with pytest.raises(InvalidEvent, match=r"mapping Trade → Quote: .*\$\.cents"):
        quotes.apply(TRADE)


def test_constraints_of_the_target_hold() -> None:
    class Short(Event):
        symbol: Annotated[str, msgspec.Meta(max_length=2)]

    with pytest.raises(InvalidEvent, match=r"\$\.symbol"):
        mapping(Trade, Short).apply(TRADE)


def test_kinds_that_fit() -> None:
    class Wide(Event):
        symbol: str | None
        size: Decimal
        venue: Any

    assert mapping(Trade, Wide).apply(TRADE) == Wide("IBM", Decimal(3), None)
