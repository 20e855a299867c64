"""What a subscriber may declare, and what is refused with a sentence that says why."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

import pytest

import tutti
from tutti.bus.port import FromEarliest, FromLatest, FromSequence, FromTime
from tutti.model.subjects import Layout
from tutti.runtime.subscriber import Subscription


class Trade(tutti.Event, stream="trades"):
    symbol: Annotated[str, tutti.routing]
    price: int


class Quote(tutti.Event):
    ticker: str
    price: int


def one(event: object) -> None: ...


def declared(function: Callable[..., Any] = one, event: type = Trade, **options: Any) -> Subscription:
    return tutti.Subscriber("desk").on(event, **options)(function).subscription


def test_a_handler_is_still_the_function() -> None:
    desk = tutti.Subscriber("desk")

    @desk.on(Trade)
    def trade(event: Trade) -> str:
        """Books it."""
        return event.symbol

    assert trade(Trade("IBM", 1)) == "IBM"
    assert (trade.__doc__, trade.__name__, list(desk.subscriptions)) == ("Books it.", "trade", ["trade"])


@pytest.mark.parametrize("name", ["", "a.b", "a b", "a*", "x" * 65, "ä"])
def test_names_that_cannot_stand_in_a_subject(name: str) -> None:
    with pytest.raises(tutti.DeclarationError, match="cannot name a"):
        tutti.Subscriber(name)
    with pytest.raises(tutti.DeclarationError, match="cannot name a"):
        declared(name=name)


def test_two_handlers_need_two_names() -> None:
    desk = tutti.Subscriber("desk")
    desk.on(Trade)(one)
    with pytest.raises(tutti.DeclarationError, match="declared twice"):
        desk.on(Quote)(one)
    desk.on(Quote, name="other")(one)
    assert list(desk.subscriptions) == ["one", "other"]


def two(event: object, delivery: object) -> None: ...
def many(events: list[Trade]) -> None: ...
def many_and(events: list[Trade], deliveries: list[tutti.Delivery]) -> None: ...
def with_default(event: object, retries: int = 3) -> None: ...
async def later(event: object) -> None: ...
def nothing() -> None: ...
def three(a: object, b: object, c: object) -> None: ...
def any_number(*events: object) -> None: ...
def keyword(event: object, *, session: object) -> None: ...


class AsyncCall:
    async def __call__(self, event: object) -> None: ...


@pytest.mark.parametrize(
    ("function", "delivery", "listed", "asynchronous"),
    [
        (one, False, False, False),
        (two, True, False, False),
        (many, False, True, False),
        (many_and, True, True, False),
        (with_default, False, False, False),
        (later, False, False, True),
        (AsyncCall(), False, False, True),
    ],
)
def test_how_a_handler_wants_to_be_called(
    function: Callable[..., Any], delivery: bool, listed: bool, asynchronous: bool
) -> None:
    found = declared(function, name="h")
    assert (found.takes_delivery, found.takes_list, found.is_async) == (delivery, listed, asynchronous)


def test_a_second_parameter_called_tx_is_the_transaction() -> None:
    async def in_transaction(event: object, tx: object) -> None: ...

    assert (declared(in_transaction).takes_tx, declared(in_transaction).takes_delivery) == (True, False)
    assert not declared(two, name="h").takes_tx


def test_a_list_of_a_class_that_cannot_be_looked_up_is_a_list() -> None:
    class Local(tutti.Event):
        number: int

    def locals_(events: list[Local]) -> None: ...

    assert declared(locals_, Local, batch=tutti.Batch(most=3)).takes_list


@pytest.mark.parametrize("function", [nothing, three, keyword, any_number])
def test_shapes_that_no_call_fits(function: Callable[..., Any]) -> None:
    with pytest.raises(tutti.DeclarationError, match="a handler takes"):
        declared(function, name="h")


def test_a_partial_has_no_name_of_its_own() -> None:
    with pytest.raises(tutti.DeclarationError, match="cannot name a handler"):
        declared(partial(two, delivery=None))
    assert declared(partial(two, delivery=None), name="h").name == "h"


@pytest.mark.parametrize(
    ("event", "options", "said"),
    [
        (Trade, {"where": "symbol ="}, r"symbol =\n"),
        (Trade, {"where": "TRUE", "match": tutti.Index[Any]()}, "where= and match="),
        (Trade, {"batch": tutti.Batch(most=2)}, r"annotate its first parameter as list\[Trade\]"),
        (Trade, {"key": "colour"}, "its fields are symbol, price"),
        (Trade, {"via": tutti.mapping(Trade, Quote, ticker="symbol")}, "its mapping makes Quote"),
        (Trade, {"stream": "THEIRS"}, "foreign stream without a subject"),
        (Trade, {"queue": "q", "key": "symbol"}, "have no meaning there"),
        (Trade, {"queue": "q", "subject": "x"}, "have no meaning there"),
        (Trade, {"queue": "replay-desk"}, "Tutti's own"),
        (Trade, {"start": 0}, "no place in the log"),
        (Trade, {"start": "yesterday"}, "no place in the log"),
        (Trade, {"start": datetime(2026, 1, 1)}, "no time zone"),  # noqa: DTZ001 the mistake that is tested
        (tutti.CloudEvent, {}, "no subject is named"),
        (int, {}, "cannot be an event type"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_declared(event: type, options: dict[str, Any], said: str) -> None:
    with pytest.raises(tutti.DeclarationError, match=said):
        declared(one, event, **options)


@pytest.mark.parametrize("concurrency", [0, -1])
def test_a_subscriber_needs_room_for_one(concurrency: int) -> None:
    with pytest.raises(tutti.DeclarationError, match="concurrency"):
        tutti.Subscriber("desk", concurrency=concurrency)


def test_starts() -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    starts = [declared(start=start).start for start in ("latest", "earliest", moment, 7)]
    assert starts == [FromLatest(), FromEarliest(), FromTime(moment.timestamp()), FromSequence(7)]


def test_a_filter_on_routing_attributes_becomes_subjects() -> None:
    layout = Layout("shop")
    assert declared().subjects(layout, None) == ("shop.event.trades.Trade._.*.*",)
    assert declared(where="symbol = 'IBM' AND price > 3").subjects(layout, (2, 5)) == (
        "shop.event.trades.Trade._.2.IBM",
        "shop.event.trades.Trade._.5.IBM",
    )
    assert declared(where="symbol = 'IBM'").live_subjects(layout) == ("shop.live.Trade._.*.IBM",)
    assert declared(where="price > 3").subjects(layout, None) == ("shop.event.trades.Trade._.*.*",)


def test_a_mapped_filter_is_pushed_down_under_the_published_name() -> None:
    via = tutti.mapping(Trade, Quote, ticker="symbol")
    found = declared(one, Quote, via=via, where="ticker = 'IBM' AND price > 3")
    assert found.published.name == "Trade"
    assert found.subjects(Layout(), None) == ("tutti.event.trades.Trade._.*.IBM",)


def test_a_mapping_that_computes_the_attribute_pushes_nothing_down() -> None:
    via = tutti.mapping(Trade, Quote, ticker=lambda trade: trade.symbol.lower())
    assert declared(one, Quote, via=via, where="ticker = 'ibm'").subjects(Layout(), None) == (
        "tutti.event.trades.Trade._.*.*",
    )


def test_foreign_subjects_are_taken_as_they_are() -> None:
    found = declared(one, tutti.CloudEvent, subject="orders.>", stream="ORDERS")
    assert found.subjects(Layout(), (0,)) == found.live_subjects(Layout()) == ("orders.>",)


def test_handlers_that_take_something_else_are_refused() -> None:
    app = tutti.Subscriber("app")

    async def other(event: Quote) -> None: ...

    async def swapped(delivery: tutti.Delivery, event: Trade) -> None: ...

    async def anything(event: object) -> None: ...

    with pytest.raises(tutti.DeclarationError, match="first parameter is a Quote"):
        app.on(Trade)(other)
    with pytest.raises(tutti.DeclarationError, match="takes the delivery first"):
        app.on(Trade)(swapped)
    with pytest.raises(tutti.DeclarationError, match="no class of events"):
        app.on(anything)  # type: ignore[arg-type]  # the mistake
    app.on(Trade)(anything)


def test_every_public_name_can_be_inspected() -> None:
    for name in tutti.__all__:
        value = getattr(tutti, name)
        if isinstance(value, type) and not issubclass(value, Exception):
            inspect.signature(value)


async def test_one_function_may_have_several_subscriptions() -> None:
    first, second = tutti.Subscriber("first"), tutti.Subscriber("second")

    @first.on(Trade)
    @second.on(Trade)
    async def book(event: Trade) -> None: ...

    assert first.subscriptions["book"].is_async
    assert second.subscriptions["book"].is_async
    assert first.subscriptions["book"].function is second.subscriptions["book"].function
