"""Calling handlers: failures are values, whatever a handler does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tutti
from tutti.bus.port import Record
from tutti.limits import REASON_MAX_CHARACTERS
from tutti.model.envelope import Envelope
from tutti.runtime.admission import Item
from tutti.runtime.delivery import Delivery
from tutti.runtime.execution import Failure, Gate, call
from tutti.runtime.subscriber import Subscription
from tutti.runtime.threads import Threads


class Step(tutti.Event):
    number: int


def _mute(event: object, request: Envelope) -> None: ...


def item(number: int) -> Item:
    envelope = Envelope(id=str(number), source="/a/1", type="Step")
    found = Item(Delivery(Record("s", {}, b"", number), envelope, _mute), "a")
    found.event = Step(number)
    return found


def of(function: Callable[..., Any], **policy: Any) -> Subscription:
    return tutti.Subscriber("app", policy=tutti.Policy(**policy)).on(Step, name="h")(function).subscription


@pytest.fixture
def threads() -> Iterator[Threads]:
    """One thread."""
    one = Threads(1)
    yield one
    one.close()


async def called(function: Callable[..., Any], *items: Item, **policy: Any) -> Failure | None:
    threads = Threads(1)
    try:
        return await call(of(function, **policy), items or [item(1)], threads)
    finally:
        threads.close()


async def test_one_event_with_its_delivery() -> None:
    seen: list[object] = []

    async def handler(event: Step, delivery: tutti.Delivery) -> None:
        seen.append((event.number, delivery.id))

    assert await called(handler, item(3)) is None
    assert seen == [(3, "3")]


async def test_a_list_of_events_in_order() -> None:
    seen: list[object] = []

    def handler(events: list[Step], deliveries: list[tutti.Delivery]) -> None:
        seen.append(([e.number for e in events], [d.id for d in deliveries]))

    assert await called(handler, item(1), item(2)) is None
    assert seen == [([1, 2], ["1", "2"])]


def raising(error: BaseException) -> tuple[Callable[..., Any], Callable[..., Any]]:
    async def later(event: Step) -> None:
        raise error

    def now(event: Step) -> None:
        raise error

    return later, now


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("I cannot say")


@pytest.mark.parametrize(
    ("error", "reason", "final"),
    [
        (ValueError("no"), "ValueError: no", False),
        (TimeoutError("mine"), "TimeoutError: mine", False),
        (tutti.Reject("nonsense"), "rejected by the handler: nonsense", True),
        (Unspeakable(), "Unspeakable: (what it says cannot be read)", False),
        (ValueError("half \ud800 a pair"), "ValueError: half \\ud800 a pair", False),
        (ValueError("x" * 99_999), "ValueError: " + "x" * REASON_MAX_CHARACTERS, False),
    ],
)
async def test_what_a_handler_raises_is_a_failure_of_that_event(error: Exception, reason: str, final: bool) -> None:
    for function in raising(error):
        failure = await called(function)
        assert failure is not None
        assert (failure.reason, failure.final) == (reason, final)


async def test_the_traceback_names_the_line() -> None:
    failure = await called(raising(ValueError("no"))[0])
    assert failure is not None
    assert "raise error" in failure.traceback
    assert failure.traceback.endswith("ValueError: no\n")


async def test_a_hanging_coroutine_is_cancelled_and_may_be_tried_again() -> None:
    ended = []

    async def hangs(event: Step) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(event.number)

    failure = await called(hangs, handler_timeout=0.01)
    assert failure == Failure("the handler took longer than 0.01 seconds")
    assert ended == [1]


async def test_a_hanging_thread_is_given_up_for_good() -> None:
    release = threading.Event()

    def hangs(event: Step) -> None:
        release.wait(10)

    failure = await called(hangs, handler_timeout=0.01)
    release.set()
    assert failure is not None
    assert (failure.final, "its thread still runs" in failure.reason) == (True, True)


async def test_waiting_for_a_thread_is_not_the_handler_s_time(threads: Threads) -> None:
    release, ran = threading.Event(), list[Step]()
    threads.call(lambda: release.wait(10))
    waiting = asyncio.create_task(call(of(ran.append, handler_timeout=0.01), [item(1)], threads))
    await asyncio.wait([waiting], timeout=0.05)
    assert not waiting.done()
    release.set()
    assert await waiting is None
    assert ran == [Step(1)]


async def test_a_call_that_is_stopped_before_it_began_never_runs(threads: Threads) -> None:
    release, ran = threading.Event(), list[Step]()
    threads.call(lambda: release.wait(10))
    waiting = asyncio.create_task(call(of(ran.append), [item(1)], threads))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    release.set()
    assert await call(of(ran.append), [item(2)], threads) is None
    assert ran == [Step(2)]


async def test_a_plain_function_cannot_end_the_process(threads: Threads) -> None:
    failure = await call(of(raising(SystemExit(3))[1]), [item(1)], threads)
    assert failure is not None
    assert failure.reason == "SystemExit: 3"


async def test_a_handler_that_cancels_itself_has_failed() -> None:
    for function in raising(asyncio.CancelledError()):
        assert await called(function) == Failure("the handler was cancelled from within")


async def test_being_stopped_is_no_failure_of_the_event() -> None:
    started = asyncio.Event()

    async def waits(event: Step) -> None:
        started.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(called(waits))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_gate_lets_the_higher_priority_pass_first_and_then_who_waits_longest() -> None:
    gate, order = Gate(1), []

    async def passes(name: str, priority: int) -> None:
        await gate.enter(priority)
        order.append(name)
        await asyncio.sleep(0)
        gate.leave()

    await gate.enter(0)
    tasks = [asyncio.create_task(passes(name, p)) for name, p in (("a", 0), ("b", 0), ("c", 5), ("d", 5))]
    await asyncio.sleep(0)
    gate.leave()
    await asyncio.gather(*tasks)
    assert order == ["c", "d", "a", "b"]


async def test_a_gate_behind_a_gate_must_be_passed_too() -> None:
    house = Gate(1)
    left, right = Gate(2, house), Gate(1, house)
    await left.enter(0)
    waiting, gives_up = asyncio.create_task(left.enter(0)), asyncio.create_task(right.enter(0))
    await asyncio.sleep(0)
    gives_up.cancel()
    await asyncio.gather(gives_up, return_exceptions=True)
    assert not waiting.done()
    left.leave()
    await asyncio.wait_for(waiting, 1)
    left.leave()
    await asyncio.wait_for(right.enter(0), 1)  # who gave up in the house holds no place at its own gate


async def test_who_enters_at_once_takes_a_place_of_each_gate_or_of_none() -> None:
    outer = Gate(1)
    gate = Gate(2, outer)
    assert gate.enter_at_once()
    assert not gate.enter_at_once()
    gate.leave()
    assert outer.enter_at_once()
    assert not gate.enter_at_once()
    outer.leave()
    assert gate.enter_at_once()
    waiting = asyncio.create_task(gate.enter(0))
    await asyncio.sleep(0)
    gate.leave()
    await asyncio.wait_for(waiting, 1)
    assert not gate.enter_at_once()


async def test_who_stops_waiting_at_the_gate_takes_no_place() -> None:
    gate = Gate(1)
    await gate.enter(0)
    waiting, handed = asyncio.create_task(gate.enter(0)), asyncio.create_task(gate.enter(0))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.sleep(0)
    gate.leave()
    handed.cancel()  # the place was already his
    await asyncio.gather(waiting, handed, return_exceptions=True)
    await asyncio.wait_for(gate.enter(0), 1)
