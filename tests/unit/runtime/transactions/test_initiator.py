"""A transaction from its publisher's side, with members that speak the protocol by hand."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

import tutti
from tests.unit.runtime.transactions.scripted_member import Answer, ScriptedMember
from tutti.control.transaction import messages as told
from tutti.errors import (
    CensusFailed,
    DeclarationError,
    JournalError,
    JournalUnfit,
    TransactionAborted,
    TransactionClosed,
    UncheckedTransaction,
)
from tutti.model.transaction import CensusRule
from tutti.model.txtype import TxType
from tutti.resources.memory import MemoryResource, MemoryStore
from tutti.runtime.bus import Bus
from tutti.runtime.transactions.manager import Managed


class Invitation(tutti.Event):
    room: str


class Stray(tutti.Event):
    text: str


class Meeting(TxType, events=[Invitation]):
    subject: str


class Floor:
    """A bus in memory, and members on it."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.members: list[ScriptedMember] = []

    async def member(self, vote: Answer = "yes", **options: Any) -> ScriptedMember:
        from tutti.model.txtype import transaction_type  # noqa: PLC0415  its name has the module in it

        member = ScriptedMember(self.bus.context, transaction_type(Meeting).name, vote=vote, **options)
        await member.start()
        self.members.append(member)
        return member

    def transaction(self, **options: Any) -> Any:
        rule = CensusRule(at_least=len(self.members), at_most=len(self.members), within=2.0)
        return self.bus.transaction(Meeting("DSOnline"), **({"census": rule} | options))


@pytest_asyncio.fixture
async def floor() -> AsyncIterator[Floor]:
    async with tutti.connect("memory://") as bus:
        await bus.advertise(Invitation, Stray)
        floor = Floor(bus)
        yield floor
        for member in floor.members:
            await member.close()


async def test_leaving_the_block_commits(floor: Floor) -> None:
    one, two = await floor.member(), await floor.member()
    async with floor.transaction() as tx:
        assert len(tx.members) == 2
        await tx.publish(Invitation("FW26"))
        await tx.commit(wait="ended")
    assert (one.outcomes, two.outcomes) == (["commit"], ["commit"])
    journal = (await floor.bus.coordinator()).journal
    decision: Any = await journal.decision(tx.id)
    assert decision.outcome == "commit"


async def test_private_events_are_read_by_members_alone(floor: Floor) -> None:
    member = await floor.member()
    heard = await floor.bus.context.transport.listen("tutti.tx.>")
    async with floor.transaction() as tx:
        await tx.publish(Invitation("FW26"))
    record = await anext(aiter(heard))
    assert b"FW26" not in record.data
    assert "FW26" not in record.subject + str(dict(record.headers))
    assert member.events[0][1] == b'{"room":"FW26"}'
    await heard.close()


@pytest.mark.parametrize("scope", ["private", "public"])
async def test_a_status_says_whether_outsiders_need_to_look(floor: Floor, scope: Any) -> None:
    await floor.member()
    async with floor.transaction(scope=scope) as tx:
        await tx.publish(Invitation("FW26"))
    dossier: Any = await (await floor.bus.coordinator()).journal.show(tx.id)
    assert [queued.status.scope for queued in dossier.statuses] == [scope]


async def test_public_events_can_be_read(floor: Floor) -> None:
    member = await floor.member()
    async with floor.transaction(scope="public") as tx:
        await tx.publish(Invitation("FW26"))
    assert member.events[0][1] == b'{"room":"FW26"}'
    assert member.events[0][0].tx == tx.id


async def test_a_no_aborts(floor: Floor) -> None:
    yes, no = await floor.member(), await floor.member("no")
    with pytest.raises(TransactionAborted) as raised:
        async with floor.transaction() as tx:
            await tx.publish(Invitation("FW26"))
    assert "I do not like it" in raised.value.reason
    await asyncio.sleep(0.01)
    assert (yes.outcomes, no.outcomes) == (["abort"], ["abort"])


async def test_an_exception_in_the_block_aborts_and_goes_on(floor: Floor) -> None:
    member = await floor.member()
    with pytest.raises(ZeroDivisionError):  # noqa: PT012  the block is what is tested
        async with floor.transaction() as tx:
            await tx.publish(Invitation("FW26"))
            _ = 1 / 0
    await asyncio.sleep(0.01)
    assert member.outcomes == ["abort"]


