from __future__ import annotations

from decimal import Decimal

import msgspec
import pytest

from tests.unit.cli.conftest import MemorySession
from tests.unit.cli.trading import TradeDone
from tutti.bus.port import FromEarliest, Record
from tutti.cli.advertised import event_class
from tutti.cli.publishing import PublishSettings, _Publication, from_json, known_type, parse_values, publish_events
from tutti.errors import DeclarationError, InvalidEvent, UnknownType
from tutti.model.advertisement import Advertisement, advertise
from tutti.model.event import EventType, event_type


@pytest.fixture
def kind() -> EventType:
    return event_type(event_class(advertise(event_type(TradeDone))))


@pytest.mark.parametrize(
    "values",
    [
        ['{"symbol": "IBM", "price": "1.50", "quantity": 2}'],
        ['  {"symbol": "IBM", "price": 1.50, "quantity": 2}'],
        ["symbol=IBM", "price=1.50", "quantity=2"],
        ["symbol=IBM", "price=1.50", "quantity:=2"],
    ],
)
def test_json_and_pairs_give_the_same_event(kind: EventType, values: list[str]) -> None:
    value = parse_values(kind, values)
    assert msgspec.to_builtins(value) | {"price": ""} == {"symbol": "IBM", "price": "", "quantity": 2}
    assert kind.key_of(value) == "IBM"
    assert Decimal(msgspec.to_builtins(value)["price"]) == Decimal("1.5")


@pytest.mark.parametrize(
    ("values", "what", "hint"),
    [
        (["{"], "this is not JSON", "JSON object"),
        (["IBM"], "'IBM' is no FIELD=VALUE", "FIELD=VALUE"),
        (["symbol=IBM", "prise=1"], "has no field 'prise'", "did you mean price?"),
        (["symbol=IBM", "xyz=1"], "has no field 'xyz'", "symbol, price, quantity"),
        (['{"symbol": "IBM"}'], "missing required field `price`", "tutti types show TradeDone"),
        (["symbol=IBM"], "missing required field `price`", "tutti types show TradeDone"),
        (["symbol=IBM", "price=1", "quantity=many"], "$.quantity", "tutti types show TradeDone"),
        (["symbol=IBM", "quantity:=x"], "'x' is not JSON", "field:=JSON"),
    ],
)
def test_what_does_not_fit_names_the_field(kind: EventType, values: list[str], what: str, hint: str) -> None:
    with pytest.raises(InvalidEvent) as caught:
        parse_values(kind, values)
    assert what in caught.value.what
    assert hint in caught.value.hint


def test_data_must_be_an_object(kind: EventType) -> None:
    with pytest.raises(InvalidEvent, match="no JSON object"):
        from_json(kind, b"[1]")


async def records(session: MemorySession) -> list[Record]:
    async with session.bus() as bus:
        reader = await bus.context.transport.reader("tutti-events-events", (), FromEarliest())
        found = await reader.batch(100, wait=0.2)
        await reader.close()
    return list(found)


async def test_the_record_is_what_the_class_would_have_stored(session: MemorySession) -> None:
    async with session.bus(name="ny") as bus:
        await bus.advertise(TradeDone)
        await bus.publish(TradeDone("a b", Decimal("1.50")), id="one", priority=3)
    settings = PublishSettings(type="TradeDone", name="ny", id="two", priority=3)
    assert await publish_events(session, settings, ["symbol=a b", "price=1.50"]) is None
    own, ours = await records(session)
    assert (ours.subject, ours.data) == (own.subject, own.data)
    differing = {
        name for name in own.headers.keys() | ours.headers.keys() if own.headers.get(name) != ours.headers.get(name)
    }
    assert differing == {"ce-id", "ce-source", "ce-time", "Nats-Msg-Id"}
    (acknowledged,) = session.answers.shown
    assert (acknowledged.id, acknowledged.sequence, acknowledged.duplicate) == ("two", 2, False)


async def test_an_id_makes_a_repetition_harmless_also_without_a_name(session: MemorySession) -> None:
    async with session.bus() as bus:
        await bus.advertise(TradeDone)
    for _ in range(2):
        await publish_events(session, PublishSettings(type="TradeDone", id="one"), ["symbol=A", "price=1"])
    assert [(shown.sequence, shown.duplicate) for shown in session.answers.shown] == [(1, False), (1, True)]


async def test_lines_are_published_in_order_up_to_the_first_wrong_one(session: MemorySession) -> None:
    lines = [b'{"symbol":"A","price":"1"}\n', b"\n", b'{"symbol":"B","price":"2"}\n', b'{"symbol":"C"}\n', b"never\n"]
    async with session.bus() as bus:
        await bus.advertise(TradeDone)
        kind = await known_type(bus, "TradeDone")
        publication = _Publication(session, bus, kind, PublishSettings(type="TradeDone"))
        with pytest.raises(InvalidEvent, match=r"line 4: TradeDone: .*`price`"):
            await publication.publish_lines(iter([*lines, b""]).__next__)
    assert [shown.sequence for shown in session.answers.shown] == [1, 2]
    assert [msgspec.json.decode(record.data)["symbol"] for record in await records(session)] == ["A", "B"]


async def test_the_type_is_looked_up_before_the_first_line(
    session: MemorySession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were each line to look it up, one could overtake another."""
    happened: list[str] = []
    async with session.bus() as bus:
        await bus.advertise(TradeDone)
        kind = await known_type(bus, "TradeDone")
        find = bus.context.catalogue.find

        async def noted(name: str) -> Advertisement | None:
            happened.append("looked up")
            return await find(name)

        def read_line() -> bytes:
            happened.append("line")
            return b'{"symbol":"A","price":"1"}' if happened.count("line") < 3 else b""

        monkeypatch.setattr(bus.context.catalogue, "find", noted)
        publication = _Publication(session, bus, kind, PublishSettings(type="TradeDone"))
        await publication.publish_lines(read_line)
    assert happened == ["looked up", "line", "line", "line"]


async def test_what_cannot_be_published_is_refused(session: MemorySession) -> None:
    with pytest.raises(UnknownType, match="no type 'TradeDone'"):
        await publish_events(session, PublishSettings(type="TradeDone"), ["{}"])
    with pytest.raises(DeclarationError, match="--id names one event"):
        await publish_events(session, PublishSettings(type="TradeDone", id="x"), ["-"])
    with pytest.raises(DeclarationError, match="--grade always is unknown"):
        PublishSettings(type="TradeDone", grade="always")
