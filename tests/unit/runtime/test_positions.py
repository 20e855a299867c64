"""How far a subscription has come, and who may write it."""

from __future__ import annotations

import pytest

import tutti
from tutti.bus.port import FromEarliest, FromLatest, FromSequence, FromTime, Start
from tutti.errors import Conflict
from tutti.runtime.positions import Positions, PositionStore, Registration
from tutti.testing.kit import BusKit

STREAM = "tutti-events-events"


class Step(tutti.Event):
    number: int


def store(bus: BusKit) -> PositionStore:
    """That of another process."""
    return PositionStore(bus.context.transport, "app")


def registration(where: str = "") -> Registration:
    return Registration("app", "step", STREAM, "Step", where, 0, "2026-01-01T00:00:00+00:00")


@pytest.fixture
async def bus(tutti_bus: BusKit) -> BusKit:
    await tutti_bus.advertise(Step)
    for number in range(3):
        await tutti_bus.publish(Step(number))
        tutti_bus.clock.advance(10)
    return tutti_bus


@pytest.mark.parametrize(
    ("start", "position"),
    [
        (FromEarliest(), 0),
        (FromLatest(), 3),
        (FromSequence(2), 1),
        (FromTime(1_700_000_005), 1),
        (FromTime(1_700_000_010), 1),
    ],
)
async def test_where_a_subscription_begins(bus: BusKit, start: Start, position: int) -> None:
    assert (await store(bus).register(registration(), start)).start == position


async def test_the_start_is_resolved_once_for_all(bus: BusKit) -> None:
    first = await store(bus).register(registration(), FromEarliest())
    again = await store(bus).register(registration(), FromLatest())
    assert first.start == again.start == 0


async def test_a_changed_filter_is_kept_without_losing_the_place(bus: BusKit) -> None:
    await store(bus).register(registration(), FromSequence(2))
    changed = await store(bus).register(registration("number > 1"), FromLatest())
    assert (changed.where, changed.start) == ("number > 1", 1)
    assert (await store(bus).register(registration("number > 1"), FromLatest())) == changed


async def test_a_successor_learns_what_its_predecessor_wrote(bus: BusKit) -> None:
    first, second = store(bus), store(bus)
    assert await first.take_over(4, 1) == Positions()
    await first.save(4, Positions(1, {"step": 7}, {"step": {9: 2}}, {"step": [9]}))
    known = await second.take_over(4, 2)
    assert known is not None
    assert (known.at, known.attempts, known.running) == ({"step": 7}, {"step": {9: 2}}, {"step": [9]})


async def test_from_the_takeover_on_the_old_owner_cannot_write(bus: BusKit) -> None:
    first, second = store(bus), store(bus)
    await first.take_over(4, 1)
    await second.take_over(4, 2)
    with pytest.raises(Conflict):
        await first.save(4, Positions(1, {"step": 99}))
    await second.save(4, Positions(2, {"step": 5}))
    assert await first.take_over(4, 1) is None


async def test_an_owner_may_save_again_and_again(bus: BusKit) -> None:
    mine = store(bus)
    await mine.take_over(4, 1)
    for position in range(5):
        await mine.save(4, Positions(1, {"step": position}))
    known = await store(bus).take_over(4, 2)
    assert known is not None
    assert known.at == {"step": 4}


async def test_other_handlers_positions_survive_an_owner_that_does_not_have_them(bus: BusKit) -> None:
    first, second, third = store(bus), store(bus), store(bus)
    await first.take_over(4, 1)
    await first.save(4, Positions(1, {"step": 7, "audit": 3}, {"audit": {5: 1}, "step": {8: 1}}))
    await second.take_over(4, 2)
    await second.save(4, Positions(2, {"step": 9}))
    known = await third.take_over(4, 3)
    assert known is not None
    assert (known.at, known.attempts) == ({"step": 9, "audit": 3}, {"audit": {5: 1}})


async def test_owners_that_write_nothing_are_counted(bus: BusKit) -> None:
    deaths = []
    for epoch in (1, 2, 3):
        known = await store(bus).take_over(4, epoch)
        assert known is not None
        deaths.append(known.deaths)
    assert deaths == [0, 1, 2]
    last = store(bus)
    await last.take_over(4, 4)
    await last.save(4, Positions(4, {"step": 1}))
    known = await store(bus).take_over(4, 5)
    assert known is not None
    assert known.deaths == 0