async def test_the_last_event_carries_the_prepare(floor: Floor) -> None:
    member = await floor.member()
    async with floor.transaction() as tx:
        await tx.publish(Invitation("FW25"))
        await tx.publish(Invitation("FW26"), last=True)
        with pytest.raises(TransactionClosed):
            await tx.publish(Invitation("FW27"))
        await tx.commit(wait="ended")
    kinds = [type(message).__name__ for message in member.said]
    assert kinds[:4] == ["Invite", "Begin", "Prepare", "Decide"], "no round of counting is needed"


async def test_a_census_that_fails_tells_who_came(floor: Floor) -> None:
    await floor.member(name="ada")
    rule = CensusRule(at_least=2, within=0.05)
    with pytest.raises(CensusFailed) as raised:
        async with floor.bus.transaction(Meeting("x"), census=rule):
            pytest.fail("it must not begin")
    assert [offer.name for offer in raised.value.replies] == ["ada"]


async def test_who_is_waited_for_is_named(floor: Floor) -> None:
    await floor.member("silent", name="ada")
    async with floor.transaction() as tx:
        await tx.publish(Invitation("FW26"))
        with pytest.raises(UncheckedTransaction) as raised:
            await tx.commit(timeout=0.05)
        assert "ada" in str(raised.value)
        await tx.abort("enough")
    with pytest.raises(TransactionAborted):
        await tx.commit()


async def test_leaving_the_block_unchecked_aborts(floor: Floor, monkeypatch: pytest.MonkeyPatch) -> None:
    member = await floor.member("silent")
    async with floor.transaction() as tx:
        await tx.publish(Invitation("FW26"))
        with pytest.raises(UncheckedTransaction):
            await tx.commit(timeout=0)
    with pytest.raises(TransactionAborted, match="left it without a decision"):
        await tx.commit()
    monkeypatch.setattr(type(tx).commit, "__kwdefaults__", {"timeout": 0.05, "wait": "decided"})
    with pytest.raises(UncheckedTransaction):
        async with floor.transaction() as tx:
            await tx.publish(Invitation("FW26"))
    with pytest.raises(TransactionAborted, match="waited no longer"):
        await tx.commit()
    await asyncio.sleep(0.01)
    assert member.outcomes == ["abort", "abort"]


async def test_events_that_the_type_does_not_name_are_refused(floor: Floor) -> None:
    await floor.member()
    with pytest.raises(DeclarationError, match="not among the events"):
        async with floor.transaction() as tx:
            await tx.publish(Stray("x"))


async def test_own_resources_commit_and_roll_back_with_it(floor: Floor) -> None:
    await floor.member()
    store = MemoryStore()
    calendar = MemoryResource("calendar", store)
    await calendar.start()
    async with floor.transaction() as tx:
        (await tx.enlist(calendar)).put("a", 1)
        await tx.commit(wait="ended")
    with pytest.raises(ZeroDivisionError):  # noqa: PT012  as above
        async with floor.transaction() as tx:
            (await tx.enlist(calendar)).put("b", 1)
            _ = 1 / 0
    await asyncio.sleep(0.01)
    assert store.data == {"a": 1}
    assert not store.prepared


async def test_after_an_abort_nothing_of_ones_own_is_held(floor: Floor) -> None:
    await floor.member("no")
    store = MemoryStore()
    calendar = MemoryResource("calendar", store)
    rollback = calendar.rollback

    async def slow(*given: Any, **options: Any) -> None:
        await asyncio.sleep(0.05)
        await rollback(*given, **options)

    calendar.rollback = slow  # type: ignore[method-assign]  # a database that takes its time
    with pytest.raises(TransactionAborted):  # noqa: PT012  the block is what is tested
        async with floor.transaction() as tx:
            (await tx.enlist(calendar)).put("a", 1)
            await tx.publish(Invitation("FW26"))
    assert not store.prepared


async def test_a_bus_that_closes_lets_what_is_decided_end() -> None:
    store = MemoryStore()
    calendar = MemoryResource("calendar", store)
    commit = calendar.commit

    async def slow(*given: Any, **options: Any) -> None:
        await asyncio.sleep(0.05)
        await commit(*given, **options)

    calendar.commit = slow  # type: ignore[method-assign]  # as above
    async with tutti.connect("memory://") as bus:
        await bus.advertise(Invitation)
        floor = Floor(bus)
        member = await floor.member()
        async with floor.transaction() as tx:
            (await tx.enlist(calendar)).put("a", 1)
            await tx.publish(Invitation("FW26"))
        assert store.prepared, "the decision is durable; the rest follows"
    await member.close()
    assert (store.data, list(store.prepared)) == ({"a": 1}, [])


