"""Which partitions are whose: written with compare-and-set, told to the owner."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec

from tutti.bus.memory import MemoryCluster, MemoryTransport
from tutti.bus.port import Transport
from tutti.limits import PARTITIONS_COUNT
from tutti.model.subjects import Layout
from tutti.runtime.bus import Bus
from tutti.runtime.leases import Lease, Leases


class Holder:
    """Remembers what it was told."""

    def __init__(self, *, willing: bool = True) -> None:
        self.epochs: dict[int, int] = {}
        self.drained: list[int] = []
        self.willing = willing

    async def begin(self, partition: int, epoch: int) -> bool:
        if self.willing:
            self.epochs[partition] = epoch
        return self.willing

    async def drain(self, partition: int) -> None:
        self.drained.append(partition)
        self.lose(partition)

    def lose(self, partition: int) -> None:
        self.epochs.pop(partition, None)

    def changed(self) -> None: ...


@asynccontextmanager
async def instance(cluster: MemoryCluster, holder: Holder) -> AsyncIterator[Leases]:
    async def open_transport(layout: Layout) -> Transport:
        transport = MemoryTransport(layout, cluster=cluster)
        await transport.start()
        return transport

    async with Bus(open_transport) as bus:
        leases = Leases(bus.context, "app", bus.context.instance, holder)
        await leases.start()
        try:
            yield leases
        finally:
            await leases.close()


async def records(cluster: MemoryCluster) -> dict[int, Lease]:
    transport = MemoryTransport(Layout(), cluster=cluster)
    await transport.start()
    entries = await transport.state_list("lease.app")
    await transport.close()
    return {int(e.key.rsplit(".", 1)[1]): msgspec.json.decode(e.value, type=Lease) for e in entries}


async def until(condition: object) -> None:
    async with asyncio.timeout(10):
        while not condition():  # type: ignore[operator]  # any callable
            await asyncio.sleep(0.01)


async def test_the_first_instance_has_everything_when_start_returns() -> None:
    cluster, holder = MemoryCluster(), Holder()
    async with instance(cluster, holder) as leases:
        assert holder.epochs == dict.fromkeys(range(PARTITIONS_COUNT), 1)
        assert all(leases.may_run(partition, time.monotonic()) for partition in range(PARTITIONS_COUNT))
        written = await records(cluster)
        assert len({lease.owner for lease in written.values()}) == 1


async def test_who_leaves_hands_everything_back_and_the_next_has_it_at_once() -> None:
    cluster, first, second = MemoryCluster(), Holder(), Holder()
    async with instance(cluster, first) as leases:
        await leases.stop()
        assert sorted(first.drained) == list(range(PARTITIONS_COUNT))
        assert {lease.owner for lease in (await records(cluster)).values()} == {""}
    async with instance(cluster, second):
        assert second.epochs == dict.fromkeys(range(PARTITIONS_COUNT), 2)


async def test_two_share_and_nobody_has_what_the_other_has() -> None:
    cluster, first, second = MemoryCluster(), Holder(), Holder()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(instance(cluster, first))
        await stack.enter_async_context(instance(cluster, second))
        await until(lambda: len(second.epochs) == PARTITIONS_COUNT // 2)
        assert not first.epochs.keys() & second.epochs.keys()
        assert set(second.epochs.values()) == {2}
        assert sorted(first.drained) == sorted(second.epochs)


async def test_an_owner_that_cannot_begin_gives_the_partition_back() -> None:
    cluster, holder = MemoryCluster(), Holder(willing=False)
    async with instance(cluster, holder) as leases:
        assert holder.epochs == {}
        assert not any(leases.may_run(partition, time.monotonic()) for partition in range(PARTITIONS_COUNT))
        holder.willing = True
        await until(lambda: len(holder.epochs) == PARTITIONS_COUNT)
        assert min(holder.epochs.values()) > 1
