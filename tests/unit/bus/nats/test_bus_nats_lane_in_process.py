"""A copy that meets its own first copy on the way: the log answers "duplicate in process", and has the message soon."""

from __future__ import annotations

from tests.unit.bus.nats.test_bus_nats_lane import Road, errors, numbers, turn
from tutti.bus.nats.jetstream import DUPLICATE_IN_PROCESS
from tutti.bus.port import Stored
from tutti.errors import OutcomeUnknown
from tutti.limits import APPEND_RETRY_SECONDS


async def sent_again(road: Road, *numbers_: int) -> None:
    """The messages left, the connection was lost before an answer came, and they left again."""
    road.append(*numbers_)
    await road.sent()
    road.connection.go_down()
    road.connection.come_up()


async def after_the_pause(road: Road) -> None:
    road.lane._resume_at = 0.0
    road.lane.flush_soon()
    await turn()


async def test_it_is_asked_again_and_not_refused() -> None:
    road = Road()
    await sent_again(road, 0)
    (copy,) = await road.sent()
    road.refuse(copy, DUPLICATE_IN_PROCESS)
    assert not road._futures[0].done()
    assert road.lane._resume_at > 0, f"it waits for {APPEND_RETRY_SECONDS} s"
    await after_the_pause(road)
    (copy,) = await road.sent()
    road.store(copy, 7, duplicate=True)
    assert road._futures[0].result() == Stored("s", 7, duplicate=True)
    await road.close()


async def test_a_later_one_that_is_stored_meanwhile_stands_behind_it() -> None:
    road = Road()
    await sent_again(road, 0, 1)
    first, second = await road.sent()
    road.refuse(first, DUPLICATE_IN_PROCESS)
    road.store(second, 8, duplicate=True)
    assert not road._futures[0].done()
    await after_the_pause(road)
    again = await road.sent()
    assert numbers(again) == [0]
    road.store(again[0], 7, duplicate=True)
    assert [future.result().sequence for future in road._futures] == [7, 8]
    await road.close()


async def test_when_its_time_is_up_its_outcome_is_unknown() -> None:
    road = Road()
    await sent_again(road, 0)
    (copy,) = await road.sent()
    road.refuse(copy, DUPLICATE_IN_PROCESS)
    road.lane.sweep(float("inf"))
    assert errors(road._futures) == [OutcomeUnknown]
    await road.close()
