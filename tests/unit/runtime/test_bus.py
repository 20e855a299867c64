"""The bus as its users see it, on the bus in memory."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated

import pytest

import tutti
from tutti.testing.kit import BusKit


class TradeDone(tutti.Event):
    symbol: Annotated[str, tutti.routing]
    price: Decimal
    at: datetime = datetime(2026, 1, 1, tzinfo=UTC)


class PriceAsked(tutti.Event):
    symbol: str


class PriceQuoted(tutti.Event):
    price: Decimal


IBM = TradeDone("IBM", Decimal("128.50"))


async def test_a_published_event_reaches_the_handler_whose_filter_it_passes(tutti_bus: BusKit) -> None:
    desk = tutti.Subscriber("desk")

    @desk.on(TradeDone, where="symbol = 'IBM' AND price > 100")
    async def trade(event: TradeDone, delivery: tutti.Delivery) -> None:
        assert delivery.type == "TradeDone"

    await tutti_bus.advertise(TradeDone)
    async with tutti_bus.serve(desk):
        await tutti_bus.publish(IBM)
        await tutti_bus.publish(TradeDone("IBM", Decimal(99)))
        await tutti_bus.publish(TradeDone("SAP", Decimal(199)))
        await tutti_bus.settle()
    assert tutti_bus.handled(trade) == [IBM]


async def test_publishing_a_type_that_is_not_advertised_says_what_to_do(tutti_bus: BusKit) -> None:
    with pytest.raises(tutti.TypeNotAdvertised, match=r"bus.advertise\(TradeDone\)"):
        await tutti_bus.publish(IBM)


async def test_a_type_advertised_by_somebody_else_may_be_published(tutti_bus: BusKit) -> None:
    await tutti_bus.advertise(TradeDone)
    other = BusKit()
    other.cluster = tutti_bus.cluster
    async with other:
        assert (await other.publish(IBM)).sequence == 1


async def test_the_same_id_is_stored_once(tutti_bus: BusKit) -> None:
    await tutti_bus.advertise(TradeDone)
    first = await tutti_bus.publish(IBM, id="one")
    again = await tutti_bus.publish(IBM, id="one")
    assert (first.duplicate, again.duplicate, again.sequence) == (False, True, first.sequence)


async def test_publish_many_keeps_the_order(tutti_bus: BusKit) -> None:
    desk = tutti.Subscriber("desk")

    @desk.on(TradeDone)
    async def trade(event: TradeDone) -> None: ...

    await tutti_bus.advertise(TradeDone)
    events = [TradeDone("IBM", Decimal(n)) for n in range(300)]
    async with tutti_bus.serve(desk):
        stored = await tutti_bus.publish_many(events)
        await tutti_bus.settle()
    assert [s.sequence for s in stored] == list(range(1, 301))
    assert tutti_bus.handled(trade) == events


async def test_a_request_is_answered(tutti_bus: BusKit) -> None:
    desk = tutti.Subscriber("desk")

    @desk.on(PriceAsked)
    async def quote(event: PriceAsked, delivery: tutti.Delivery) -> None:
        await delivery.reply(PriceQuoted(Decimal(42)))

    await tutti_bus.advertise(PriceAsked)
    async with tutti_bus.serve(desk):
        assert await tutti_bus.request(PriceAsked("IBM"), reply=PriceQuoted) == PriceQuoted(Decimal(42))


async def test_a_request_whose_handler_gives_up_fails_with_the_reason(tutti_bus: BusKit) -> None:
    desk = tutti.Subscriber("desk")

    @desk.on(PriceAsked)
    async def quote(event: PriceAsked) -> None:
        raise tutti.Reject("no such symbol")

    await tutti_bus.advertise(PriceAsked)
    async with tutti_bus.serve(desk):
        with pytest.raises(tutti.RequestFailed, match="no such symbol"):
            await tutti_bus.request(PriceAsked("XXX"), reply=PriceQuoted)


async def test_a_request_that_nobody_answers(tutti_bus: BusKit) -> None:
    await tutti_bus.advertise(PriceAsked)
    with pytest.raises(tutti.NoReply, match=r"within 0\.05 seconds"):
        await tutti_bus.request(PriceAsked("IBM"), reply=PriceQuoted, timeout=0.05)


async def test_subscribe_iterates_over_events_as_they_come(tutti_bus: BusKit) -> None:
    await tutti_bus.advertise(TradeDone)
    await tutti_bus.publish(IBM)

    async def first() -> TradeDone:
        stream = tutti_bus.subscribe(TradeDone, start="earliest")
        async for event, _ in stream:
            await stream.aclose()
            return event
        raise AssertionError

    assert await asyncio.wait_for(first(), 5) == IBM


async def test_health_tells_what_is_served(tutti_bus: BusKit) -> None:
    desk = tutti.Subscriber("desk")

    @desk.on(TradeDone)
    async def trade(event: TradeDone) -> None: ...

    async with tutti_bus.serve(desk):
        health = tutti_bus.health()
    assert health.state == "ok"
    assert health.services == {"desk": list(range(16))}


async def test_a_closed_bus_says_so() -> None:
    bus = tutti.connect("memory://")
    with pytest.raises(tutti.DeclarationError, match="not open"):
        await bus.publish(IBM)


async def test_the_first_events_of_a_type_do_not_overtake_each_other(tutti_bus: BusKit) -> None:
    await tutti_bus.advertise(TradeDone)
    other = BusKit()
    other.cluster = tutti_bus.cluster
    async with other:
        stored = await asyncio.gather(*(other.publish(TradeDone("IBM", Decimal(n))) for n in range(20)))
    assert [published.sequence for published in stored] == list(range(1, 21))


async def test_if_one_subscriber_cannot_be_served_none_is(tutti_bus: BusKit) -> None:
    desk, empty = tutti.Subscriber("desk"), tutti.Subscriber("empty")

    @desk.on(TradeDone)
    async def trade(event: TradeDone) -> None: ...

    with pytest.raises(tutti.DeclarationError, match="has no handlers"):
        async with tutti_bus.serve(desk, empty):
            pytest.fail("nothing is served")
    assert tutti_bus.services == ()


async def test_a_bus_in_memory_serves_a_name_once(tutti_bus: BusKit) -> None:
    desk = tutti.Subscriber("desk")

    @desk.on(TradeDone)
    async def trade(event: TradeDone) -> None: ...

    async with tutti_bus.serve(desk):
        with pytest.raises(tutti.DeclarationError, match="served already"):
            await tutti_bus.start(desk)


async def test_a_close_that_is_cancelled_leaves_nothing_behind(tutti_bus: BusKit) -> None:
    desk, hang = tutti.Subscriber("desk"), asyncio.Event()

    @desk.on(TradeDone)
    async def trade(event: TradeDone) -> None:
        await hang.wait()

    before = asyncio.all_tasks()
    bus = BusKit()
    await bus.open()
    await bus.advertise(TradeDone)
    await bus.start(desk)
    await bus.publish(IBM)
    closing = asyncio.create_task(bus.close())
    await asyncio.sleep(0.05)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await bus.close()
    assert asyncio.all_tasks() - before == set()


async def test_what_a_closed_iteration_counted_is_forgotten(tutti_bus: BusKit) -> None:
    await tutti_bus.advertise(TradeDone)
    await tutti_bus.publish(IBM)
    stream = tutti_bus.subscribe(TradeDone, start="earliest")
    async for _ in stream:
        break
    await stream.aclose()
    assert "watch-" not in tutti_bus.metrics.text()
