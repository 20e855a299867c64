"""Event types: their declaration, and the way between values and bytes."""

from __future__ import annotations

import dataclasses
import enum
import uuid
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import msgspec
import pytest

from tutti.errors import DeclarationError, EventTooLarge, InvalidEvent
from tutti.limits import EVENT_MAX_BYTES, EVENT_MAX_DEPTH
from tutti.model.envelope import Envelope
from tutti.model.event import CloudEvent, Event, EventMeta, RoutingAttribute, event, event_type, key, routing

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Side(enum.Enum):
    BUY = "buy"
    SELL = "sell"


class Trade(Event, version=2, stream="trades", lifetime=60, priority=3):
    symbol: Annotated[str, routing, key]
    price: Decimal
    at: datetime
    side: Annotated[Side | None, routing] = None
    note: float | None = None


def trade(**changes: Any) -> Trade:
    return msgspec.structs.replace(Trade("IBM", Decimal("128.50"), NOON), **changes)


class TestDeclaration:
    def test_says_what_the_class_says(self) -> None:
        kind = event_type(Trade)
        assert (kind.name, kind.version, kind.stream, kind.grade) == ("Trade", 2, "trades", "at_least_once")
        assert (kind.lifetime, kind.priority, kind.key, kind.token, kind.python) == (60, 3, "symbol", "Trade", Trade)
        assert kind.routing == (RoutingAttribute("symbol", "string"), RoutingAttribute("side", "string", optional=True))
        assert kind.field_names == ("symbol", "price", "at", "side", "note")

    def test_is_made_once_per_class(self) -> None:
        assert event_type(Trade) is event_type(Trade("IBM", Decimal(1), NOON))

    def test_defaults(self) -> None:
        class Plain(Event):
            text: str

        kind = event_type(Plain)
        assert (kind.name, kind.version, kind.stream, kind.grade) == ("Plain", 1, "events", "at_least_once")
        assert (kind.lifetime, kind.priority, kind.key, kind.routing) == (None, 0, None, ())

    def test_events_are_frozen(self) -> None:
        with pytest.raises(AttributeError):
            Trade("IBM", Decimal(1), NOON).symbol = "SAP"  # type: ignore[misc]  # what must not work
        with pytest.raises(DeclarationError, match="stay frozen"):

            class Loose(Event, frozen=False):  # type: ignore[misc]  # what must not work
                pass

    def test_msgspec_options_still_work(self) -> None:
        class Named(Event, kw_only=True, type="com.example.named"):
            text: str

        assert Named(text="a").text == "a"
        assert event_type(Named).token == "com=2Eexample=2Enamed"

    def test_a_derived_class_inherits_all_but_type_and_version(self) -> None:
        class Corrected(Trade, grade="best_effort"):
            reason: str = ""

        kind = event_type(Corrected)
        assert (kind.name, kind.version, kind.stream, kind.lifetime) == ("Corrected", 1, "trades", 60)
        assert (kind.grade, kind.key, len(kind.routing)) == ("best_effort", "symbol", 2)
        assert event_type(Trade).grade == "at_least_once"

    def test_dataclasses_and_plain_structs(self) -> None:
        @event(type="Moved", priority=1)
        @dataclasses.dataclass(frozen=True)
        class Moved:
            where: Annotated[str, routing]

        @event
        class Stopped(msgspec.Struct):
            where: str

        @dataclasses.dataclass
        class Undecorated:
            where: str

        assert event_type(Moved("a")).priority == 1
        assert event_type(Moved).routing_tokens(Moved("a b")) == ("a=20b",)
        assert event_type(Stopped("a")).name == "Stopped"
        for value in (Moved("a"), Stopped("b"), Undecorated("c")):
            kind = event_type(value)
            assert kind.decode(kind.encode(value)) == value

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            ({"type": ""}, "cannot name an event type"),
            ({"type": "two words"}, "cannot name an event type"),
            ({"type": "line\nbreak"}, "cannot name an event type"),
            ({"type": "x" * 256}, "cannot name an event type"),
            ({"type": "tutti.status"}, "Tutti's own"),
            ({"version": 0}, "version=0"),
            ({"version": True}, "version=True"),
            ({"stream": "a.b"}, "cannot name a stream"),
            ({"grade": "perfect"}, "grade='perfect'"),
            ({"lifetime": 0.0}, "lifetime=0.0"),
            ({"lifetime": float("nan")}, "lifetime=nan"),
            ({"priority": 10}, "priority=10"),
            ({"priority": -1}, "priority=-1"),
        ],
    )
    def test_options_that_cannot_work(self, options: dict[str, Any], says: str) -> None:
        with pytest.raises(DeclarationError, match=says):
            EventMeta("Odd", (Event,), {"__annotations__": {"text": str}}, **options)
        with pytest.raises(DeclarationError, match=says):
            event(**options)(dataclasses.make_dataclass("Odd", [("text", str)]))

    @pytest.mark.parametrize("nothing", [Event, int, 5, dict, "text", None])
    def test_what_is_no_event_class(self, nothing: object) -> None:
        with pytest.raises(DeclarationError):
            event_type(nothing)


