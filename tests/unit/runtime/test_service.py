"""Several instances of one subscriber: they share the partitions, and take over from each other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Annotated

import pytest

import tutti
from tutti.bus.memory import MemoryCluster, MemoryTransport
from tutti.bus.port import Transport
from tutti.model.subjects import Layout
from tutti.runtime.bus import Bus


class Step(tutti.Event):
    who: Annotated[str, tutti.key]
    number: int


def instance(cluster: MemoryCluster, name: str) -> Bus:
    async def open_transport(layout: Layout) -> Transport:
        transport = MemoryTransport(layout, cluster=cluster)
        await transport.start()
        return transport

    return Bus(open_transport, name=name)


@asynccontextmanager
async def three(cluster: MemoryCluster) -> AsyncIterator[list[Bus]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(instance(cluster, name)) for name in ("a", "b", "c")]


async def until(condition: object, seconds: float = 15) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # type: ignore[operator]  # any callable
            await asyncio.sleep(0.01)


def shares(buses: list[Bus]) -> list[int]:
    return sorted(len(service.partitions) for bus in buses for service in bus.services)


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster()


async def test_instances_share_the_work_and_keep_the_order_per_key(cluster: MemoryCluster) -> None:
    seen: dict[str, list[tuple[str, int]]] = {}
    app = tutti.Subscriber("app")

    @app.on(Step)
    async def step(event: Step, delivery: tutti.Delivery) -> None:
        seen.setdefault(event.who, []).append((delivery.id, event.number))

    async with three(cluster) as buses:
        await buses[0].advertise(Step)
        for bus in buses:
            await bus.start(app)
        await until(lambda: shares(buses) == [5, 5, 6])
        people = [f"p{n}" for n in range(40)]
        await buses[0].publish_many(Step(who, number) for number in range(10) for who in people)
        await until(lambda: sum(map(len, seen.values())) == 400)
    assert all([number for _, number in numbers] == list(range(10)) for numbers in seen.values())


async def test_a_partition_moves_while_events_flow_and_nothing_is_lost_or_repeated(cluster: MemoryCluster) -> None:
    seen: list[tuple[str, int]] = []
    app = tutti.Subscriber("app")

    @app.on(Step)
    async def step(event: Step) -> None:
        await asyncio.sleep(0)
        seen.append((event.who, event.number))

    async with three(cluster) as buses:
        await buses[0].advertise(Step)
        first = await buses[0].start(app)
        people = [f"p{n}" for n in range(20)]
        for number in range(30):
            if number == 10:
                await buses[1].start(app)
            if number == 20:
                await buses[0].stop(first)
            await buses[0].publish_many(Step(who, number) for who in people)
            await asyncio.sleep(0.03)
        await until(lambda: len(seen) >= 600)
        await until(lambda: shares(buses[1:2]) == [16])
    assert len(seen) == len(set(seen)) == 600
    for who in people:
        assert [number for name, number in seen if name == who] == list(range(30))


async def test_an_instance_that_dies_is_replaced_within_seconds(cluster: MemoryCluster) -> None:
    seen: list[int] = []
    app = tutti.Subscriber("app")

    @app.on(Step)
    async def step(event: Step) -> None:
        seen.append(event.number)

    async with three(cluster) as buses:
        await buses[0].advertise(Step)
        await buses[0].start(app)
        await buses[2].publish(Step("x", 1))
        await until(lambda: seen == [1])
        transport = buses[0].context.transport
        assert isinstance(transport, MemoryTransport)
        transport.cut()  # for the others it is dead
        await buses[1].start(app)
        await buses[2].publish(Step("x", 2))
        await until(lambda: seen[-1] == 2, seconds=8)
        assert seen in ([1, 2], [1, 1, 2])  # the first again, if its position was not written yet
        assert shares(buses[1:2]) == [16]
        transport.mend()


class Other(tutti.Event, type="Step"):
    who: Annotated[str, tutti.routing]


async def test_two_services_of_one_name_in_one_process_are_two_instances(cluster: MemoryCluster) -> None:
    seen: list[int] = []
    app = tutti.Subscriber("app")

    @app.on(Step)
    async def step(event: Step) -> None:
        seen.append(event.number)

    async with instance(cluster, "a") as bus:
        await bus.advertise(Step)
        first, second = await bus.start(app), await bus.start(app)
        await until(lambda: len(first.partitions) == len(second.partitions) == 8)
        await bus.publish_many(Step(f"p{n}", n) for n in range(50))
        await until(lambda: len(seen) >= 50)
    assert sorted(seen) == list(range(50))


async def test_a_position_that_cannot_be_written_is_written_later(cluster: MemoryCluster) -> None:
    app = tutti.Subscriber("app")

    @app.on(Step)
    async def step(event: Step) -> None: ...

    async with instance(cluster, "a") as bus:
        await bus.advertise(Step)
        service = await bus.start(app)
        await until(lambda: len(service.partitions) == 16)
        cluster.full.add("tutti-state")
        await bus.publish_many(Step(f"p{n}", n) for n in range(300))
        await until(lambda: service.unsaved and service.idle())
        await asyncio.sleep(0.3)
        cluster.full.clear()
        await until(lambda: not service.unsaved)
        entries = await bus.context.transport.state_list("position.app")
    assert sum(b'"step"' in entry.value for entry in entries) == 16


async def test_a_publisher_with_other_routing_attributes_is_noticed(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tutti.runtime.service.HORIZON_SECONDS", 0.05)
    app = tutti.Subscriber("app")

    @app.on(Step)
    async def step(event: Step) -> None: ...

    async with instance(cluster, "a") as bus:
        await bus.start(app)
        await bus.advertise(Other)
        await until(lambda: bus.health().state == "degraded")
        assert "advertised with ('who',)" in bus.health().failures[0]
