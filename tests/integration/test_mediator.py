"""The whole mediator over a real server: what users do, and what others on the same bus see."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import nats
import pytest

import tutti
from tutti.bus import embedded


class TradeDone(tutti.Event):
    symbol: Annotated[str, tutti.routing]
    price: Decimal


class Asked(tutti.Event):
    symbol: str


class Quoted(tutti.Event):
    price: Decimal


class OrderPlaced(tutti.Event, type="com.example.order"):
    number: int


async def until(condition: Callable[[], object], seconds: float = 10) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.fixture
async def bus(tmp_path: Path) -> AsyncIterator[tutti.Bus]:
    async with tutti.connect(data=tmp_path / "data", name="test") as bus:
        yield bus


async def raw_client(folder: Path) -> nats.NATS:
    """The ordinary client, with the folder's own credentials."""
    server = await embedded.Embedded.acquire(folder)
    try:
        return await nats.connect(server.url)
    finally:
        await server.release()


async def test_any_cloudevents_consumer_can_read_what_is_published(bus: tutti.Bus, tmp_path: Path) -> None:
    client = await raw_client(tmp_path / "data")
    await bus.advertise(TradeDone)
    subscription = await client.subscribe("tutti.event.events.TradeDone.>")
    await client.flush()  # the server has taken it
    await bus.publish(TradeDone("IBM", Decimal("128.50")), traceparent="00-" + "1" * 32 + "-" + "2" * 16 + "-01")
    message = await subscription.next_msg(timeout=5)
    await client.close()
    assert message.headers["ce-specversion"] == "1.0"
    assert message.headers["ce-type"] == "TradeDone"
    assert message.headers["ce-traceparent"].startswith("00-111")
    assert message.subject.endswith(".IBM")
    assert json.loads(message.data) == {"symbol": "IBM", "price": "128.50"}


async def test_other_peoples_cloudevents_in_both_modes_from_wire_and_stream(bus: tutti.Bus, tmp_path: Path) -> None:
    client = await raw_client(tmp_path / "data")
    await client.jetstream().add_stream(name="ORDERS", subjects=["acme.orders.>"])
    shop = tutti.Subscriber("shop")
    wire: list[int] = []
    stored: list[int] = []
    anything: list[str] = []

    @shop.on(OrderPlaced, subject="acme.orders.>")
    async def heard(event: OrderPlaced) -> None:
        wire.append(event.number)

    @shop.on(OrderPlaced, subject="acme.orders.>", stream="ORDERS", start="earliest", where="number > 1")
    async def read(event: OrderPlaced) -> None:
        stored.append(event.number)

    @shop.on(tutti.CloudEvent, subject="acme.orders.>", where="number < 3 AND ce.source = '/acme'")
    async def whatever(event: tutti.CloudEvent) -> None:
        anything.append(event.type)

    binary = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/acme", "ce-type": "com.example.order"}
    structured = {
        "specversion": "1.0",
        "id": "2",
        "source": "/acme",
        "type": "com.example.order",
        "data": {"number": 2},
    }
    async with bus.serve(shop):
        await client.publish("acme.orders.eu", b'{"number": 1}', headers=binary)
        await client.publish(
            "acme.orders.eu", json.dumps(structured).encode(), headers={"content-type": "application/cloudevents+json"}
        )
        await client.flush()
        await until(lambda: len(wire) == 2 and stored and len(anything) == 2)
    await client.close()
    assert wire == [1, 2]
    assert stored == [2]
    assert anything == ["com.example.order"] * 2


async def test_a_foreign_message_on_our_subject_is_dead_lettered(bus: tutti.Bus, tmp_path: Path) -> None:
    client = await raw_client(tmp_path / "data")
    desk = tutti.Subscriber("desk")
    seen: list[TradeDone] = []

    @desk.on(TradeDone)
    async def trade(event: TradeDone) -> None:
        seen.append(event)

    await bus.advertise(TradeDone)
    async with bus.serve(desk):
        await client.jetstream().publish("tutti.event.events.TradeDone._.0.IBM", b"hello?")
        await bus.publish(TradeDone("IBM", Decimal(1)))
        await until(lambda: seen)
        await until(lambda: bus.metrics.total("tutti_dead_total") == 1)
        letters = [letter async for letter in bus.dead.each()]
    await client.close()
    assert [letter.payload for letter in letters] == [b"hello?"]
    assert letters[0].reason


