"""Three servers and streams in three copies: the loss of one server, the leader too, loses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import tutti
from tests.integration.nats_server import NatsServer, start_cluster
from tutti.runtime.bus import Bus

EVENTS = 3_000
WINDOW = 20
PATIENCE_SECONDS = 30.0  # the servers take 4 to 9 s to agree on a new leader


class Step(tutti.Event, stream="steps"):
    number: int


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Sequence[NatsServer]]:
    servers = await start_cluster(tmp_path, synced=True)
    yield servers
    for server in servers:
        server.kill()


def connected(servers: Sequence[NatsServer], first: int, name: str, *, replicas: int | None = 3) -> Bus:
    """A bus that comes to `first` and knows the others."""
    order = [*servers[first:], *servers[:first]]
    options = tutti.NatsOptions(
        monitor_url=",".join(server.monitor_url for server in order), reconnect_max_delay=0.2, name=name
    )
    streams = {"steps": tutti.Stream(replicas=replicas)} if replicas is not None else None
    return tutti.connect(
        [server.url for server in order], name=name, streams=streams, options=options, timeout=PATIENCE_SECONDS
    )


async def place_of_leader(bus: Bus) -> int:
    """Which of the servers s1, s2, s3 leads the stream of events."""
    while True:
        info = await bus.context.transport.stream_info(bus.context.layout.event_stream("steps"))
        assert info is not None
        assert info.replicas == 3
        if info.leader:
            return int(info.leader[1:]) - 1


async def test_the_loss_of_a_server_loses_nothing(cluster: Sequence[NatsServer]) -> None:
    handled: list[int] = []
    sequences: list[int] = []
    app = tutti.Subscriber("app")

    @app.on(Step, start="earliest")
    async def step(event: Step, delivery: tutti.Delivery) -> None:
        handled.append(event.number)
        sequences.append(delivery.sequence)

    async with AsyncExitStack() as stack:
        publisher = await stack.enter_async_context(connected(cluster, 0, "publisher"))
        reader = await stack.enter_async_context(connected(cluster, 1, "reader"))
        await publisher.advertise(Step)
        await reader.start(app)
        acknowledged: list[int] = []

        async def publish(first: int, last: int) -> None:
            for start in range(first, last, WINDOW):
                window = range(start, min(start + WINDOW, last))
                stored = await asyncio.gather(*(publisher.publish(Step(number)) for number in window))
                acknowledged.extend(one.sequence for one in stored)

        await publish(0, EVENTS // 3)
        leader = await place_of_leader(publisher)
        going_on = asyncio.create_task(publish(EVENTS // 3, EVENTS * 2 // 3))
        await asyncio.sleep(0)
        cluster[leader].kill()
        await going_on
        await cluster[leader].start()
        await cluster[leader].healthy()

        going_on = asyncio.create_task(publish(EVENTS * 2 // 3, EVENTS))
        await asyncio.sleep(0)
        cluster[(await place_of_leader(publisher) + 1) % 3].kill()
        await going_on
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(set(handled)) < EVENTS:
                await asyncio.sleep(0.01)
        assert acknowledged == sorted(set(acknowledged))
        assert publisher.health().state == reader.health().state == "ok"
        assert reader.metrics.total("tutti_missing_total") == 0
    firsts = list(dict.fromkeys(handled))
    assert firsts == list(range(EVENTS))
    assert sorted(set(sequences)) == acknowledged


async def test_who_declares_no_copies_does_not_take_them_away(cluster: Sequence[NatsServer]) -> None:
    async with connected(cluster, 0, "first") as first:
        await first.advertise(Step)
        async with connected(cluster, 1, "second", replicas=None) as second:
            await second.advertise(Step)
            layout, transport = second.context.layout, second.context.transport
            names = [layout.state_stream, layout.queue_stream, layout.dead_stream, layout.event_stream("steps")]
            found = [await transport.stream_info(name) for name in names]
    assert [info.replicas for info in found if info is not None] == [3, 3, 3, 3]
