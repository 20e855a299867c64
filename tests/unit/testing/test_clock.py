"""The clock that a test moves."""

from __future__ import annotations

from functools import partial

from tutti.bus import memory
from tutti.runtime import clock as runtime
from tutti.testing.clock import ManualClock


def test_it_stands_still_until_it_is_moved() -> None:
    clock = ManualClock(wall=1_000.0)
    assert (clock.monotonic(), clock.wall()) == (0.0, 1_000.0)
    clock.advance(2.5)
    assert (clock.monotonic(), clock.wall()) == (2.5, 1_002.5)


def test_both_kinds_of_users_can_have_it() -> None:
    clock = ManualClock()
    servers: memory.Clock = clock
    drivers: runtime.Clock = clock
    clock.advance(1.0)
    assert servers.monotonic() == drivers.monotonic() == 1.0


def test_timers_are_called_in_order_each_at_its_moment() -> None:
    clock, called = ManualClock(), list[tuple[str, float]]()

    def note(name: str) -> None:
        called.append((name, clock.monotonic()))

    for name, when in (("late", 3.0), ("early", 1.0), ("early too", 1.0), ("beyond", 5.1)):
        clock.call_at(when, partial(note, name))
    clock.advance(5.0)
    assert called == [("early", 1.0), ("early too", 1.0), ("late", 3.0)]
    assert clock.monotonic() == 5.0
    clock.advance(0.1)
    assert called[-1] == ("beyond", 5.1)


def test_a_timer_set_by_a_timer_is_called_in_the_same_move() -> None:
    clock, called = ManualClock(), list[float]()

    def again() -> None:
        called.append(clock.monotonic())
        clock.call_at(clock.monotonic() + 2.0, again)

    clock.call_at(1.0, again)
    clock.advance(6.0)
    assert called == [1.0, 3.0, 5.0]
    assert clock.due == 7.0


def test_a_time_in_the_past_comes_with_the_next_move_and_turns_nothing_back() -> None:
    clock, called = ManualClock(), list[float]()
    clock.advance(10.0)
    clock.call_at(4.0, lambda: called.append(clock.monotonic()))
    assert called == []
    clock.advance(0.0)
    assert called == [10.0]


def test_a_cancelled_timer_is_neither_called_nor_due() -> None:
    clock, called = ManualClock(), list[str]()
    first = clock.call_at(1.0, lambda: called.append("first"))
    clock.call_at(2.0, lambda: called.append("second"))
    assert clock.due == 1.0
    first.cancel()
    assert clock.due == 2.0
    clock.advance(3.0)
    assert called == ["second"]
    assert clock.due is None
