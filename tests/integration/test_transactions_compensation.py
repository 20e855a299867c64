"""Work that is committed before the decision: undone in reverse, once, in one piece, and never in silence."""

from __future__ import annotations

from typing import Any

import pytest

import tutti
from tests.integration.transaction_stage import (
    Invitation,
    Stage,
    all_idle,
    fails_with,
    meeting,
    serving,
    until,
)
from tutti.control import compensation as machine
from tutti.errors import TransactionAborted
from tutti.limits import COMPENSATION_ATTEMPTS_COUNT


@pytest.mark.parametrize("early", [False, True])
async def test_it_commits_when_it_votes_or_at_each_event_and_stays_on_commit(stage: Stage, early: bool) -> None:
    bus = await stage.bus()
    tickets = await stage.member("tickets", compensatable=True, early_commit=early)
    rooms = await stage.member("rooms")
    rooms.mood = "slow"
    async with serving(bus, tickets, rooms), meeting(bus, 2) as tx:
        await tx.publish(Invitation("FW26"))
        await until(lambda: tickets.calls)
        if early:
            await until(tickets.booked, "committed at the event")
        assert await tickets.prepared() == []
        rooms.release.set()
        await tx.commit(wait="ended")
    assert await tickets.booked() == await rooms.booked() == ["FW26"]
    assert tickets.undone == []
    assert await stage.witness(tickets.url).fetchval("select count(*) from tutti_barrier") == 0


@pytest.mark.parametrize("early", [False, True])
async def test_it_is_undone_in_reverse_once_when_another_one_aborts(stage: Stage, early: bool) -> None:
    bus = await stage.bus()
    tickets = await stage.member("tickets", compensatable=True, early_commit=early)
    rooms = await stage.member("rooms")
    rooms.mood = "slow"
    async with serving(bus, tickets, rooms):
        with fails_with(TransactionAborted):
            async with meeting(bus, 2) as tx:
                for room in ("one", "two", "three"):
                    await tx.publish(Invitation(room))
                await rooms.at_work.wait()
                if early:
                    await until(lambda: _booked(tickets, 3))
                rooms.mood = "closed"
                rooms.release.set()
        await all_idle(bus)
    assert await tickets.booked() == await rooms.booked() == []
    assert tickets.undone == (["three", "two", "one"] if early else tickets.undone)
    assert len(set(tickets.undone)) == len(tickets.undone)


async def _booked(member: Any, count: int) -> bool:
    return len(await member.booked()) == count


async def test_work_that_voted_yes_is_undone_in_reverse_when_the_publisher_aborts(stage: Stage) -> None:
    bus = await stage.bus()
    tickets, rooms = await stage.member("tickets", compensatable=True), await stage.member("rooms")
    async with serving(bus, tickets, rooms):
        rooms.mood = "slow"
        async with meeting(bus, 2) as tx:
            for room in ("one", "two", "three"):
                await tx.publish(Invitation(room))
            with fails_with(tutti.UncheckedTransaction):
                await tx.commit(timeout=0.5)
            await until(lambda: _booked(tickets, 3), "it has voted and committed")
            await tx.abort()
        await all_idle(bus)
    assert tickets.undone == ["three", "two", "one"]
    assert await tickets.booked() == []


async def test_two_databases_are_committed_and_undone_as_one(stage: Stage) -> None:
    bus = await stage.bus()
    tickets, rooms = await stage.member("tickets", compensatable=True), await stage.member("rooms")
    other = await stage.database()
    ledger = await stage.resource("ledger", other)
    tickets.subscriber.resources = (*tickets.subscriber.resources, ledger)
    failures = 1

    async def bill(event: Invitation, tx: tutti.Branch) -> None:
        db = await tx.enlist(ledger)
        await db.execute("insert into booked (room, tx) values ($1, $2)", event.room, tx.id)

    async def refund(event: Invitation, tx: tutti.Branch) -> None:
        nonlocal failures
        db = await tx.enlist(ledger)
        await db.execute("delete from booked where tx = $1", tx.id)
        if failures:
            failures -= 1
            raise ValueError("not at the first try")

    tickets.subscriber.on(Invitation, name="bill")(bill).compensate(refund)
    async with serving(bus, tickets, rooms):
        rooms.mood = "slow"
        async with meeting(bus, 2) as tx:
            await tx.publish(Invitation("FW26"))
            with fails_with(tutti.UncheckedTransaction):
                await tx.commit(timeout=0.5)
            await until(lambda: _booked(tickets, 1))
            assert await stage.booked(other) == ["FW26"]
            await tx.abort()
        await all_idle(bus)
    assert failures == 0
    assert (await tickets.booked(), await stage.booked(other)) == ([], [])
    assert tickets.undone == ["FW26"]


async def test_it_is_retried_then_the_operators_and_shows_compensating_until_done(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tutti.runtime.transactions import taking  # noqa: PLC0415  whose pause is shortened

    monkeypatch.setattr(machine, "COMPENSATION_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(taking, "PARKED_LOOK_SECONDS", 0.05)
    bus = await stage.bus()
    tickets, rooms = await stage.member("tickets", compensatable=True), await stage.member("rooms")
    tickets.failing_compensations = 1_000
    log = await bus.participant_log()
    journal = (await bus.coordinator()).journal
    async with serving(bus, tickets, rooms):
        rooms.mood = "slow"
        async with meeting(bus, 2) as tx:
            await tx.publish(Invitation("FW26"))
            with fails_with(tutti.UncheckedTransaction):
                await tx.commit(timeout=0.5)
            await until(lambda: _booked(tickets, 1))
            await tx.abort()
        await until(lambda: log.parked("tickets"), "the operator's queue")
        [parked] = await log.parked("tickets")
        assert (parked.tx, parked.event.type) == (tx.id, "Invitation")
        assert "not now" in parked.reason
        assert tickets.failing_compensations == 1_000 - COMPENSATION_ATTEMPTS_COUNT
        assert await tickets.booked() == ["FW26"]

        async def shown() -> bool:
            dossier = await journal.show(tx.id)
            assert dossier is not None
            return any(ended.state == "compensating" for ended in dossier.ended)

        await until(shown, "it shows compensating")
        tickets.failing_compensations = 0
        assert await log.unpark("tickets", tx.id, parked.event)
        await until(lambda: tickets.undone)
        await all_idle(bus)
    assert await tickets.booked() == []
    assert tickets.undone == ["FW26"]
