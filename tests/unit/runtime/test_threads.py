"""Threads for plain functions: as many as are needed, none that keeps others waiting for ever."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

import tutti
from tutti.runtime.threads import THREAD_NAME, Threads
from tutti.testing.kit import BusKit


class Step(tutti.Event):
    number: int


@pytest.fixture
def threads() -> Iterator[Threads]:
    two = Threads(2)
    yield two
    two.close()


def alive() -> int:
    return sum(thread.name == THREAD_NAME for thread in threading.enumerate())


async def test_threads_are_made_when_they_are_needed_and_used_again(threads: Threads) -> None:
    assert alive() == 0
    for _ in range(5):
        assert await threads.call(lambda: None).ended is None
    assert alive() == 1
    together = threading.Barrier(2)
    assert await asyncio.gather(*(threads.call(together.wait).ended for _ in range(2))) == [None, None]
    assert alive() == 2


async def test_what_a_function_raises_is_told(threads: Threads) -> None:
    error = StopIteration("odd")

    def raises() -> None:
        raise error

    assert await threads.call(raises).ended is error


async def test_no_more_at_once_than_may_be(threads: Threads) -> None:
    release = threading.Event()
    calls = [threads.call(lambda: release.wait(10)) for _ in range(3)]
    while calls[1].begun_at is None:
        await asyncio.sleep(0.001)
    assert (calls[2].begun_at, calls[2].left(5)) == (None, 5)
    release.set()
    await asyncio.gather(*(call.ended for call in calls))
    assert alive() == 2


async def test_a_hanging_thread_is_replaced_and_leaves_when_it_returns(threads: Threads) -> None:
    release = threading.Event()
    hanging = [threads.call(lambda: release.wait(10)) for _ in range(2)]
    while any(call.begun_at is None for call in hanging):
        await asyncio.sleep(0.001)
    for call in hanging:
        threads.give_up(call)
    together = threading.Barrier(2)
    assert await asyncio.gather(*(threads.call(together.wait).ended for _ in range(2))) == [None, None]
    assert alive() == 4
    release.set()
    async with asyncio.timeout(5):
        while alive() > 2:
            await asyncio.sleep(0.001)
    assert await asyncio.gather(*(threads.call(together.wait).ended for _ in range(2))) == [None, None]


async def test_handlers_that_hang_hold_up_neither_each_other_nor_the_look_up_of_names(tutti_bus: BusKit) -> None:
    app, release, running = tutti.Subscriber("app", policy=tutti.Policy(concurrency=40)), threading.Event(), list[int]()

    @app.on(Step, key="number")
    def step(event: Step) -> None:
        running.append(event.number)
        release.wait(10)

    await tutti_bus.advertise(Step)
    async with tutti_bus.serve(app):
        await tutti_bus.publish_many(map(Step, range(40)))
        async with asyncio.timeout(5):
            while len(running) < 40:
                await asyncio.sleep(0.001)
            assert await asyncio.get_running_loop().getaddrinfo("127.0.0.1", 80, family=socket.AF_INET)
        release.set()
        await tutti_bus.settle()


def test_a_hanging_handler_does_not_keep_the_process() -> None:
    program = """
import asyncio, threading, tutti

class Step(tutti.Event):
    number: int

app = tutti.Subscriber("app", policy=tutti.Policy(handler_timeout=0.01))
begun = threading.Event()

@app.on(Step)
def step(event: Step) -> None:
    begun.set()
    threading.Event().wait()

async def main() -> None:
    bus = tutti.connect("memory://")
    await bus.open()
    await bus.advertise(Step)
    await bus.start(app)
    await bus.publish(Step(1))
    while not begun.is_set():
        await asyncio.sleep(0.01)
    await bus.close(grace=0)

asyncio.run(main())
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=20, check=False).returncode == 0