class Point(msgspec.Struct, frozen=True):
    x: float
    y: float = 0.0


class Circle(msgspec.Struct, tag="circle"):
    centre: Point
    radius: float


class Polygon(msgspec.Struct, tag="polygon"):
    corners: tuple[Point, ...]


@dataclasses.dataclass
class Label:
    text: str
    tags: set[str] = dataclasses.field(default_factory=set)


class Everything(Event):
    shape: Circle | Polygon
    label: Label
    day: date
    at: datetime
    clock: time
    took: timedelta
    amount: Decimal
    side: Side
    ident: uuid.UUID
    raw: bytes
    names: list[str]
    counts: dict[str, int]
    maybe: int | None
    pair: tuple[int, str]
    anything: Any


EVERYTHING = Everything(
    shape=Polygon((Point(1.0), Point(2.0, -0.0))),
    label=Label("a", {"x", "y"}),
    day=date(2026, 2, 28),
    at=NOON.astimezone(ZoneInfo("Europe/Berlin")),
    clock=time(23, 59, 59, 999999),
    took=timedelta(days=-1, microseconds=5),
    amount=Decimal("1.50"),
    side=Side.SELL,
    ident=uuid.UUID(int=7),
    raw=b"\x00\xff",
    names=["ä", "\x00", "😀"],
    counts={"": 2**70},
    maybe=None,
    pair=(1, "one"),
    anything={"deep": [1, 2.5, None, True, "text"]},
)


