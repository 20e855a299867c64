"""The work of transactions and its end: votes, vital and other members, groups, several resources, closing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import tutti
from tests.integration.transaction_stage import (
    PATIENCE_SECONDS,
    Cancellation,
    Invitation,
    Meeting,
    Reaction,
    Stage,
    all_idle,
    decision,
    fails_with,
    meeting,
    serving,
    until,
)
from tutti.errors import GroupUnfit, TransactionAborted, TransactionClosed, UncheckedTransaction
from tutti.model.enrolment import decode_enrolment

# One outcome


async def test_everybody_commits_publisher_and_members(stage: Stage) -> None:
    bus = await stage.bus()
    one, two = await stage.member("one"), await stage.member("two")
    mine = await stage.database()
    calendar = await stage.resource("host", mine)
    async with serving(bus, one, two), meeting(bus, 2) as tx:
        db = await tx.enlist(calendar)
        await db.execute("insert into booked (room, tx) values ('mine', $1)", tx.id)
        for room in ("FW26", "FW27"):
            await tx.publish(Invitation(room))
        assert await stage.booked(mine) == []
        await tx.commit(wait="ended")
    assert await stage.booked(mine) == ["mine"]
    assert await one.booked() == await two.booked() == ["FW26", "FW27"]


@pytest.mark.parametrize("room", ["closed", "veto"])
async def test_one_who_cannot_aborts_everybody_at_once(stage: Stage, room: str) -> None:
    bus = await stage.bus()
    one, two = await stage.member("one"), await stage.member("two")
    two.mood = room
    mine = await stage.database()
    calendar = await stage.resource("host", mine)
    reason = "the room is closed" if room == "closed" else "not that room"
    async with serving(bus, one, two):
        with fails_with(TransactionAborted, match=reason):
            async with meeting(bus, 2) as tx:
                db = await tx.enlist(calendar)
                await db.execute("insert into booked (room, tx) values ('mine', $1)", tx.id)
                await tx.publish(Invitation("FW26"))
                # Early abort: nobody has asked for votes, and it is decided.
                await until(lambda: _is_decided(bus, tx.id), "an abort before the commit was asked for")
        assert await decision(bus, tx.id) == "abort"
        await all_idle(bus)
    assert await stage.booked(mine) == await one.booked() == await two.booked() == []


async def _is_decided(bus: Any, tx: str) -> bool:
    return await decision(bus, tx) in {"commit", "abort"}


async def test_an_exception_in_the_block_aborts_everywhere_and_is_the_callers(stage: Stage) -> None:
    bus = await stage.bus()
    rooms = await stage.member("rooms")
    async with serving(bus, rooms):
        with fails_with(ZeroDivisionError):
            async with meeting(bus, 1) as tx:
                await tx.publish(Invitation("FW26"))
                await until(lambda: rooms.calls)
                _ = 1 / 0
        assert await decision(bus, tx.id) == "abort"
        await all_idle(bus)
    assert await rooms.booked() == []


async def test_nothing_is_tried_again_behind_the_transactions_back(stage: Stage) -> None:
    bus = await stage.bus()
    rooms = await stage.member("rooms")
    async with serving(bus, rooms):
        with fails_with(TransactionAborted):
            async with meeting(bus, 1) as tx:
                await tx.publish(Invitation("closed"))
        assert rooms.calls == ["closed"]
    assert [letter async for letter in bus.dead.each()] == [], "an abort is no dead letter"


async def test_a_publisher_may_allow_more_attempts_and_each_begins_afresh(stage: Stage) -> None:
    bus = await stage.bus()
    rooms = await stage.member("rooms")
    other = await stage.database()
    ledger = await stage.resource("ledger", other)
    rooms.subscriber.resources = (*rooms.subscriber.resources, ledger)
    failures = 2

    async def flaky(event: Invitation, tx: tutti.Branch) -> None:
        nonlocal failures
        db = await tx.enlist(ledger)
        await db.execute("insert into booked (room, tx) values ($1, $2)", f"{failures} {event.room}", tx.id)
        if failures:
            failures -= 1
            await db.execute("insert into booked (room, tx) values (null, $1)", tx.id)  # a statement that fails

    rooms.subscriber.on(Invitation, name="flaky", policy=tutti.Policy(backoff=tutti.Backoff(first=0.01)))(flaky)
    async with serving(bus, rooms):
        async with meeting(bus, 1, attempts=3) as tx:
            await tx.publish(Invitation("FW26"))
            await tx.commit(wait="ended")
        assert await stage.booked(other) == ["0 FW26"]
        assert await rooms.booked() == rooms.calls == ["FW26"], "the other handler had succeeded"
        failures = 3
        with fails_with(TransactionAborted, "null value"):
            async with meeting(bus, 1, attempts=3) as tx:
                await tx.publish(Invitation("FW27"))
        assert failures == 0
        # What was published cannot be taken back: such an attempt is the last.
        rooms.mood = "react, then fail"
        with fails_with(TransactionAborted):
            async with meeting(bus, 1, attempts=3) as tx:
                await tx.publish(Invitation("FW28"))
        assert rooms.calls.count("FW28") == 1
        await all_idle(bus)
    assert (await rooms.booked(), await stage.booked(other)) == (["FW26"], ["0 FW26"])


# Several types, handlers, resources


async def test_several_types_handlers_and_databases_vote_as_one(stage: Stage) -> None:
    bus = await stage.bus()
    rooms = await stage.member("rooms")
    other = await stage.database()
    ledger = await stage.resource("ledger", other)
    rooms.subscriber.resources = (*rooms.subscriber.resources, ledger)

    async def bill(event: Invitation, tx: tutti.Branch) -> None:
        db = await tx.enlist(ledger)
        await db.execute("insert into booked (room, tx) values ($1, $2)", f"bill {event.room}", tx.id)

    async def cancel(event: Cancellation, tx: tutti.Branch) -> None:
        db = await tx.enlist(rooms.calendar)
        await db.execute("delete from booked where room = $1 and tx = $2", event.room, tx.id)
        if event.room == "impossible":
            raise ValueError("there is no such booking")

    rooms.subscriber.on(Invitation, name="bill")(bill)
    rooms.subscriber.on(Cancellation, name="cancel")(cancel)
    async with serving(bus, rooms):
        async with meeting(bus, 1) as tx:
            for event in (Invitation("FW26"), Invitation("FW27"), Cancellation("FW26")):
                await tx.publish(event)
            await tx.commit(wait="ended")
        assert await rooms.booked() == ["FW27"]
        assert await stage.booked(other) == ["bill FW26", "bill FW27"]
        with fails_with(TransactionAborted, match="no such booking"):
            async with meeting(bus, 1) as tx:
                await tx.publish(Invitation("FW28"))
                await tx.publish(Cancellation("impossible"))
        await all_idle(bus)
    assert await rooms.booked() == ["FW27"]
    assert await stage.booked(other) == ["bill FW26", "bill FW27"]


@pytest.mark.parametrize("last", [False, True])
async def test_members_publish_in_the_transaction_and_everybody_gets_it_before_the_vote(
    stage: Stage, last: bool
) -> None:
    bus = await stage.bus()
    one, two = await stage.member("one"), await stage.member("two")
    two.mood = "react"

    async def note(event: Reaction, tx: tutti.Branch) -> None:
        db = await tx.enlist(one.calendar)
        await db.execute("insert into booked (room, tx) values ($1, $2)", event.room, tx.id)

    one.subscriber.on(Reaction, name="note")(note)
    async with serving(bus, one, two), meeting(bus, 2) as tx:
        await tx.publish(Invitation("FW26"), last=last)
        await tx.commit(wait="ended")
    assert sorted(await one.booked()) == ["FW26", "two reacts"]
    assert await two.booked() == ["FW26"]


async def test_after_the_last_event_nothing_is_published_or_enlisted(stage: Stage) -> None:
    bus = await stage.bus()
    rooms = await stage.member("rooms")
    calendar = await stage.resource("host", await stage.database())
    async with serving(bus, rooms), meeting(bus, 1) as tx:
        await tx.publish(Invitation("FW26"), last=True)
        with pytest.raises(TransactionClosed):
            await tx.publish(Invitation("FW27"))
        with pytest.raises(TransactionClosed):
            await tx.enlist(calendar)
        await tx.commit(wait="ended")
    assert await rooms.booked() == ["FW26"]


# Vital and not


@pytest.mark.parametrize("mood", ["closed", "veto"])
async def test_the_no_of_a_member_that_is_not_vital_removes_it_and_aborts_nothing(stage: Stage, mood: str) -> None:
    bus = await stage.bus()
    host, guest = await stage.member("host", identity="host"), await stage.member("guest", identity="guest")
    guest.mood = mood
    rule = tutti.Census(at_least=1, at_most=2, within=PATIENCE_SECONDS, vital=lambda offer: offer.name != "guest")
    async with serving(bus, host, guest):
        async with bus.transaction(Meeting("DSOnline"), census=rule) as tx:
            assert sorted(member.vital for member in tx.members) == [False, True]
            await tx.publish(Invitation("FW26"))
            await tx.commit(wait="ended")
        assert await decision(bus, tx.id) == "commit"
        await all_idle(bus)
    assert (await host.booked(), await guest.booked()) == (["FW26"], [])


async def test_the_minimum_must_still_hold_at_the_vote(stage: Stage) -> None:
    bus = await stage.bus()
    host, guest = await stage.member("host", identity="host"), await stage.member("guest", identity="guest")
    guest.mood = "closed"
    rule = tutti.Census(at_least=2, at_most=2, within=PATIENCE_SECONDS, vital=lambda offer: offer.name != "guest")
    async with serving(bus, host, guest):
        with fails_with(TransactionAborted):
            async with bus.transaction(Meeting("DSOnline"), census=rule) as tx:
                await tx.publish(Invitation("FW26"))
        await all_idle(bus)
    assert (await host.booked(), await guest.booked()) == ([], [])


async def test_a_guest_that_is_silent_is_left_out_and_undone(stage: Stage) -> None:
    bus = await stage.bus()
    host, guest = await stage.member("host", identity="host"), await stage.member("guest", identity="guest")
    guest.mood = "slow"
    rule = tutti.Census(at_least=1, at_most=2, within=PATIENCE_SECONDS, vital=lambda offer: offer.name != "guest")
    async with serving(bus, host, guest):
        async with bus.transaction(Meeting("DSOnline"), census=rule) as tx:
            await tx.publish(Invitation("FW26"))
            await guest.at_work.wait()
            await tx.commit(wait="ended")
        guest.release.set()
        await all_idle(bus)
    assert (await host.booked(), await guest.booked()) == (["FW26"], [])


# Unchecked


async def test_a_commit_that_cannot_finish_names_what_it_waits_for_and_leaves_the_choice(stage: Stage) -> None:
    bus = await stage.bus()
    rooms = await stage.member("rooms", identity="rooms")
    rooms.mood = "slow"
    async with serving(bus, rooms):
        async with meeting(bus, 1) as tx:
            await tx.publish(Invitation("FW26"))
            await rooms.at_work.wait()
            with fails_with(UncheckedTransaction) as caught:
                await tx.commit(timeout=0.2)
            assert any("rooms" in name or tx.members[0].hash in name for name in caught.value.waiting_for)
            with fails_with(UncheckedTransaction):
                await tx.commit(timeout=0)
            assert await decision(bus, tx.id) == "undecided"
            rooms.release.set()
            await tx.commit(wait="ended")
        assert await rooms.booked() == ["FW26"]

        rooms.release.clear()
        rooms.at_work.clear()
        async with meeting(bus, 1) as tx:
            await tx.publish(Invitation("FW27"))
            await rooms.at_work.wait()
            with fails_with(UncheckedTransaction):
                await tx.commit(timeout=0.2)
            await tx.abort("waited long enough")
        assert await decision(bus, tx.id) == "abort"

        rooms.at_work.clear()
        with fails_with(UncheckedTransaction):
            async with meeting(bus, 1) as tx:
                await tx.publish(Invitation("FW28"))
                await rooms.at_work.wait()
                await tx.commit(timeout=0.2)  # whoever leaves the block unchecked aborts
        assert await decision(bus, tx.id) == "abort"
        await all_idle(bus)
    assert await rooms.booked() == ["FW26"]


async def test_the_deadline_holds_even_if_nobody_asks(stage: Stage) -> None:
    bus = await stage.bus()
    rooms = await stage.member("rooms")
    async with serving(bus, rooms):
        tx = meeting(bus, 1, deadline=1.0)
        await tx.__aenter__()  # and its publisher forgets it
        await tx.publish(Invitation("FW26"))
        await until(lambda: _is_decided(bus, tx.id), "the deadline")
        assert await decision(bus, tx.id) == "abort"
        await all_idle(bus)
    assert await rooms.booked() == []


# Standing groups


async def members_of(bus: Any, group: str) -> dict[str, str]:
    """Who acts for each member."""
    entries = await bus.context.transport.state_list(f"group.{group}")
    found = [decode_enrolment(entry.key, entry.value) for entry in entries if entry.value]
    return {one.subscriber: one.instance for one in found}


async def test_a_group_needs_no_census_and_outlives_its_processes(stage: Stage) -> None:
    publisher, first = await stage.bus(), await stage.bus()
    rooms, cars = await stage.member("rooms", group="venues"), await stage.member("cars", group="venues")
    async with serving(first, rooms, cars), meeting(publisher, group="venues", scope="private") as tx:
        assert {member.name for member in tx.members} == {"rooms", "cars"}
        await tx.publish(Invitation("FW26"), last=True)
        await tx.commit(wait="ended")
    assert set((await members_of(publisher, "venues")).items()) == {("rooms", ""), ("cars", "")}
    with fails_with(GroupUnfit, match="cannot be heard"):
        async with meeting(publisher, group="venues"):
            raise AssertionError("it must be known before the work begins")
    second = await stage.bus()
    async with serving(second, rooms, cars), meeting(publisher, group="venues") as tx:
        await tx.publish(Invitation("FW27"))
        await tx.commit(wait="ended")
    assert await rooms.booked() == await cars.booked() == ["FW26", "FW27"]
    with fails_with(GroupUnfit, match="nobody is enrolled"):
        async with meeting(publisher, group="nobody"):
            raise AssertionError("it must not begin")


async def test_in_a_group_a_member_that_is_not_vital_is_left_out(stage: Stage) -> None:
    bus = await stage.bus()
    rooms = await stage.member("rooms", group="venues")
    cars = await stage.member("cars", group="venues", vital=False)
    async with serving(bus, rooms, cars):
        cars.mood = "closed"
        async with meeting(bus, group="venues") as tx:
            await tx.publish(Invitation("FW26"))
            await tx.commit(wait="ended")
        assert await decision(bus, tx.id) == "commit"
        with fails_with(TransactionAborted):
            async with meeting(bus, group="venues", minimum=2) as tx:
                await tx.publish(Invitation("FW27"))
        with fails_with(TransactionAborted):
            async with meeting(bus, group="venues", vital=bool) as tx:
                await tx.publish(Invitation("FW28"))
        await all_idle(bus)
    # A member that is not vital and dead is no obstacle either: it is left out.
    async with serving(bus, rooms):
        async with meeting(bus, group="venues") as tx:
            await tx.publish(Invitation("FW29"))
            await tx.commit()
        await until(rooms.booked)
        await all_idle(bus)
    assert (await rooms.booked(), await cars.booked()) == (["FW26", "FW29"], [])


async def test_many_at_once(stage: Stage) -> None:
    bus = await stage.bus()
    rooms, cars = await stage.member("rooms", group="venues"), await stage.member("cars", group="venues")
    async with serving(bus, rooms, cars):

        async def one(number: int) -> None:
            async with meeting(bus, group="venues") as tx:
                await tx.publish(Invitation(f"room-{number}" if number % 4 else "closed"))
                await tx.commit(wait="ended")

        outcomes = await asyncio.gather(*(one(number) for number in range(24)), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [
        TransactionAborted if number % 4 == 0 else type(None) for number in range(24)
    ]
    wanted = sorted(f"room-{number}" for number in range(24) if number % 4)
    assert sorted(await rooms.booked()) == sorted(await cars.booked()) == wanted
