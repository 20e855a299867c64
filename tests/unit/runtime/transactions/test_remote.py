"""Managers that run as a service: two buses on one cluster in memory, one of which manages for the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

import tutti
from tutti.bus.memory import MemoryCluster, MemoryTransport
from tutti.bus.port import Transport
from tutti.control.conversation import Packet
from tutti.control.transaction import messages as told
from tutti.control.transaction import sides
from tutti.errors import CensusFailed, DeclarationError, GroupUnfit, InvalidMessage, TransactionAborted
from tutti.model.subjects import Layout
from tutti.resources.memory import MemoryResource, MemoryStore
from tutti.runtime.bus import Bus
from tutti.runtime.transactions.coordinator import Coordinator
from tutti.runtime.transactions.keys import SigningKey
from tutti.runtime.transactions.line import sealed, unsealed, unsealed_by
from tutti.runtime.transactions.opening import CoordinatorOpener


class Step(tutti.Event):
    number: int


class Pledge(tutti.TxType, events=[Step]):
    what: str


class Site:
    """A service, a publisher without a journal, and a subscriber that takes part."""

    def __init__(self, cluster: MemoryCluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.steps: list[int] = []
        self.app = tutti.Subscriber("app")
        self.app.enrol("team", Pledge)
        self.store = MemoryStore()
        self.calendar = MemoryResource("calendar", self.store)

        @self.app.join(Pledge)
        async def always(_: tutti.Invite[Pledge]) -> bool:
            return True

        @self.app.on(Step)
        async def step(event: Step, tx: tutti.Branch) -> None:
            if event.number == 13:
                tx.set_abort("bad luck")
            self.steps.append(event.number)

    def bus(self, **options: Any) -> Bus:
        async def open_transport(layout: Layout) -> Transport:
            transport = MemoryTransport(layout, cluster=self.cluster)
            await transport.start()
            return transport

        return Bus(open_transport, **options)

    def service(self) -> Bus:
        resource = MemoryResource("calendar", self.store)
        return self.bus(open_coordinator=CoordinatorOpener(self.folder, self.folder, [resource]))

    def publisher(self) -> Bus:
        return self.bus(manager="service")


@pytest_asyncio.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    yield Site(MemoryCluster(), tmp_path)


@pytest_asyncio.fixture
async def served(site: Site) -> AsyncIterator[Coordinator]:
    async with site.service() as service:
        await service.advertise(Step)
        async with service.serve(site.app):
            yield await service.host()


ONE = tutti.Census(at_most=1)


async def until(holds: Callable[[], bool], seconds: float = 5.0) -> None:
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("scope", ["private", "public"])
@pytest.mark.parametrize("group", ["", "team"])
async def test_it_is_the_same_transaction(site: Site, served: Coordinator, scope: Any, group: str) -> None:
    async with site.publisher() as bus:
        chosen: dict[str, Any] = {"group": group} if group else {"census": ONE}
        async with bus.transaction(Pledge("x"), scope=scope, **chosen) as tx:
            assert len(tx.members) == 1
            (await tx.enlist(site.calendar)).put("a", 1)
            await tx.publish(Step(1))
            await tx.publish(Step(2), last=True)
            with pytest.raises(tutti.TransactionClosed):
                await tx.publish(Step(3))
            await tx.commit(wait="ended")
        decision: Any = await served.journal.decision(tx.id)
        assert decision.outcome == "commit"
    assert site.steps == [1, 2]
    assert site.store.data == {"a": 1}
    assert not site.store.prepared


async def test_a_vote_to_abort_reaches_the_publisher(site: Site, served: Coordinator) -> None:
    async with site.publisher() as bus:
        with pytest.raises(TransactionAborted, match="bad luck"):  # noqa: PT012  the block is what is tested
            async with bus.transaction(Pledge("x"), census=ONE) as tx:
                (await tx.enlist(site.calendar)).put("a", 1)
                await tx.publish(Step(13))
        await until(lambda: not site.store.prepared)
    assert site.store.data == {}


async def test_an_exception_aborts(site: Site, served: Coordinator) -> None:
    async with site.publisher() as bus:
        with pytest.raises(ZeroDivisionError):  # noqa: PT012  the block is what is tested
            async with bus.transaction(Pledge("x"), census=ONE) as tx:
                await tx.publish(Step(1))
                _ = 1 / 0
        decision: Any = await served.journal.decision(tx.id)
        assert decision.outcome == "abort"


async def test_a_wire_that_loses_every_third_packet_changes_nothing(
    site: Site, served: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    emit, count = MemoryTransport.emit, 0

    def lossy(self: MemoryTransport, subject: str, *rest: Any, **options: Any) -> None:
        nonlocal count
        count += 1
        if count % 3:
            emit(self, subject, *rest, **options)

    monkeypatch.setattr(MemoryTransport, "emit", lossy)
    async with site.publisher() as bus, bus.transaction(Pledge("x"), group="team") as tx:
        await tx.publish(Step(1))
        await tx.publish(Step(2))
    assert site.steps == [1, 2]


async def test_a_census_without_joins_fails_there_too(site: Site, served: Coordinator) -> None:
    async with site.publisher() as bus:
        with pytest.raises(CensusFailed) as raised:
            async with bus.transaction(Pledge("x"), census=tutti.Census(at_least=2, within=0.1)):
                pytest.fail("it must not begin")
    assert len(raised.value.replies) == 1


async def test_a_group_that_is_not_there_is_said_as_at_home(site: Site, served: Coordinator) -> None:
    async with site.publisher() as bus:
        with pytest.raises(GroupUnfit, match="nobody is enrolled"):
            async with bus.transaction(Pledge("x"), group="nobody"):
                pytest.fail("it must not begin")


async def test_code_does_not_travel(site: Site, served: Coordinator) -> None:
    rule = tutti.Census(predicate=lambda offers: len(offers) > 1)
    async with site.publisher() as bus:
        with pytest.raises(DeclarationError, match="Python code"):
            async with bus.transaction(Pledge("x"), census=rule):
                pytest.fail("it must not begin")


async def test_without_a_service_nothing_begins(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tutti.runtime.transactions.remote.MANAGER_ANSWER_SECONDS", 0.05)
    async with site.publisher() as bus:
        with pytest.raises(tutti.TransactionError, match="no manager answers") as raised:
            async with bus.transaction(Pledge("x"), census=ONE):
                pytest.fail("it must not begin")
    assert "tutti up" in raised.value.hint


async def test_a_publisher_that_dies_aborts(
    site: Site, served: Coordinator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tutti.control.conversation.CONVERSATION_LOST_SECONDS", 0.2)
    async with site.publisher() as bus:
        doomed = bus.transaction(Pledge("x"), census=ONE)
        tx = await doomed.__aenter__()
        (await tx.enlist(site.calendar)).put("a", 1)
        await tx.publish(Step(1))
        remote: Any = await bus._managers()
        remote._talking[tx.id].line.hang_up()  # as a process that was killed: it says nothing more
        waiting: list[Any] = []

        async def decided() -> bool:
            waiting[:] = [await served.journal.decision(tx.id)]
            return getattr(waiting[0], "outcome", "") == "abort"

        async with asyncio.timeout(5):
            while not await decided():
                await asyncio.sleep(0.02)
        assert "publisher is lost" in waiting[0].reason
        await until(lambda: not site.store.prepared)
    assert site.store.data == {}


async def test_a_publisher_that_has_heard_of_the_end_is_not_missed(
    site: Site, served: Coordinator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tutti.control.conversation.CONVERSATION_LOST_SECONDS", 0.1)
    host: Any = served._host
    async with site.publisher() as bus:
        async with bus.transaction(Pledge("x"), census=ONE) as tx:
            await tx.publish(Step(1))
            await tx.commit(wait="ended")
        assert list(host._hosted) == [tx.id]
        await until(lambda: not host._hosted)
    assert "publisher is gone" not in caplog.text


async def test_a_service_that_dies_leaves_the_answer_to_the_journal(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tutti.control.conversation.CONVERSATION_LOST_SECONDS", 1.0)
    async with site.publisher() as bus, site.bus() as members:
        await bus.advertise(Step)
        async with members.serve(site.app):
            async with site.service() as first:
                await first.host()
                doomed = bus.transaction(Pledge("x"), census=ONE)
                tx = await doomed.__aenter__()
                (await tx.enlist(site.calendar)).put("a", 1)
                await tx.publish(Step(1))
            async with site.service() as second:  # it shares the journal, and finds what the first one left
                await second.coordinator()
                with pytest.raises(TransactionAborted, match="its manager is gone"):
                    await tx.commit(timeout=20.0)
                with pytest.raises(TransactionAborted, match="its manager is gone"):
                    await tx.commit()
    assert site.store.data == {}
    assert not site.store.prepared


async def test_strangers_cannot_talk_for_the_publisher(site: Site, served: Coordinator) -> None:
    async with site.publisher() as bus, bus.transaction(Pledge("x"), census=ONE) as tx:
        await tx.publish(Step(1))
        transport, stranger = bus.context.transport, SigningKey.fresh()
        packet = Packet(tx.id, 0, 4, (sides.encode(told.AbortRequested(1, "I want it", 0.0)),))
        for envelope in (sealed(sides.encode(packet), stranger), b"", b"noise", sides.encode(packet)):
            transport.emit(bus.context.layout.host(tx.id), {}, envelope)
            transport.emit(bus.context.layout.hosts, {}, envelope)
    decision: Any = await served.journal.decision(tx.id)
    assert decision.outcome == "commit"


def test_what_is_sealed_is_opened_by_whoever_knows_the_key() -> None:
    key, other = SigningKey.fresh(), SigningKey.fresh()
    envelope = sealed(b"body", key)
    assert unsealed(envelope) == (b"body", key.public)
    assert unsealed_by(envelope, key.public) == b"body"
    with pytest.raises(InvalidMessage):
        unsealed_by(envelope, other.public)
    with pytest.raises(InvalidMessage):
        unsealed(sealed(b"body", key, manager=True))  # a claim to speak for the journal proves nothing
