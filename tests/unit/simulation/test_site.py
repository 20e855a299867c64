"""Processes that die, stand still, and have clocks of their own."""

from __future__ import annotations

from tests.unit.simulation.quiet import Listener, ground, run
from tutti.simulation.site import Alarm


def test_what_was_due_for_a_dead_process_never_happens() -> None:
    world, done = ground(), []
    site = Listener("s0", world, lambda: done.append("begin"))
    site.later(2.0, lambda: done.append("late"))
    site.crash(1.0)
    run(world, 0.5)
    assert done == []
    run(world)
    assert done == ["begin"]
    assert site.incarnation == 2


def test_a_process_that_stands_still_goes_on_as_if_nothing_had_happened() -> None:
    world, done = ground(), []
    site = Listener("s0", world)
    site.later(1.0, lambda: done.append(world.now))
    site.pause(4.0)
    assert not site.awake
    run(world)
    assert done == [4.0]


def test_an_alarm_follows_the_clock_of_its_site() -> None:
    world = ground()
    rung: list[tuple[str, float, float]] = []
    ahead, behind = Listener("s0", world), Listener("s1", world)
    for site in (ahead, behind):
        _ring_into(rung, site).set(10.0)
    ahead.jump(4.0)
    behind.jump(-4.0)
    run(world)
    assert rung == [("s0", 6.0, 10.0), ("s1", 14.0, 10.0)]


def _ring_into(rung: list[tuple[str, float, float]], site: Listener) -> Alarm:
    return site.alarm(lambda now: rung.append((site.name, site.ground.now, now)))


def test_an_alarm_rings_once_for_the_last_time_that_was_set() -> None:
    world = ground()
    rung: list[float] = []
    alarm = Listener("s0", world).alarm(rung.append)
    alarm.set(1.0)
    alarm.set(3.0)
    run(world)
    assert rung == [3.0]
    alarm.set(70.0)
    alarm.set(None)
    run(world)
    assert rung == [3.0]


def test_alarms_die_with_their_process() -> None:
    world = ground()
    rung: list[float] = []
    site = Listener("s0", world)
    site.alarm(rung.append).set(5.0)
    site.crash(0.5)
    run(world)
    assert rung == []