class TestEncoding:
    def test_every_kind_of_field_arrives(self) -> None:
        kind = event_type(Everything)
        arrived = kind.decode(kind.encode(EVERYTHING))
        assert arrived == EVERYTHING
        assert str(arrived.amount) == "1.50"

    @pytest.mark.parametrize(
        ("changes", "says"),
        [
            ({"note": float("nan")}, "nan at `$.note` would arrive as None"),
            ({"note": float("inf")}, "inf at `$.note` would arrive as None"),
            ({"note": 2**53 + 1}, "9007199254740993 at `$.note` would arrive as 9007199254740992.0"),
            ({"price": Decimal("NaN")}, r"Decimal\('NaN'\) at `\$.price` is equal to nothing"),
            ({"price": Decimal("sNaN")}, r"Decimal\('sNaN'\) at `\$.price` is equal to nothing"),
            ({"price": 1}, r"1 at `\$.price` would arrive as Decimal\('1'\)"),
            ({"price": 0.5}, r"0.5 at `\$.price` would arrive as Decimal\('0.5'\)"),
            ({"price": 0.1}, r"0.1 at `\$.price` would arrive as Decimal\('0.1'\)"),
            ({"price": "cheap"}, "the value at `$.price` is 'cheap'"),
            ({"symbol": 5}, "expected `str`, got `int`; the value at `$.symbol` is 5"),
            ({"symbol": "\ud800"}, r"surrogates not allowed; the value at `\$.symbol` is '\\ud800'"),
            ({"note": 10**5000}, "the value at `$.note` is <int>"),
            ({"at": NOON.replace(tzinfo=timezone(timedelta(seconds=30)))}, "at `$.at` would arrive as"),
            ({"at": datetime(1850, 1, 1, tzinfo=ZoneInfo("Europe/Berlin"))}, "at `$.at` would arrive as"),
            ({"side": "buy and sell"}, "the value at `$.side` is 'buy and sell'"),
            ({"symbol": lambda: 1}, "the value at `$.symbol` is <function"),
        ],
    )
    def test_what_would_not_arrive_does_not_leave(self, changes: dict[str, Any], says: str) -> None:
        pattern = says if "\\" in says else says.replace("$.", r"\$\.")
        with pytest.raises(InvalidEvent, match=f"^Trade: .*{pattern}") as caught:
            event_type(Trade).encode(trade(**changes))
        assert "was not sent" in caught.value.hint

    @pytest.mark.parametrize("stranger", [5, "text", {"symbol": "IBM"}, EVERYTHING, None])
    def test_values_of_other_types(self, stranger: object) -> None:
        with pytest.raises(InvalidEvent, match="Trade"):
            event_type(Trade).encode(stranger)

    def test_a_value_of_a_derived_class_is_not_cut_down(self) -> None:
        class Longer(Trade):
            more: str = "more"

        with pytest.raises(InvalidEvent, match="would arrive as Trade"):
            event_type(Trade).encode(Longer("IBM", Decimal(1), NOON))

    def test_a_list_is_no_tuple(self) -> None:
        with pytest.raises(InvalidEvent, match=r"\[1, 'one'\] at `\$.pair` would arrive as \(1, 'one'\)"):
            event_type(Everything).encode(msgspec.structs.replace(EVERYTHING, pair=[1, "one"]))

    @pytest.mark.parametrize("value", [(1, 2), {1: 2}, NOON, Decimal(1), {"a": [float("nan")]}, Side.BUY])
    def test_any_holds_only_what_json_gives_back(self, value: object) -> None:
        with pytest.raises(InvalidEvent, match=r"\$.anything"):
            event_type(Everything).encode(msgspec.structs.replace(EVERYTHING, anything=value))

    @pytest.mark.parametrize("fold", [0, 1])
    def test_the_hour_that_a_clock_change_repeats(self, fold: int) -> None:
        moment = datetime(2023, 10, 29, 2, 30, fold=fold, tzinfo=ZoneInfo("Europe/Berlin"))
        kind = event_type(Trade)
        arrived = kind.decode(kind.encode(trade(at=moment)))
        assert arrived.at.astimezone(UTC) == moment.astimezone(UTC)

    def test_classes_without_equality(self) -> None:
        class Silent(msgspec.Struct, eq=False):
            numbers: list[float]

        kind = event_type(Silent)
        assert kind.encode(Silent([1.0])) == b'{"numbers":[1.0]}'
        with pytest.raises(InvalidEvent, match=r"\$.numbers\[1\]"):
            kind.encode(Silent([1.0, float("nan")]))

    def test_constraints_are_checked_before_sending(self) -> None:
        class Bounded(Event):
            count: Annotated[int, msgspec.Meta(ge=0, le=9)]

        with pytest.raises(InvalidEvent, match=r"<= 9; the value at `\$.count` is 10"):
            event_type(Bounded).encode(Bounded(10))

    def test_too_large(self) -> None:
        kind = event_type(Trade)
        room = EVENT_MAX_BYTES - len(kind.encode(trade(symbol="")))
        assert len(kind.encode(trade(symbol="x" * room))) == EVENT_MAX_BYTES
        with pytest.raises(EventTooLarge, match="1,000,001 bytes; the limit is 1,000,000"):
            kind.encode(trade(symbol="x" * (room + 1)))

    def test_too_deep(self) -> None:
        kind = event_type(Everything)

        def nested(depth: int) -> Everything:
            value: list[Any] = ["[{"]
            for _ in range(depth - 2):
                value = [value]
            return msgspec.structs.replace(EVERYTHING, anything=value)

        kind.decode(kind.encode(nested(EVENT_MAX_DEPTH)))
        for depth in (EVENT_MAX_DEPTH + 1, 900, 5_000):
            with pytest.raises(InvalidEvent, match="more than 100 deep"):
                kind.encode(nested(depth))

    def test_brackets_in_texts_are_not_depth(self) -> None:
        kind = event_type(Everything)
        kind.encode(msgspec.structs.replace(EVERYTHING, anything='["' * 500 + "\\" * 3 + "{" * 500))

    def test_a_tree_may_not_grow_without_bounds_either(self) -> None:
        tree = Tree()
        for _ in range(EVENT_MAX_DEPTH):
            tree = Tree([tree])
        with pytest.raises(InvalidEvent, match="more than 100 deep"):
            event_type(Tree).encode(tree)

    @pytest.mark.parametrize(
        ("data", "says"),
        [
            (b"", "truncated"),
            (b"{", "truncated"),
            (b"null", "expected `object`"),
            (b'{"price": "1", "at": "2026-01-01T00:00:00Z"}', "missing required field `symbol`"),
            (b'{"symbol": "a", "price": [], "at": "2026-01-01T00:00:00Z"}', r"at `\$.price`"),
            (b'{"symbol": "a", "price": "1", "at": "noon"}', r"at `\$.at`"),
            (b'{"symbol": "\xff", "price": "1", "at": "2026-01-01T00:00:00Z"}', "utf-8"),
            (b"[" * 100_000, "expected `object`"),
        ],
    )
    def test_bad_data_are_refused_with_the_field(self, data: bytes, says: str) -> None:
        with pytest.raises(InvalidEvent, match=f"(?i)^Trade: .*{says}"):
            event_type(Trade).decode(data)

    def test_unknown_fields_are_ignored(self) -> None:
        data = b'{"symbol":"a","price":"1","at":"2026-03-01T12:00:00Z","new":[1]}'
        assert event_type(Trade).decode(data) == Trade("a", Decimal(1), NOON)

    def test_hostile_depth_in_received_data(self) -> None:
        data = msgspec.json.encode(EVERYTHING).replace(b'"anything":', b'"anything":' + b"[" * 100_000)
        with pytest.raises(InvalidEvent, match="Everything"):
            event_type(Everything).decode(data)