async def test_requests_queues_and_best_effort(bus: tutti.Bus) -> None:
    desk = tutti.Subscriber("desk")
    live: list[Decimal] = []

    @desk.on(Asked)
    async def quote(event: Asked, delivery: tutti.Delivery) -> None:
        await delivery.reply(Quoted(Decimal(42)))

    @desk.on(TradeDone)
    async def trade(event: TradeDone) -> None:
        live.append(event.price)

    await bus.advertise(Asked, TradeDone)
    async with bus.serve(desk):
        assert await bus.request(Asked("IBM"), reply=Quoted) == Quoted(Decimal(42))
        await bus.publish(TradeDone("IBM", Decimal(7)), grade="best_effort")
        await until(lambda: live == [Decimal(7)])
    await bus.send(Asked("SAP"), to="questions")
    message = await bus.receive("questions", Asked, wait=5)
    assert message is not None
    with pytest.raises(RuntimeError, match="later"):
        async with message:
            raise RuntimeError("later")
    message = await bus.receive("questions", Asked, wait=5)
    assert message is not None
    async with message:
        assert (message.event, message.attempt) == (Asked("SAP"), 2)
    assert await bus.receive("questions", Asked, wait=0.1) is None


async def test_user_code_does_not_notice_that_the_server_was_killed(bus: tutti.Bus, tmp_path: Path) -> None:
    desk = tutti.Subscriber("desk")
    seen: list[int] = []

    @desk.on(OrderPlaced)
    async def order(event: OrderPlaced) -> None:
        seen.append(event.number)

    await bus.advertise(OrderPlaced)
    async with bus.serve(desk):
        for number in range(400):
            if number in {100, 200, 300}:
                state = embedded.inspect(tmp_path / "data")
                assert state is not None
                assert state.pid is not None
                os.kill(state.pid, signal.SIGKILL)
            await bus.publish(OrderPlaced(number))
        await until(lambda: len(seen) >= 400)
    assert seen == list(range(400))


async def test_a_subscriber_goes_on_after_a_restart_of_everything(tmp_path: Path) -> None:
    seen: list[int] = []
    desk = tutti.Subscriber("desk")

    @desk.on(OrderPlaced)
    async def order(event: OrderPlaced) -> None:
        seen.append(event.number)

    for round_ in range(3):
        async with tutti.connect(data=tmp_path / "data", name="test") as bus:
            await bus.advertise(OrderPlaced)
            async with bus.serve(desk):
                await bus.publish_many(OrderPlaced(round_ * 10 + n) for n in range(10))
                await until(lambda: len(seen) >= (round_ + 1) * 10)  # noqa: B023 awaited within the round
    assert seen == list(range(30))


async def test_retention_purges_by_size_but_nothing_that_a_subscriber_still_needs(tmp_path: Path) -> None:
    desk = tutti.Subscriber("desk")
    seen: list[int] = []

    @desk.on(OrderPlaced, start="earliest")
    async def order(event: OrderPlaced) -> None:
        seen.append(event.number)

    streams = {"events": tutti.Stream(max_bytes=20_000)}
    async with tutti.connect(data=tmp_path / "data", name="test", streams=streams) as bus:
        await bus.advertise(OrderPlaced)
        service = await bus.start(desk)
        await bus.publish(OrderPlaced(0))
        await until(lambda: seen == [0])
        await bus.stop(service)
        await bus.publish_many(OrderPlaced(n) for n in range(1, 500))
        assert await bus.sweep() in ({}, {"events": 1})  # the subscriber has read one event
        async with bus.serve(desk):
            await until(lambda: len(seen) == 500)
            await bus.services[0].follow()
            await until(lambda: not bus.services[0].unsaved)
            gone = await bus.sweep()
    assert seen == list(range(500))
    assert 400 < gone["events"] < 500


def test_the_blocking_bus(tmp_path: Path) -> None:
    desk = tutti.Subscriber("desk")
    seen: list[int] = []

    @desk.on(OrderPlaced)
    def order(event: OrderPlaced) -> None:
        seen.append(event.number)
        if event.number == 1:
            blocking.publish(OrderPlaced(2))

    with tutti.blocking.connect(data=tmp_path / "data", name="test") as blocking:
        blocking.advertise(OrderPlaced)
        with blocking.serve(desk):
            blocking.publish(OrderPlaced(1))
            asyncio.run(until(lambda: seen == [1, 2]))
        blocking.send(OrderPlaced(3), to="orders")
        received = blocking.receive("orders", OrderPlaced, wait=5)
        assert received is not None
        with received as message:
            assert message.event == OrderPlaced(3)
