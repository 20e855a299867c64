"""The machine's own clock."""

from __future__ import annotations

import asyncio
import time

from tutti.runtime.clock import SystemClock


async def test_it_calls_back_when_the_time_has_come() -> None:
    clock, called = SystemClock(), asyncio.Event()
    due = clock.monotonic() + 0.01
    clock.call_at(due, called.set)
    await asyncio.wait_for(called.wait(), 5)
    assert clock.monotonic() >= due - 0.005


async def test_a_time_in_the_past_is_now_and_a_cancelled_one_is_never() -> None:
    clock, called, never = SystemClock(), asyncio.Event(), asyncio.Event()
    clock.call_at(clock.monotonic(), never.set).cancel()
    clock.call_at(clock.monotonic() - 1, called.set)
    await asyncio.wait_for(called.wait(), 5)
    assert not never.is_set()


def test_the_wall_clock_tells_the_time_of_day() -> None:
    assert abs(SystemClock().wall() - time.time()) < 1
