"""Retention leaves what may still become visible."""

from __future__ import annotations

import asyncio

import pytest

import tutti
from tests.unit.runtime.transactions.staged import Office
from tutti.runtime.catalogue import Catalogue
from tutti.runtime.retention import Retention
from tutti.testing.kit import BusKit

EVENTS = "tutti-events-events"


class Invited(tutti.Event):
    number: int


@pytest.fixture
async def bus(tutti_bus: BusKit) -> BusKit:
    await tutti_bus.advertise(Invited)
    kept = {"events": tutti.Stream(max_age=1)}
    await Catalogue(tutti_bus.context.transport, tutti_bus.context.layout, kept).ensure_stream("events")
    return tutti_bus


async def first_left(bus: BusKit, retention: Retention) -> int:
    """The first sequence that a sweep leaves when everything is too old."""
    bus.clock.advance(100)
    sweeping = asyncio.ensure_future(retention.sweep())
    while not sweeping.done():
        await asyncio.sleep(0)
        if bus.clock.due is not None:
            bus.clock.advance(0.1)
    sweeping.result()
    info = await bus.context.transport.stream_info(EVENTS)
    assert info is not None
    return info.first


async def test_events_stay_until_their_transaction_is_decided_and_that_is_announced(
    bus: BusKit, office: Office
) -> None:
    retention = Retention(bus.context)
    await bus.publish(Invited(1))
    first, second = await office.begin(), await office.begin()
    await first.publish(Invited(2))
    await bus.publish(Invited(3))
    await second.publish(Invited(4))
    await bus.publish(Invited(5))
    assert await first_left(bus, retention) == 2
    await first.decide()
    assert await first_left(bus, retention) == 2
    await office.relay.send()
    assert await first_left(bus, retention) == 4
    await second.abort()
    assert await first_left(bus, retention) == 6


async def test_committed_events_stay_until_every_durable_subscriber_has_come_to_their_status(
    bus: BusKit, office: Office
) -> None:
    app = tutti.Subscriber("app")

    @app.on(Invited)
    async def invited(event: Invited) -> None: ...

    retention = Retention(bus.context)
    await bus.stop(await bus.start(app))
    for number in range(3):
        staged = await office.begin()
        await staged.publish(Invited(number))
        await staged.commit()
    # Its position among plain events does not hold anything back: it is away, and there are none.
    assert await first_left(bus, retention) == 1
    async with bus.serve(app):
        await bus.settle()
        await bus.services[0].follow()
        await bus.settle()
    assert [event.number for event in bus.handled(invited)] == [0, 1, 2]
    assert await first_left(bus, retention) == 4
