from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from tutti.filters.resolvers import EventResolver, MappingResolver
from tutti.filters.values import MISSING


class Instrument(msgspec.Struct):
    symbol: str
    tags: dict[str, Any]


class Trade(msgspec.Struct):
    instrument: Instrument | None
    id: int
    Upper: str = "field"

    @property
    def secret(self) -> str:
        return "a property"


@dataclass
class Order:
    number: int


class Seen(msgspec.Struct):
    event: object
    attributes: dict[str, str]


TRADE = Seen(Trade(Instrument("IBM", {"venue": {"code": "N"}}), 7), {"id": "ev-1", "source": "/s", "number": "9"})


def fetched(resolver: EventResolver, name: str, record: Seen) -> object:
    accessor = resolver.accessor(name)
    return MISSING if accessor is None else accessor(record)


@pytest.mark.parametrize("resolver", [EventResolver(), EventResolver(Trade)])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("id", 7),  # the field comes first
        ("ce.id", "ev-1"),
        ("ce.ID", "ev-1"),
        ("source", "/s"),
        ("SOURCE", "/s"),
        ("Upper", "field"),
        ("upper", MISSING),
        ("instrument.symbol", "IBM"),
        ("instrument.tags.venue.code", "N"),
        ("instrument.tags.none.code", MISSING),
        ("instrument.symbol.x", MISSING),
        ("instrument.__class__", MISSING),
        ("__class__", MISSING),
        ("secret", MISSING),
        ("ce.none", MISSING),
        ("ce.a.b", MISSING),
        ("none.x", MISSING),
    ],
)
def test_names_of_structs(resolver: EventResolver, name: str, value: object) -> None:
    assert fetched(resolver, name, TRADE) == value


def test_a_null_on_the_way_is_missing() -> None:
    record = Seen(Trade(None, 1), {})
    assert fetched(EventResolver(Trade), "instrument.symbol", record) is MISSING
    assert fetched(EventResolver(), "instrument.symbol", record) is MISSING


def test_dataclasses_and_mappings() -> None:
    attributes = {"number": "9", "subject": "s"}
    for resolver in (EventResolver(), EventResolver(Order)):
        assert fetched(resolver, "number", Seen(Order(3), attributes)) == 3
        assert fetched(resolver, "subject", Seen(Order(3), attributes)) == "s"
    for resolver in (EventResolver(), EventResolver(dict)):
        record = Seen({"number": 3, "deep": {"er": 1}, "null": None}, attributes)
        assert fetched(resolver, "number", record) == 3
        assert fetched(resolver, "deep.er", record) == 1
        assert fetched(resolver, "subject", record) == "s"
        assert fetched(resolver, "null", record) is None
        assert fetched(resolver, "none", record) is MISSING


def test_one_accessor_serves_every_type_that_arrives() -> None:
    accessor = EventResolver().accessor("number")
    assert accessor is not None
    attributes = {"number": "attribute"}
    events: list[object] = [Order(1), {"number": 2}, TRADE.event, None, "text", Order(3)]
    assert [accessor(Seen(event, attributes)) for event in events] == [1, 2, "attribute", "attribute", "attribute", 3]


def test_a_type_that_cannot_have_the_name_is_known_at_once() -> None:
    assert EventResolver(Order).accessor("none.x") is None
    assert EventResolver(Order).accessor("ce.a.b") is None


def test_plain_mappings() -> None:
    record = {"a": {"b": 1}, "source": "/s"}
    for name, value in {"a.b": 1, "SOURCE": "/s", "ce.source": "/s", "a.c": MISSING, "x": MISSING}.items():
        assert MappingResolver().accessor(name)(record) == value
