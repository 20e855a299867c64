"""Purging by age and size, and never what a durable subscriber has still to read."""

from __future__ import annotations

import asyncio

import pytest

import tutti
from tutti.bus.port import StreamInfo
from tutti.runtime.catalogue import Catalogue
from tutti.runtime.retention import Retention, registrations
from tutti.testing.kit import BusKit

STREAM = "tutti-events-events"


class Step(tutti.Event):
    number: int
    filler: str = ""


async def settings(bus: BusKit, wanted: tutti.Stream) -> None:
    await Catalogue(bus.context.transport, bus.context.layout, {"events": wanted}).ensure_stream("events")


async def info(bus: BusKit) -> StreamInfo:
    found = await bus.context.transport.stream_info(STREAM)
    assert found is not None
    return found


async def sweep(bus: BusKit) -> dict[str, int]:
    """Sweep; the moment for which it waits for a younger event passes at once."""
    sweeping = asyncio.ensure_future(Retention(bus.context).sweep())
    while not sweeping.done():
        await asyncio.sleep(0)
        if bus.clock.due is not None:
            bus.clock.advance(0.1)
    return sweeping.result()


@pytest.fixture
async def bus(tutti_bus: BusKit) -> BusKit:
    """Five events, ten seconds apart; the last is ten seconds old."""
    await tutti_bus.advertise(Step)
    for number in range(5):
        await tutti_bus.publish(Step(number, "x" * 1_000))
        tutti_bus.clock.advance(10)
    return tutti_bus


def reader(name: str = "app", start: str = "earliest") -> tutti.Subscriber:
    app = tutti.Subscriber(name)

    @app.on(Step, start=start)  # type: ignore[arg-type]  # one of the two words
    async def step(event: Step) -> None: ...

    return app


async def test_without_settings_everything_is_kept(bus: BusKit) -> None:
    assert await sweep(bus) == {}
    assert (await info(bus)).messages == 5


async def test_what_is_too_old_goes(bus: BusKit) -> None:
    await settings(bus, tutti.Stream(max_age=25))
    assert await sweep(bus) == {"events": 3}
    assert (await info(bus)).first == 4
    assert await sweep(bus) == {}


async def test_everything_may_be_too_old(bus: BusKit) -> None:
    await settings(bus, tutti.Stream(max_age=1))
    assert await sweep(bus) == {"events": 5}
    assert (await bus.publish(Step(9))).sequence == 6


async def test_what_is_too_much_goes_oldest_first(bus: BusKit) -> None:
    size = (await info(bus)).bytes
    await settings(bus, tutti.Stream(max_bytes=size // 2))
    await sweep(bus)
    assert (await info(bus)).bytes <= size // 2
    assert (await info(bus)).last == 5


async def test_a_durable_reader_holds_back_what_it_has_not_read(bus: BusKit) -> None:
    await settings(bus, tutti.Stream(max_age=1))
    service = await bus.start(reader())
    await sweep(bus)  # nothing is read yet
    assert (await info(bus)).messages == 5
    await bus.stop(service)
    async with bus.serve(reader()):
        await bus.settle()
    await sweep(bus)
    assert (await info(bus)).messages == 0
    assert [event.number for event in bus.handled("step")] == [0, 1, 2, 3, 4]


async def test_the_slowest_reader_decides(bus: BusKit) -> None:
    await settings(bus, tutti.Stream(max_age=1))
    slow = tutti.Subscriber("slow", policy=tutti.Policy(attempts=9))

    @slow.on(Step, start="earliest", name="slow")
    async def step(event: Step) -> None:
        if event.number == 2:
            raise ValueError("not yet")

    async with bus.serve(reader()):
        await bus.settle()
    service = await bus.start(slow)
    while len([call for call in bus.calls if call.subscription == "slow"]) < 3:
        await asyncio.sleep(0)
    await bus.stop(service)
    await sweep(bus)
    assert (await info(bus)).first == 3


async def test_an_ephemeral_reader_holds_back_nothing(bus: BusKit) -> None:
    await settings(bus, tutti.Stream(max_age=1))
    watcher = tutti.Subscriber("watch", ephemeral=True)

    @watcher.on(Step, start="earliest")
    async def step(event: Step) -> None: ...

    async with bus.serve(watcher):
        await bus.settle()
        assert await registrations(bus.context) == []
        assert await sweep(bus) == {"events": 5}
