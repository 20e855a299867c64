from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal

import msgspec
import pytest

from tests.unit.cli.trading import Everything, Future, Leg, Side, TradeDone
from tutti.cli.advertised import event_class
from tutti.errors import DeclarationError, InvalidEvent
from tutti.model.advertisement import Advertisement, advertise
from tutti.model.event import EventType, event_type


def made_from(cls: type) -> EventType:
    """The type as somebody sees it who has only read the advertisement."""
    read = msgspec.json.decode(msgspec.json.encode(advertise(event_type(cls))), type=Advertisement)
    return event_type(event_class(read))


def everything() -> Everything:
    moment = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)
    return Everything(
        symbol="IBM",
        side=Side.SELL,
        seen=moment,
        at=moment,
        day=dt.date(2026, 1, 31),
        leg=Leg(Decimal("1.0")),
        identity=uuid.UUID(int=5),
        contract=Future(dt.date(2027, 1, 1)),
        by_day={dt.date(2026, 1, 31): 1},
        by_number={7: {"x": Leg(Decimal(2))}},
        by_side={Side.BUY: 1},
        by_code={"abc": 1},
        maybe=moment,
    )


def test_what_is_published_is_what_the_class_would_publish() -> None:
    own, made = event_type(Everything), made_from(Everything)
    value = everything()
    read = made.decode(own.encode(value))
    assert made.encode(read) == own.encode(value)
    assert made.routing_tokens(read) == own.routing_tokens(value)
    assert made.key_of(read) == own.key_of(value)
    assert (made.name, made.version, made.stream) == (own.name, own.version, own.stream)
    assert (made.grade, made.lifetime, made.priority) == (own.grade, own.lifetime, own.priority)
    assert made.routing == own.routing


def test_what_is_not_given_gets_the_class_s_defaults() -> None:
    own, made = event_type(Everything), made_from(Everything)
    value = everything()
    given = {"symbol", "side", "seen", "at", "day", "leg", "identity", "contract"}
    given |= {"by_day", "by_number", "by_side", "by_code", "maybe"}
    short = {k: v for k, v in msgspec.json.decode(own.encode(value)).items() if k in given}
    assert made.encode(made.decode(msgspec.json.encode(short))) == own.encode(value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"price": "much"}, "price"),
        ({"price": None}, "price"),
        ({"quantity": "1"}, "quantity"),
        ({"symbol": 5}, "symbol"),
    ],
)
def test_values_are_checked_and_the_field_is_named(change: dict[str, object], said: str) -> None:
    data = {"symbol": "IBM", "price": "1.50"} | change
    with pytest.raises(InvalidEvent, match=said):
        made_from(TradeDone).decode(msgspec.json.encode(data))


def test_a_schema_that_cannot_be_rebuilt_is_said_to_be() -> None:
    odd = {"$ref": "#/$defs/X", "$defs": {"X": {"type": "object", "properties": {"a": {"type": "colour"}}}}}
    with pytest.raises(DeclarationError, match="no class can be made from the advertisement of X"):
        event_class(Advertisement("X", 1, odd))


@pytest.mark.parametrize("at", ["yesterday", "2026-01-31T12:00:00"])
def test_moments_are_no_texts(at: str) -> None:
    data = msgspec.json.decode(event_type(Everything).encode(everything())) | {"at": at}
    with pytest.raises(InvalidEvent, match=r"\$\.at"):
        made_from(Everything).decode(msgspec.json.encode(data))
