"""The bus for programs without asyncio: the same calls, each returning when it is done.

    with tutti.blocking.connect() as bus:
        bus.advertise(TradeDone)
        bus.publish(TradeDone("IBM", price, now))

A loop of our own runs in a thread behind it. Plain functions of a served subscriber run in threads too.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from tutti.bus.nats import NatsOptions
from tutti.errors import DeclarationError
from tutti.limits import COMMIT_TIMEOUT_SECONDS, PUBLISH_TIMEOUT_SECONDS, TRANSACTION_SECONDS
from tutti.model.advertisement import Advertisement
from tutti.model.event import Grade
from tutti.model.transaction import CensusRule, Member, Scope
from tutti.resources import Resource
from tutti.runtime.bus import Bus, Health, ManagerPlace
from tutti.runtime.catalogue import Stream
from tutti.runtime.connect import connect as connect_async
from tutti.runtime.publication import Published
from tutti.runtime.queues import Message
from tutti.runtime.service import Service
from tutti.runtime.subscriber import Subscriber
from tutti.runtime.transactions.initiator import Transaction, Wait

T = TypeVar("T")


class BlockingMessage:
    """A message received from a queue. It is ours while its `with` block runs; done when the block ends, handed back if
    the block raises."""

    def __init__(self, message: Message, wait: Callable[[Coroutine[Any, Any, Any]], object]) -> None:
        self._message = message
        self._wait = wait
        self.event: Any = message.event
        self.id = message.id
        self.attempt = message.attempt

    def done(self) -> None:
        self._wait(self._message.done())

    def hand_back(self, *, delay: float = 0.0) -> None:
        self._wait(self._message.hand_back(delay=delay))

    def working(self) -> None:
        """As `Message.working`."""
        self._wait(self._message.working())

    def __enter__(self) -> Self:
        self._wait(self._message.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._wait(self._message.__aexit__(kind, error, traceback))


class BlockingTransaction:
    """A transaction in a `with` block: leaving it commits; an exception aborts, everywhere.

    There is no `enlist` here: a connection of a driver for asyncio is of no use to this thread. Let a subscriber do the
    work, or use the asynchronous bus."""

    def __init__(self, transaction: Transaction, wait: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._transaction = transaction
        self._wait = wait

    def __enter__(self) -> Self:
        self._wait(self._transaction.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._wait(self._transaction.__aexit__(kind, error, traceback))

    @property
    def id(self) -> str:
        return self._transaction.id

    @property
    def members(self) -> tuple[Member, ...]:
        return self._transaction.members

    @property
    def deadline(self) -> float:
        return self._transaction.deadline

    def publish(self, event: object, *, last: bool = False) -> None:
        """As `Transaction.publish`."""
        self._wait(self._transaction.publish(event, last=last))

    def commit(self, *, timeout: float = COMMIT_TIMEOUT_SECONDS, wait: Wait = "decided") -> None:
        """As `Transaction.commit`."""
        self._wait(self._transaction.commit(timeout=timeout, wait=wait))

    def abort(self, reason: str = "the publisher wants it") -> None:
        """As `Transaction.abort`."""
        self._wait(self._transaction.abort(reason))


class BlockingBus:
    """Made by `connect`. May be used from several threads at once."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        started = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, args=(self._loop, started), name="tutti", daemon=True)
        self._thread.start()
        started.wait()
        try:
            self._wait(self._bus.open())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._wait(self._bus.close())
        finally:
            self._end()

    def advertise(self, *classes: type) -> None:
        """As `Bus.advertise`."""
        self._wait(self._bus.advertise(*classes))

    def types(self) -> list[Advertisement]:
        return self._wait(self._bus.types())

    def publish(
        self,
        event: object,
        *,
        id: str | None = None,  # noqa: A002 the attribute's name in CloudEvents
        grade: Grade | None = None,
        lifetime: float | None = None,
        priority: int | None = None,
        time: datetime | None = None,
        subject: str | None = None,
        traceparent: str = "",
        attributes: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Published:
        """As `Bus.publish`."""
        return self._wait(
            self._bus.publish(
                event,
                id=id,
                grade=grade,
                lifetime=lifetime,
                priority=priority,
                time=time,
                subject=subject,
                traceparent=traceparent,
                attributes=attributes,
                timeout=timeout,
            )
        )

    def publish_many(
        self,
        events: Iterable[object],
        *,
        grade: Grade | None = None,
        lifetime: float | None = None,
        priority: int | None = None,
        timeout: float | None = None,
    ) -> list[Published]:
        """As `Bus.publish_many`."""
        return self._wait(
            self._bus.publish_many(events, grade=grade, lifetime=lifetime, priority=priority, timeout=timeout)
        )

    def send(
        self,
        event: object,
        *,
        to: str,
        id: str | None = None,  # noqa: A002 as above
        lifetime: float | None = None,
        timeout: float | None = None,
    ) -> Published:
        """As `Bus.send`."""
        return self._wait(self._bus.send(event, to=to, id=id, lifetime=lifetime, timeout=timeout))

    def receive(self, queue: str, *types: type, wait: float | None = None) -> BlockingMessage | None:
        message = self._wait(self._bus.receive(queue, *types, wait=wait))
        return BlockingMessage(message, self._wait) if message is not None else None

    def request(self, event: object, *, reply: type[T], timeout: float = 5.0) -> T:
        return self._wait(self._bus.request(event, reply=reply, timeout=timeout))

    def transaction(
        self,
        value: object,
        *,
        scope: Scope = "private",
        census: CensusRule | None = None,
        group: str = "",
        deadline: float = TRANSACTION_SECONDS,
        minimum: int = 0,
        vital: Callable[[str], bool] | None = None,
        attempts: int = 1,
    ) -> BlockingTransaction:
        """As `Bus.transaction`, for a `with` block."""
        transaction = self._bus.transaction(
            value,
            scope=scope,
            census=census,
            group=group,
            deadline=deadline,
            minimum=minimum,
            vital=vital,
            attempts=attempts,
        )
        return BlockingTransaction(transaction, self._wait)

    @contextmanager
    def serve(self, *subscribers: Subscriber) -> Iterator[None]:
        """Serve subscribers while the block runs; plain handlers run in threads."""
        services: list[Service] = []
        try:
            for subscriber in subscribers:
                services.append(self._wait(self._bus.start(subscriber)))  # noqa: PERF401 the ones started must be stopped
            yield
        finally:
            for service in services:
                self._wait(self._bus.stop(service))

    def health(self) -> Health:
        return self._bus.health()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            work.close()
            raise DeclarationError("the bus is not open", hint="use it inside `with tutti.blocking.connect() as bus:`")
        if threading.current_thread() is self._thread:
            work.close()
            raise DeclarationError(
                "the blocking bus was called from its own loop, which would wait for itself for ever",
                hint="in `async def` handlers use an asynchronous bus; plain `def` handlers may call this one",
            )
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _run(self, loop: asyncio.AbstractEventLoop, started: threading.Event) -> None:
        asyncio.set_event_loop(loop)
        loop.call_soon(started.set)
        try:
            loop.run_forever()
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    def _end(self) -> None:
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()


def connect(
    url: str | Sequence[str] | None = None,
    *,
    data: str | Path | None = None,
    name: str = "",
    namespace: str | None = None,
    streams: Mapping[str, Stream] | None = None,
    timeout: float = PUBLISH_TIMEOUT_SECONDS,
    options: NatsOptions | None = None,
    journal: str | Path | None = None,
    resources: Sequence[Resource[Any]] = (),
    manager: ManagerPlace = "here",
    trusted: str = "",
) -> BlockingBus:
    """As `tutti.connect`, for a `with` block."""
    return BlockingBus(
        connect_async(
            url,
            data=data,
            name=name,
            namespace=namespace,
            streams=streams,
            timeout=timeout,
            options=options,
            journal=journal,
            resources=resources,
            manager=manager,
            trusted=trusted,
        )
    )
