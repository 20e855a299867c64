"""Ordinary subscribers and transactions: what they handle, when, how often, and what they never see."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Annotated, Any

import pytest

import tutti
from tests.unit.runtime.transactions.staged import Office
from tutti.runtime.positions import Registration
from tutti.runtime.retention import position_of, registrations
from tutti.testing.kit import BusKit


class Invited(tutti.Event):
    number: int
    room: Annotated[str, tutti.routing] = "FW26"


class Meeting(tutti.TxType, events=[Invited]):
    subject: str


@pytest.fixture
async def bus(tutti_bus: BusKit) -> BusKit:
    await tutti_bus.advertise(Invited)
    return tutti_bus


def subscriber(name: str = "app", **options: Any) -> tutti.Subscriber:
    app = tutti.Subscriber(name)

    @app.on(Invited, **options)
    async def invited(event: Invited) -> None: ...

    return app


async def committed(office: Office, *numbers: int) -> str:
    staged = await office.begin()
    await staged.publish(*map(Invited, numbers))
    await staged.commit()
    return staged.tx


def seen(bus: BusKit, name: str = "invited") -> list[int]:
    return [event.number for event in bus.handled(name)]


async def test_events_are_handled_when_their_transaction_commits_and_not_before(bus: BusKit, office: Office) -> None:
    async with bus.serve(subscriber()):
        staged = await office.begin()
        await staged.publish(Invited(1), Invited(2))
        await bus.publish(Invited(3))
        await bus.settle()
        assert seen(bus) == [3]
        await staged.decide()
        await bus.settle()
        assert seen(bus) == [3]
        await office.relay.send()
        await bus.settle()
    assert seen(bus) == [3, 1, 2]


async def test_what_was_aborted_or_is_private_is_never_handled(bus: BusKit, office: Office) -> None:
    async with bus.serve(subscriber()):
        for scope, outcome in (("public", "abort"), ("private", "commit"), ("private", "abort")):
            staged = await office.begin(scope=scope)  # type: ignore[arg-type]  # one of the two words
            await staged.publish(Invited(1))
            await staged.decide(outcome)  # type: ignore[arg-type]  # one of the two words
        await office.relay.send()
        await committed(office, 2)
        await bus.settle()
    assert seen(bus) == [2]
    assert await bus.letters() == []


async def test_a_handler_with_a_tx_parameter_runs_on_neither(bus: BusKit, office: Office) -> None:
    app = tutti.Subscriber("app")

    @app.on(Invited)
    async def member(event: Invited, tx: object) -> None: ...

    @app.join(Meeting)
    async def never(_: tutti.Invite[Meeting]) -> bool:
        return False

    @app.on(Invited)
    async def outsider(event: Invited) -> None: ...

    async with bus.serve(app):
        await committed(office, 1)
        await bus.publish(Invited(2))
        await bus.settle()
    assert (sorted(seen(bus, "outsider")), seen(bus, "member")) == ([1, 2], [])


async def test_a_subscriber_that_was_away_goes_on_where_it_was(bus: BusKit, office: Office) -> None:
    app = subscriber()
    async with bus.serve(app):
        await committed(office, 1, 2)
        await bus.settle()
    await committed(office, 3, 4)
    async with bus.serve(app):
        await bus.settle()
        await committed(office, 5)
        await bus.settle()
    assert seen(bus) == [1, 2, 3, 4, 5]


async def test_a_stop_in_the_middle_of_a_transaction_repeats_nothing_that_was_done(bus: BusKit, office: Office) -> None:
    app, started, gate = tutti.Subscriber("app"), asyncio.Event(), asyncio.Event()

    @app.on(Invited)
    async def invited(event: Invited) -> None:
        if event.number == 3:
            started.set()
            await gate.wait()

    service = await bus.start(app)
    await committed(office, *range(1, 7))
    await asyncio.wait_for(started.wait(), 5)
    await bus.stop(service, grace=0.05)
    assert seen(bus) == [1, 2]
    gate.set()
    async with bus.serve(app):
        await bus.settle()
    assert seen(bus) == [1, 2, 3, 4, 5, 6]


async def test_failures_are_tried_again_and_then_dead_lettered_with_their_place_in_the_log(
    bus: BusKit, office: Office
) -> None:
    app, mended = tutti.Subscriber("app", policy=tutti.Policy(attempts=3)), False

    @app.on(Invited)
    async def invited(event: Invited) -> None:
        if event.number == 2 and not mended:
            raise ValueError("two is right out")

    await bus.publish(Invited(0))
    async with bus.serve(app):
        await committed(office, 1, 2, 3)
        await bus.settle()
        assert seen(bus) == [1, 3]
        (letter,) = await bus.letters()
        found = (letter.subscription, letter.attempts, letter.stream, letter.sequence)
        assert found == ("invited", 3, "tutti-events-events", 3)
        mended = True
        await bus.dead.replay(letter.number)
        await bus.settle()
    assert seen(bus) == [1, 3, 2]
    assert await bus.letters() == []


async def test_filters_hold_for_them_too(bus: BusKit, office: Office) -> None:
    async with bus.serve(subscriber(where="room = 'FW26' AND number > 1")):
        staged = await office.begin()
        await staged.publish(Invited(1), Invited(2), Invited(3, "E014"), Invited(4))
        await staged.commit()
        await bus.settle()
    assert seen(bus) == [2, 4]


async def test_both_feeds_of_a_subscription_share_its_limit(bus: BusKit, office: Office) -> None:
    app, at_once, most = tutti.Subscriber("app"), 0, 0

    @app.on(Invited)
    async def invited(event: Invited) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.001)
        at_once -= 1

    async with bus.serve(app):
        await committed(office, *range(20))
        await bus.publish_many(Invited(n) for n in range(20))
        await bus.settle()
    assert (len(seen(bus)), most) == (40, 1)


async def test_what_is_gone_is_counted_and_the_rest_is_handled(
    bus: BusKit, office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    app = subscriber()
    await bus.stop(await bus.start(app))
    tx = await committed(office, 1, 2, 3)
    await office.transport.purge("tutti-events-events", below=3)
    async with bus.serve(app):
        await bus.settle()
    assert seen(bus) == [3]
    assert bus.metrics.total("tutti_missing_total", subscription="invited") == 2
    assert f"app.invited: 2 events of {tx}" in caplog.text


async def test_holes_in_a_publishers_numbers_are_no_gaps_here(bus: BusKit, office: Office) -> None:
    async with bus.serve(subscriber()):
        await committed(office, 1)
        aborted = await office.begin()
        await aborted.publish(Invited(2))
        await aborted.abort()
        await committed(office, 3)
        await bus.settle()
    assert seen(bus) == [1, 3]
    assert bus.metrics.total("tutti_missing_total") == 0


@pytest.mark.parametrize(("start", "expected"), [("latest", [4]), ("earliest", [1, 2, 3, 4]), (2, [2, 3, 4])])
async def test_where_a_new_subscription_begins(bus: BusKit, office: Office, start: Any, expected: list[int]) -> None:
    for number in (1, 2, 3):
        await committed(office, number)
        bus.clock.advance(10)
    async with bus.serve(subscriber(start=start)):
        await committed(office, 4)
        await bus.settle()
    assert seen(bus) == expected


async def test_a_new_subscription_may_begin_with_a_moment(bus: BusKit, office: Office) -> None:
    await committed(office, 1)
    bus.clock.advance(10)
    staged = await office.begin()
    await staged.publish(Invited(2))  # published before it, committed after it
    bus.clock.advance(10)
    moment = datetime.fromtimestamp(bus.clock.wall() - 1, UTC)
    await staged.commit()
    async with bus.serve(subscriber(start=moment)):
        await bus.settle()
    assert seen(bus) == [2]


async def test_a_sequence_that_is_not_there_yet_begins_with_the_next_commit(bus: BusKit, office: Office) -> None:
    await committed(office, 1)
    async with bus.serve(subscriber(start=100)):
        await committed(office, 2)
        await bus.settle()
    assert seen(bus) == [2]


async def test_who_only_watches_sees_commits_too(bus: BusKit, office: Office) -> None:
    watching = bus.subscribe(Invited)
    first = asyncio.ensure_future(anext(watching))
    while not bus.services:
        await asyncio.sleep(0)
    while not bus.services[0].feeds["each@commit"].reader:
        await asyncio.sleep(0)
    await committed(office, 1)
    event, delivery = await asyncio.wait_for(first, 5)
    assert (event.number, delivery.attributes["txscope"]) == (1, "public")
    await watching.aclose()


async def test_the_second_position_is_kept_beside_the_first_and_follows_the_log(bus: BusKit, office: Office) -> None:
    async with bus.serve(subscriber()):
        await committed(office, 1)
        aborted = await office.begin()
        await aborted.abort()
        await bus.settle()
        await bus.services[0].follow()
        await bus.settle()
    known = {one.subscription: one for one in await registrations(bus.context)}
    assert sorted(known) == ["invited", "invited@commit"]
    second: Registration = known["invited@commit"]
    assert second.stream == "tutti-status"
    assert await position_of(bus.context, second) // second.scale == 2
