"""One timer for many calls: late ones end, the others never notice."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from tutti.runtime.timelimit import TimeLimit

SHORT = 0.01


async def test_what_is_quick_passes() -> None:
    limit = TimeLimit(30.0)
    for _ in range(3):
        with limit:
            await asyncio.sleep(0)
        assert not limit.expired
    limit.close()


async def test_what_is_late_ends_with_a_time_out_and_the_next_call_starts_anew() -> None:
    limit = TimeLimit(SHORT)
    for _ in range(2):
        with pytest.raises(TimeoutError), limit:
            await asyncio.Event().wait()
        assert limit.expired
    with limit:
        await asyncio.sleep(0)
    assert not limit.expired
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()
    limit.close()


async def test_a_timer_set_for_an_earlier_call_leaves_a_later_one_its_time() -> None:
    loop, limit = asyncio.get_running_loop(), TimeLimit(0.05)
    with limit:
        await asyncio.sleep(0)
    await asyncio.sleep(0.03)
    started = loop.time()
    with pytest.raises(TimeoutError), limit:
        await asyncio.Event().wait()
    assert loop.time() - started >= 0.05
    limit.close()


async def test_a_call_that_swallows_the_cancellation_is_not_cancelled_again() -> None:
    limit = TimeLimit(SHORT)
    with limit, contextlib.suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
    assert limit.expired
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()
    limit.close()


async def test_a_time_out_of_the_call_itself_is_not_ours() -> None:
    limit = TimeLimit(30.0)
    with pytest.raises(TimeoutError, match="theirs"), limit:
        raise TimeoutError("theirs")
    assert not limit.expired
    limit.close()


async def test_a_cancellation_from_outside_passes_through() -> None:
    limits: list[TimeLimit] = []
    entered = asyncio.Event()

    async def work() -> None:
        limits.append(TimeLimit(30.0))
        with limits[0]:
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not limits[0].expired
    limits[0].close()


async def test_without_seconds_there_is_no_limit_and_no_timer() -> None:
    limit = TimeLimit(None)
    with limit:
        await asyncio.sleep(SHORT)
    assert not limit.expired
    limit.close()
