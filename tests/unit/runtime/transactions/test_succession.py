"""Who finishes what a manager left: whoever shares the journal; and whoever cannot reach a database hands on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import tutti
from tutti.bus.memory import MemoryCluster, MemoryTransport
from tutti.bus.port import Transport
from tutti.journal import Journal
from tutti.model.subjects import Layout
from tutti.resources.memory import MemoryResource, MemoryStore
from tutti.runtime.bus import Bus
from tutti.runtime.transactions.opening import CoordinatorOpener


class Step(tutti.Event):
    number: int


class Pledge(tutti.TxType, events=[Step]):
    what: str


class Place:
    """Processes of one host: they share a cluster and a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.cluster, self.store = folder, MemoryCluster(), MemoryStore()

    def process(self, *, able: bool = False) -> Bus:
        async def open_transport(layout: Layout) -> Transport:
            transport = MemoryTransport(layout, cluster=self.cluster)
            await transport.start()
            return transport

        resources = [MemoryResource("calendar", self.store)] if able else []
        return Bus(open_transport, open_coordinator=CoordinatorOpener(self.folder, self.folder, resources))

    async def abandoned(self) -> str:
        """A transaction whose publisher is gone, with something enlisted and nothing decided."""
        async with self.process(able=True) as bus:
            await bus.advertise(Step)
            async with bus.serve(team()):
                tx = await bus.transaction(Pledge("x"), census=tutti.Census(at_most=1)).__aenter__()
                (await tx.enlist(MemoryResource("calendar", self.store))).put("a", 1)
                await tx.publish(Step(1))
                await (await bus.coordinator()).close()
            return tx.id


def team() -> tutti.Subscriber:
    subscriber = tutti.Subscriber("team")

    @subscriber.join(Pledge, patience=0.1)
    async def always(_: tutti.Invite[Pledge]) -> bool:
        return True

    @subscriber.on(Step)
    async def step(event: Step, tx: tutti.Branch) -> None: ...

    return subscriber


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tutti.runtime.transactions.coordinator.JOURNAL_LEASE_SECONDS", 0.3)
    monkeypatch.setattr("tutti.runtime.transactions.coordinator._KEEP_SECONDS", 0.05)


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(10):
        while not await holds():
            await asyncio.sleep(0.02)


async def decided(journal: Journal, tx: str) -> bool:
    found: Any = await journal.decision(tx)
    return getattr(found, "outcome", "") == "abort"


async def test_who_cannot_finish_decides_and_hands_on(tmp_path: Path) -> None:
    place = Place(tmp_path)
    tx = await place.abandoned()
    async with place.process() as unable:
        journal = (await unable.coordinator()).journal
        await until(lambda: decided(journal, tx))
        assert [entry.record.tx for entry in await journal.entries(unfinished=True)] == [tx]
        async with place.process(able=True) as able:
            manager = (await able.coordinator()).manager

            async def taken_over() -> bool:
                return [entry.record.manager for entry in await journal.entries(unfinished=True)] == [manager]

            await until(taken_over)
        assert unable.health().failures == [], "it did what it can do: nothing is wrong with it"


async def test_a_participant_stands_by_where_there_is_a_journal(tmp_path: Path) -> None:
    place = Place(tmp_path)
    tx = await place.abandoned()
    async with place.process() as bus, bus.serve(team()):

        async def finished() -> bool:
            opened = bus._coordinator.opened
            return opened is not None and await decided(opened.journal, tx)

        await until(finished)


async def test_a_participant_makes_no_journal_of_its_own(tmp_path: Path) -> None:
    place = Place(tmp_path)
    await place.abandoned()
    elsewhere = Place(tmp_path / "elsewhere")
    elsewhere.cluster = place.cluster
    async with elsewhere.process() as bus, bus.serve(team()):
        await bus.stand_by()
        assert bus._coordinator.opened is None
    assert not (tmp_path / "elsewhere").exists()