async def test_a_member_that_falls_silent_is_lost(floor: Floor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tutti.runtime.transactions.coordinator.MEMBER_LOST_SECONDS", 0.05)
    member = await floor.member("silent")
    member.instance = "nobody"
    with pytest.raises(TransactionAborted, match="does not answer any more"):
        async with floor.transaction() as tx:
            await tx.publish(Invitation("FW26"))


async def test_a_loss_is_told_again_while_it_lasts(floor: Floor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tutti.runtime.transactions.coordinator.MEMBER_LOST_SECONDS", -1.0)
    monkeypatch.setattr("tutti.runtime.transactions.coordinator.MANAGER_WATCH_SECONDS", 3_600.0)
    member = await floor.member("silent")
    member.instance = "nobody"
    coordinator = await floor.bus.coordinator()
    told: list[object] = []
    async with floor.transaction() as tx:
        managed = coordinator._managed[tx.id]
        monkeypatch.setattr(managed, "take", told.append)
        coordinator._watch_members()
        coordinator._watch_members()  # it may have been forgotten with a late message, or a new round
        monkeypatch.undo()
        await tx.abort("enough")
    assert len(told) == 2


@pytest.mark.parametrize("options", [{"deadline": 0}, {"deadline": -1}, {"group": "no spaces"}])
async def test_what_makes_no_sense_is_refused(floor: Floor, options: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError):
        floor.bus.transaction(Meeting("x"), **options)


async def test_closing_waits_for_ends_that_are_being_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a successor would look for members that may be gone, again and again."""
    writing, go_on = asyncio.Event(), asyncio.Event()
    written: list[str] = []
    async with tutti.connect("memory://") as bus:
        await bus.advertise(Invitation)
        floor = Floor(bus)
        member = await floor.member()
        journal = (await bus.coordinator()).journal
        finish = journal.finish

        async def slow(tx: str, epoch: int) -> None:
            writing.set()
            await go_on.wait()
            await finish(tx, epoch)
            written.append(tx)

        monkeypatch.setattr(journal, "finish", slow)
        async with floor.transaction() as tx:
            await tx.publish(Invitation("FW26"))
            await tx.commit(wait="ended")
        await writing.wait()
        await member.close()
        asyncio.get_running_loop().call_later(0.05, go_on.set)  # closing has come to its end by then, or waits
    assert written == [tx.id]


async def test_an_end_that_cannot_be_written_keeps_no_other_waiting(
    floor: Floor, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator = await floor.bus.coordinator()
    await floor.member()
    journal, finish, asked = coordinator.journal, coordinator.journal.finish, list[str]()

    async def refusing(tx: str, epoch: int) -> None:
        asked.append(tx)
        if tx.endswith("-1"):
            raise JournalUnfit("it went back")
        await finish(tx, epoch)

    monkeypatch.setattr(journal, "finish", refusing)
    for _ in range(2):
        async with floor.transaction() as tx:
            await tx.publish(Invitation("FW26"))
            await tx.commit(wait="ended")
        with contextlib.suppress(JournalError):
            await coordinator._write_now()
    assert asked.count(tx.id) == 1
    assert [tx.rpartition("-")[2] for tx, _ in coordinator._finished] == ["1"]


async def test_instances_that_are_gone_are_not_remembered(floor: Floor, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = await floor.bus.coordinator()
    monkeypatch.setattr("tutti.runtime.transactions.coordinator.MEMBER_LOST_SECONDS", 0.05)
    subject = floor.bus.context.layout.heartbeat("somebody")
    floor.bus.context.transport.emit(subject, {}, b"")
    async with asyncio.timeout(5):
        while not coordinator.heard("somebody"):
            await asyncio.sleep(0.005)
        while coordinator.heard("somebody"):
            await asyncio.sleep(0.005)


async def test_an_event_that_cannot_be_composed_is_told_between_steps(
    floor: Floor, monkeypatch: pytest.MonkeyPatch
) -> None:
    await floor.member()
    monkeypatch.setattr("tutti.runtime.transactions.events.HEADERS_MAX_BYTES", 10)
    take, depth, deepest = Managed.take, 0, 0

    def counting(managed: Managed, given: told.Input) -> None:
        nonlocal depth, deepest
        depth += 1
        deepest = max(deepest, depth)
        try:
            take(managed, given)
        finally:
            depth -= 1

    monkeypatch.setattr(Managed, "take", counting)
    with pytest.raises(TransactionAborted, match="the headers of an event"):
        async with floor.transaction() as tx:
            await tx.publish(Invitation("FW26"), last=True)
    assert deepest == 1