class Tree(Event):
    children: list[Tree] = msgspec.field(default_factory=list)


class TestAddress:
    def test_routing_tokens_in_order_of_declaration(self) -> None:
        kind = event_type(Trade)
        assert kind.routing_tokens(trade()) == ("IBM", "=-")
        assert kind.routing_tokens(trade(symbol="a.b >", side=Side.BUY)) == ("a=2Eb=20=3E", "buy")

    def test_one_and_none(self) -> None:
        class One(Event):
            number: Annotated[int, routing]

        class None_(Event):  # noqa: N801 - the number of routing attributes
            number: int

        assert event_type(One).routing_tokens(One(-5)) == ("-5",)
        assert event_type(None_).routing_tokens(None_(5)) == ()

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), Decimal("NaN"), [1], {}, object()])
    def test_values_without_a_token(self, value: Any) -> None:
        with pytest.raises(InvalidEvent, match="routing attribute"):
            event_type(Trade).routing_tokens(trade(symbol=value))
        with pytest.raises(InvalidEvent, match="the key symbol"):
            event_type(Trade).key_of(trade(symbol=value))

    def test_keys(self) -> None:
        class Numbered(Event):
            number: Annotated[int | None, key]

        assert event_type(Trade).key_of(trade(symbol="")) == ""
        assert event_type(Numbered).key_of(Numbered(7)) == "7"
        assert event_type(Numbered).key_of(Numbered(None)) is None
        assert event_type(Everything).key_of(EVERYTHING) is None


class TestCloudEvent:
    def test_is_a_type_for_any(self) -> None:
        kind = event_type(CloudEvent)
        assert (kind.name, kind.token, kind.python) == ("*", "*", CloudEvent)
        assert event_type(CloudEvent({"type": "x"})) is kind

    @pytest.mark.parametrize(
        ("content_type", "data", "expected"),
        [
            ("application/json", b'{"a": 1}', {"a": 1}),
            ("text/json; charset=utf-8", b"[1]", [1]),
            ("application/vnd.x+json", b"null", None),
            (None, b'{"a": 1}', {"a": 1}),
            (None, b"\xff", b"\xff"),
            ("text/plain", b'{"a": 1}', b'{"a": 1}'),
            ("application/json", b"", None),
        ],
    )
    def test_data_as_declared(self, content_type: str | None, data: bytes, expected: object) -> None:
        envelope = Envelope("1", "/s", "foreign", data, datacontenttype=content_type, extensions={"extra": "e"})
        arrived = event_type(CloudEvent).decode_envelope(envelope)
        assert arrived.data == expected
        assert (arrived.id, arrived.source, arrived.type, arrived.attributes["extra"]) == ("1", "/s", "foreign", "e")

    @pytest.mark.parametrize("data", [b"{", b"\xff", b"[" * 100_000])
    def test_declared_json_that_is_none(self, data: bytes) -> None:
        with pytest.raises(InvalidEvent, match="declared application/json but are not JSON"):
            CloudEvent.of(Envelope("1", "/s", "foreign", data))

    def test_types_with_a_class_decode_the_data(self) -> None:
        envelope = Envelope("1", "/s", "Trade", event_type(Trade).encode(trade()))
        assert event_type(Trade).decode_envelope(envelope) == trade()
