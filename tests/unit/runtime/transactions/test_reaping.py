from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

import tutti
from tests.unit.runtime.transactions.operated import Invitation, Meeting, Site, bus_of, site_in
from tutti.journal import Proposal
from tutti.model.transaction import Outcome
from tutti.resources import BranchId
from tutti.runtime.bus import Bus
from tutti.runtime.transactions import reaping
from tutti.runtime.transactions.reaping import ParticipantReaper, PublisherReaper, ask_recovery


@pytest_asyncio.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with site_in(tmp_path) as site:
        yield site


@pytest_asyncio.fixture
async def bus(tmp_path: Path, site: Site) -> AsyncIterator[Bus]:
    async with bus_of(tmp_path) as bus:
        await bus.coordinator()
        yield bus


def rooms(site: Site) -> tutti.Subscriber:
    subscriber = tutti.Subscriber("rooms", resources=[site.calendar])

    @subscriber.join(Meeting)
    async def always(invite: tutti.Invite[Meeting]) -> bool:
        return True

    @subscriber.on(Invitation)
    async def book(event: Invitation, tx: tutti.Branch) -> None: ...

    return subscriber


def reaper(bus: Bus) -> ParticipantReaper:
    participants = bus.services[0].participants
    assert participants is not None
    return ParticipantReaper(participants)


@pytest.mark.parametrize(("outcome", "left"), [("abort", 0), ("commit", 1), (None, 1)])
async def test_a_participants_branch_without_a_row_is_rolled_back_once_it_is_aborted(
    bus: Bus, site: Site, outcome: Outcome | None, left: int
) -> None:
    tx = await site.begun()
    await site.prepare("rooms", tx)
    if outcome is not None:
        await site.journal.decide(Proposal(tx, outcome, 1))
    async with bus.serve(rooms(site)):
        await reaper(bus).look()
        assert len(site.store.prepared) == left
    assert site.store.data == {}


async def test_the_own_log_counts_before_the_journal(bus: Bus, site: Site) -> None:
    waits, over = await site.begun(), await site.begun()
    for tx in (waits, over):
        await site.voted(tx)
        await site.journal.decide(Proposal(tx, "abort", 1))
    await site.closed(over, "aborted")
    await site.log.beat("rooms-0", seconds=60)  # it lives, and finishes its own
    async with bus.serve(rooms(site)):
        await reaper(bus).look()
        assert [str(doubt.branch) for doubt in site.store.prepared] == [f"rooms:{waits}:calendar-1"]


async def test_what_others_prepared_stays(bus: Bus, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of another owner, of a transaction that nobody knows, of none of ours, and for a compensation."""
    monkeypatch.setattr(reaping, "RECOVERY_ANSWER_SECONDS", 0.05)
    tx = await site.begun()
    await site.journal.decide(Proposal(tx, "abort", 1))
    for branch in (
        BranchId("hotel", tx, "calendar-1"),
        BranchId("rooms", f"{site.journal.id}-r9-9", "calendar-1"),
        BranchId("rooms", "elsewhere-r9-9", "calendar-1"),
        BranchId("rooms", "nonsense", "calendar-1"),
        BranchId("rooms", tx, "calendar-1-u2"),
    ):
        await (await site.calendar.begin(branch)).prepare()
    prepared = len(site.store.prepared)
    async with bus.serve(rooms(site)):
        await reaper(bus).look()
        assert len(site.store.prepared) == prepared


async def test_a_publishers_branch_is_rolled_back_once_it_is_aborted(bus: Bus, site: Site) -> None:
    """As it is left by one that stood still while a successor aborted, and prepared then."""
    coordinator = await bus.coordinator()
    coordinator.resources["calendar"] = site.calendar
    aborted, committed, undecided = [await site.begun() for _ in range(3)]
    for tx in (aborted, committed, undecided, f"{site.journal.id}-r9-9", "elsewhere-r9-9", "nonsense"):
        await site.prepare("publisher", tx)
    await site.journal.decide(Proposal(aborted, "abort", 1))
    await site.journal.decide(Proposal(committed, "commit", 1))
    await PublisherReaper(coordinator).look()
    left = {doubt.branch.tx for doubt in site.store.prepared}
    assert left == {committed, undecided, f"{site.journal.id}-r9-9", "elsewhere-r9-9", "nonsense"}


async def test_reapers_run_by_themselves(bus: Bus, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaping, "REAP_SECONDS", 0.01)
    tx = await site.begun()
    await site.prepare("rooms", tx)
    await site.journal.decide(Proposal(tx, "abort", 1))
    async with bus.serve(rooms(site)), asyncio.timeout(20):
        while site.store.prepared:
            await asyncio.sleep(0.01)


async def test_a_database_that_does_not_answer_is_asked_again(
    bus: Bus, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuses(owner: str = "") -> None:
        raise tutti.errors.ResourceUnreachable(f"away, {owner}")

    monkeypatch.setattr(site.calendar, "recover", refuses)
    async with bus.serve(rooms(site)):
        await reaper(bus).look()


async def test_whoever_shares_the_journal_answers(bus: Bus, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = await bus.coordinator()
    tx = await site.begun()
    answer = await ask_recovery(coordinator.channel, coordinator.layout, tx)
    assert getattr(answer, "answer", "") == "undecided"
    monkeypatch.setattr(reaping, "RECOVERY_ANSWER_SECONDS", 0.05)
    assert await ask_recovery(coordinator.channel, coordinator.layout, "elsewhere-r1-1") is None
