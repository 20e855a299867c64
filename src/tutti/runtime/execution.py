"""Calling a handler: in the loop or in a thread, with its time-out, its trace, and its failure as a value."""

from __future__ import annotations

import asyncio
import heapq
import traceback
from collections.abc import Sequence
from contextvars import copy_context
from functools import partial
from typing import Final

import msgspec

from tutti.limits import REASON_MAX_CHARACTERS
from tutti.model.attributes import TRACEPARENT, TRACESTATE
from tutti.runtime.admission import Item
from tutti.runtime.dead import plain
from tutti.runtime.publisher import NO_TRACE, trace
from tutti.runtime.subscriber import Subscription
from tutti.runtime.threads import Threads
from tutti.runtime.timelimit import TimeLimit


class Failure(msgspec.Struct, frozen=True):
    """Why a call failed. `final`: another attempt would not help, or would run beside the first."""

    reason: str
    traceback: str = ""
    final: bool = False


CANCELLED: Final = Failure("the handler was cancelled from within")


class Reject(Exception):
    """Raised by a handler: this event is wrong, do not try again. It is dead-lettered with this reason at once."""


async def call(
    subscription: Subscription, items: Sequence[Item], threads: Threads, limit: TimeLimit | None = None
) -> Failure | None:
    """Call the handler once: a plain function in one of `threads`. None: it returned. Whoever calls often brings a time
    limit along."""
    if limit is None:
        limit = TimeLimit(subscription.policy.handler_timeout)
        try:
            return await call(subscription, items, threads, limit)
        finally:
            limit.close()
    context = items[0].delivery.envelope.extensions
    traced = (context[TRACEPARENT], context.get(TRACESTATE, "")) if TRACEPARENT in context else NO_TRACE
    held = trace.set(traced) if traced != trace.get() else None
    try:
        arguments = _arguments(subscription, items)
        if not subscription.is_async:
            return await _in_thread(subscription, arguments, threads)
        with limit:
            await subscription.function(*arguments)
    except Reject as verdict:
        return Failure(f"rejected by the handler: {_said(verdict)}", final=True)
    except TimeoutError as error:
        if limit.expired:
            return Failure(f"the handler took longer than {limit.seconds} seconds")
        return _failure(error)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise  # it is us who are being stopped
        return CANCELLED
    except (KeyboardInterrupt, GeneratorExit):
        raise  # from outside: somebody stops the process, or throws the coroutine away
    except BaseException as error:  # noqa: BLE001 whatever a handler raises, sys.exit too, is this event's failure
        return _failure(error)
    finally:
        if held is not None:
            trace.reset(held)
    return None


def revive() -> bool:
    """Take back that this task was cancelled."""
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()
    return task is not None


def _arguments(subscription: Subscription, items: Sequence[Item]) -> tuple[object, ...]:
    if not subscription.takes_list:
        first = items[0]
        return (first.event, first.delivery) if subscription.takes_delivery else (first.event,)
    events = [item.event for item in items]
    return (events, [item.delivery for item in items]) if subscription.takes_delivery else (events,)


async def _in_thread(subscription: Subscription, arguments: tuple[object, ...], threads: Threads) -> Failure | None:
    """A plain function. Waiting for a thread is not the handler's time. A thread cannot be stopped, so a hanging one is
    given up without another attempt: the next would run beside it."""
    seconds = subscription.policy.handler_timeout
    running = threads.call(partial(copy_context().run, subscription.function, *arguments))
    try:
        left = seconds
        while not (await asyncio.wait([running.ended], timeout=left))[0]:
            if seconds is not None and (left := running.left(seconds)) <= 0:
                threads.give_up(running)
                reason = f"the handler took longer than {seconds} seconds, and its thread still runs"
                return Failure(reason, final=True)
    except asyncio.CancelledError:
        threads.give_up(running)
        raise
    match running.ended.result():
        case None:
            return None
        case Reject() as verdict:
            return Failure(f"rejected by the handler: {_said(verdict)}", final=True)
        case asyncio.CancelledError():
            return CANCELLED
        case error:
            return _failure(error)


def _failure(error: BaseException) -> Failure:
    frames = plain("".join(traceback.format_exception(error)))
    return Failure(f"{type(error).__name__}: {_said(error)}", frames)


def _said(error: BaseException) -> str:
    """What an exception says, as far as a log and a dead letter can hold it."""
    try:
        return plain(str(error)[:REASON_MAX_CHARACTERS])
    except Exception:  # noqa: BLE001 an exception's own __str__ may be broken; the event's failure stays its failure
        return "(what it says cannot be read)"


class Gate:
    """How many handlers may run at once; the higher priority goes first, then who waits longest. `within`: a gate
    behind this one, which must be passed too."""

    def __init__(self, places: int, within: Gate | None = None) -> None:
        self._free = places
        self._within = within
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = 0

    def enter_at_once(self) -> bool:
        """False: there is no place, wait for one with `enter`."""
        if self._free <= 0 or (self._within is not None and not self._within.enter_at_once()):
            return False
        self._free -= 1
        return True

    async def enter(self, priority: int) -> None:
        if self._free > 0:
            self._free -= 1
        else:
            await self._wait(priority)
        if self._within is not None:
            try:
                await self._within.enter(priority)
            except BaseException:
                self._give_back()
                raise

    async def _wait(self, priority: int) -> None:
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._order += 1
        heapq.heappush(self._waiting, (-priority, self._order, place))
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self._give_back()  # the place was already ours
            raise

    def leave(self) -> None:
        if self._within is not None:
            self._within.leave()
        if self._waiting:
            self._give_back()
        else:
            self._free += 1

    def _give_back(self) -> None:
        while self._waiting:
            _, _, place = heapq.heappop(self._waiting)
            if not place.done():
                place.set_result(None)
                return
        self._free += 1
