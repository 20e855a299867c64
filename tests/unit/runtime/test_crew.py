"""Calls go to workers: in order, no more at once than allowed, and none starves the loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from tutti.flow.dispatcher import Run
from tutti.runtime.crew import Crew
from tutti.runtime.timelimit import TimeLimit


def crew(most: int, work: Callable[[int], Awaitable[None]], ended: list[asyncio.Task[None]] | None = None) -> Crew:
    async def one_by_one(runs: deque[Run], limit: TimeLimit) -> None:
        with limit:
            await work(runs.popleft().sequences[0])

    return Crew(most, 30.0, one_by_one, (ended if ended is not None else []).append)


async def test_one_worker_takes_calls_in_order() -> None:
    done: list[int] = []
    last = asyncio.Event()

    async def work(number: int) -> None:
        done.append(number)
        if number == 9:
            last.set()

    made = crew(1, work)
    for number in range(10):
        made.take(Run((number,), 1))
    await last.wait()
    assert done == list(range(10))
    last.clear()
    made.take(Run((9,), 1))  # an idle worker wakes up
    await last.wait()
    await made.close()


async def test_no_more_calls_at_once_than_there_may_be_workers() -> None:
    running: set[int] = set()
    most = 0
    gate, all_done = asyncio.Event(), asyncio.Event()
    left = 5

    async def work(number: int) -> None:
        nonlocal most, left
        running.add(number)
        most = max(most, len(running))
        await gate.wait()
        running.discard(number)
        left -= 1
        if not left:
            all_done.set()

    made = crew(2, work)
    for number in range(5):
        made.take(Run((number,), 1))
    await asyncio.sleep(0)
    assert running == {0, 1}
    gate.set()
    await all_done.wait()
    assert most == 2
    await made.close()


async def test_calls_that_never_wait_let_others_run() -> None:
    turns = 0
    handled = 0
    done = asyncio.Event()

    async def work(number: int) -> None:
        nonlocal handled
        end = asyncio.get_running_loop().time() + 0.0005
        while asyncio.get_running_loop().time() < end:
            pass
        handled += 1
        if handled == 40:
            done.set()

    async def other() -> None:
        nonlocal turns
        while not done.is_set():
            turns += 1
            await asyncio.sleep(0)

    made = crew(1, work)
    beside = asyncio.create_task(other())
    for number in range(40):
        made.take(Run((number,), 1))
    await beside
    assert turns >= 5
    await made.close()


async def test_a_worker_that_dies_is_heard_of_and_replaced() -> None:
    ended: list[asyncio.Task[None]] = []
    done = asyncio.Event()

    async def work(number: int) -> None:
        if number == 0:
            raise OSError("a bug of ours")
        done.set()

    made = crew(1, work, ended)
    made.take(Run((0,), 1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [str(task.exception()) for task in ended] == ["a bug of ours"]
    made.take(Run((1,), 1))
    await done.wait()
    await made.close()
