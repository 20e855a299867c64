"""The bus as its users see it: advertise, publish, subscribe, queue, ask."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
)
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

import msgspec

from tutti.bus.port import Record, Status, StreamSpec, Transport
from tutti.errors import DeclarationError, NoReply, RequestFailed, TuttiError
from tutti.journal import ParticipantLog
from tutti.limits import (
    PUBLISH_TIMEOUT_SECONDS,
    STOP_GRACE_SECONDS,
    TRANSACTION_MAX_SECONDS,
    TRANSACTION_SECONDS,
)
from tutti.model.advertisement import Advertisement
from tutti.model.cloudevents import from_message
from tutti.model.event import Grade, event_type
from tutti.model.policy import Policy
from tutti.model.subjects import Layout, checked_name
from tutti.model.transaction import CensusRule, Scope, is_number
from tutti.model.txtype import is_transaction_type, transaction_type
from tutti.resources import Resource
from tutti.runtime.catalogue import Catalogue, Stream
from tutti.runtime.clock import Clock, SystemClock
from tutti.runtime.context import Context, Witness
from tutti.runtime.dead import DeadLetters
from tutti.runtime.delivery import Delivery
from tutti.runtime.metrics import Metrics
from tutti.runtime.once import Once
from tutti.runtime.publication import Options, Published
from tutti.runtime.publisher import FAILURE_HEADER, Publisher, checked_queue
from tutti.runtime.queues import Message, receive
from tutti.runtime.retention import Retention
from tutti.runtime.service import Service
from tutti.runtime.subscriber import StartAt, Subscriber
from tutti.runtime.transactions.coordinator import Coordinator
from tutti.runtime.transactions.initiator import Transaction, Wish
from tutti.runtime.transactions.log import transaction_streams
from tutti.runtime.transactions.managing import Managers
from tutti.runtime.transactions.opening import CoordinatorOpener
from tutti.runtime.transactions.own_log import OpenLog, log_opener
from tutti.runtime.transactions.remote import RemoteManagers

log = logging.getLogger("tutti")

T = TypeVar("T")

OpenTransport = Callable[[Layout], Awaitable[Transport]]
ManagerPlace = Literal["here", "service"]


class Health(msgspec.Struct, frozen=True):
    """`ok`: connected, everything at work; `degraded`: connected, but a task of ours has failed; `down`: no server."""

    state: Literal["ok", "degraded", "down"]
    server: Status
    services: dict[str, list[int]]  # subscriber: the partitions this instance owns
    failures: list[str]


class Bus:
    """Use it as `async with tutti.connect() as bus:`. One bus per process is enough; it is not shared between loops."""

    def __init__(
        self,
        open_transport: OpenTransport,
        *,
        namespace: str = "tutti",
        name: str = "",
        streams: Mapping[str, Stream] | None = None,
        timeout: float = PUBLISH_TIMEOUT_SECONDS,
        clock: Clock | None = None,
        open_coordinator: CoordinatorOpener | None = None,
        open_log: OpenLog | None = None,
        manager: ManagerPlace = "here",
        trusted: str = "",
        alone: bool = False,
        witness: Witness | None = None,
    ) -> None:
        self._open_transport = open_transport
        self._layout = Layout(checked_name(namespace, "namespace"))
        self._name = name
        self._streams = dict(streams or {})
        self._timeout = timeout
        self._clock = clock or SystemClock()
        self._open_coordinator = open_coordinator
        self._coordinator = Once(self._begin_coordinator)
        self._manager_place, self._trusted = manager, trusted
        self._remote = Once(self._open_remote)
        self._starting = asyncio.Lock()
        self._started: list[Resource[Any]] = []
        self._own_log = Once(open_log or log_opener(None))
        self._alone = alone
        self._witness = witness
        self._context: Context | None = None
        self._services: list[Service] = []
        self._retention: Retention | None = None
        self._failures: list[str] = []
        self.metrics = Metrics()

    # Life

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Connect, and make sure that Tutti's own streams are there."""
        if self._context is not None:
            raise DeclarationError("this bus is open already", hint="open one bus per process, and share it")
        transport = await self._open_transport(self._layout)
        try:
            await self._ensure_own_streams(transport)
        except BaseException:
            await transport.close()
            raise
        run = secrets.token_hex(6)
        catalogue = Catalogue(transport, self._layout, self._streams)
        self._context = Context(
            transport=transport,
            layout=self._layout,
            clock=self._clock,
            metrics=self.metrics,
            catalogue=catalogue,
            publisher=Publisher(
                transport,
                self._layout,
                catalogue,
                clock=self._clock,
                metrics=self.metrics,
                name=self._name,
                run=run,
            ),
            dead=DeadLetters(transport, self._layout),
            bus=self,
            instance=f"{self._name or 'instance'}-{run}",
            failed=self._failed,
            report=self._report,
            alone=self._alone,
            witness=self._witness,
            trusted=self._trusted,
        )
        self._retention = Retention(self._context)
        self._retention.start()

    async def close(self, *, grace: float = STOP_GRACE_SECONDS) -> None:
        """Stop every service gracefully, then disconnect."""
        if self._context is None:
            return
        try:
            stopped = await asyncio.gather(
                *(self.stop(service, grace=grace) for service in self.services), return_exceptions=True
            )
        finally:
            context, self._context = self._context, None
            await self._close_transactions()
            if self._retention is not None:
                await self._retention.close()
            await context.transport.close()
        for outcome in stopped:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _ensure_own_streams(self, transport: Transport) -> None:
        """In as many copies as the best-kept stream that is declared; never in fewer than they are in already, for they
        belong to everybody, also to those who declare nothing."""
        layout = self._layout
        known = await transport.stream_info(layout.state_stream)
        replicas = max(
            [known.replicas if known is not None else 1, *(stream.replicas for stream in self._streams.values())]
        )
        own = (
            StreamSpec(layout.state_stream, (layout.state_subjects,), replicas=replicas, last_per_subject=True),
            StreamSpec(layout.queue_stream, (layout.queue_subjects,), replicas=replicas, queue=True),
            StreamSpec(layout.dead_stream, (layout.dead_subjects,), replicas=replicas),
            *transaction_streams(layout, replicas),
        )
        await asyncio.gather(*(transport.ensure_stream(spec) for spec in own))

    # Types

    async def advertise(self, *classes: type) -> None:
        """Say that events of these types will be published; with a transaction type, also those that it names. Durable;
        refuses a change that old subscribers or publishers of the type could not live with."""
        catalogue = self.context.catalogue
        for cls in classes:
            if not is_transaction_type(cls):
                await catalogue.advertise(cls)
                continue
            for event in transaction_type(cls).events:
                await catalogue.advertise(event.python)
            await catalogue.advertise_transaction(transaction_type(cls))

    async def types(self) -> list[Advertisement]:
        return await self.context.catalogue.types()

    async def describe(self, name: str) -> Advertisement:
        """The advertisement of one type; `UnknownType` names those that there are."""
        return await self.context.catalogue.get(name)

    # Publish

    async def publish(
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
        """Publish one event and wait until it is stored.

        Raises `Refused` if it is certainly not stored, `OutcomeUnknown` if it may be: publishing it again with the same
        `id` is safe within the stream's duplicate window. Waits up to `timeout` seconds for a server that is away."""
        options = Options(id, grade, lifetime, priority, time, subject, traceparent, attributes, "", timeout)
        return await self.context.publisher.publish(event, options, self._timeout)

    async def publish_many(
        self,
        events: Iterable[object] | AsyncIterable[object],
        *,
        grade: Grade | None = None,
        lifetime: float | None = None,
        priority: int | None = None,
        timeout: float | None = None,
    ) -> list[Published]:
        """Publish in order, without waiting for each: the fast way for many events."""
        options = Options(grade=grade, lifetime=lifetime, priority=priority, timeout=timeout)
        return await self.context.publisher.publish_many(events, options, self._timeout)

    async def send(
        self,
        event: object,
        *,
        to: str,
        id: str | None = None,  # noqa: A002 as above
        lifetime: float | None = None,
        timeout: float | None = None,
    ) -> Published:
        """Put an event into a named durable queue: one taker will have it."""
        options = Options(id=id, lifetime=lifetime, timeout=timeout)
        return await self.context.publisher.send(event, to, options, self._timeout)

    async def receive(self, queue: str, *types: type, wait: float | None = None) -> Message | None:
        """Take the next message of a queue; None if none came within `wait` seconds (None waits for ever).

            message = await bus.receive("billing", Invoice, wait=5)
            if message is not None:
                async with message: …

        The message is done when the block ends; an exception hands it back."""
        return await receive(self.context, checked_queue(queue), types, wait)

    async def request(self, event: object, *, reply: type[T], timeout: float = 5.0) -> T:
        """Publish an event and wait for the first answer. Raises `NoReply` if none came in time, and `RequestFailed` if
        the handler gave up on it."""
        inbox = self.context.transport.inbox()
        kind = event_type(reply)
        listener = await self.context.transport.listen(inbox)
        try:
            options = Options(reply_to=inbox, lifetime=timeout, timeout=timeout)
            async with asyncio.timeout(timeout):
                await self.context.publisher.publish(event, options, timeout)
                async for record in listener:
                    result: T = kind.decode(_answer(record, kind.name).data)
                    return result
        except TimeoutError:
            pass
        finally:
            await listener.close()
        name = event_type(event).name
        raise NoReply(
            f"nobody answered {name} within {timeout} seconds",
            hint="is a subscriber with a handler for it running, and does it call `await delivery.reply(…)`?",
        )

    # Transactions

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
    ) -> Transaction:
        """One outcome for the events published in it and all that subscribers do with them:

            async with bus.transaction(Meeting("DSOnline", when), census=tutti.Census(at_least=2)) as tx:
                await tx.publish(Invitation(room="FW26"))

        value     of a transaction type: what the census announces
        scope     "private": only members can read the events; "public": others see them once it is committed
        census    who may take part (without one and without a group: whoever joins within five seconds, at least one)
        group     a standing group instead of a census
        deadline  seconds until it is aborted if it is not decided
        minimum   so many members must stay until the vote
        vital     of a group: by name, whose no aborts everything (the others are left out); without it, as enrolled
        attempts  how often a member's handler is tried, its work undone each time, before it votes to abort
        """
        if census is not None and group:
            raise DeclarationError("a transaction has a census, or a group, not both", hint="leave one of them out")
        if not is_number(deadline) or not 0 < deadline <= TRANSACTION_MAX_SECONDS:
            raise DeclarationError(
                f"deadline={deadline!r} is no time for a transaction",
                hint=f"seconds, more than 0 and at most {TRANSACTION_MAX_SECONDS:,.0f}",
            )
        rule = census if census is not None or group else CensusRule()
        chosen = checked_name(group, "group") if group else ""
        wish = Wish(transaction_type(value), value, scope, float(deadline), rule, chosen, minimum, vital, attempts)
        return Transaction(wish, self._managers)

    async def _managers(self) -> Managers:
        return await (self._coordinator.get() if self._manager_place == "here" else self._remote.get())

    async def _open_remote(self) -> RemoteManagers:
        remote = RemoteManagers(self.context)
        await remote.start()
        return remote

    async def _begin_coordinator(self) -> Coordinator:
        context = self.context
        if self._open_coordinator is None:
            raise DeclarationError("this bus has no journal", hint="open it with `tutti.connect(journal=…)`")
        return await self._open_coordinator(context)

    async def coordinator(self) -> Coordinator:
        """The managers of this process, with their journal; begun when it is first asked for."""
        return await self._coordinator.get()

    async def stand_by(self) -> None:
        """Finish what managers left behind, if this process shares the journal of the namespace."""
        if self._open_coordinator is not None and self._open_coordinator.exists():
            await self.coordinator()

    async def host(self) -> Coordinator:
        """Manage transactions of publishers in other processes too, from now on (`tutti up`)."""
        coordinator = await self.coordinator()
        await coordinator.host()
        return coordinator

    async def participant_log(self) -> ParticipantLog:
        """Where subscribers of this process write down their votes; opened when it is first asked for."""
        return await self._own_log.get()

    async def ready(self, resource: Resource[Any]) -> None:
        """Started by whoever uses it first; what was started here is closed with the bus."""
        async with self._starting:
            if await resource.start():
                self._started.append(resource)

    async def _close_transactions(self) -> None:
        for opened in (self._remote, self._coordinator, self._own_log):
            await opened.close()
        started, self._started = self._started, []
        for resource in started:
            with contextlib.suppress(TuttiError, OSError):
                await resource.close()

    # Subscribe

    async def start(self, subscriber: Subscriber) -> Service:
        """Start a subscriber in this process. When this returns, an event published later will be handled."""
        if self._alone and any(service.subscriber.name == subscriber.name for service in self._services):
            raise DeclarationError(
                f"subscriber {subscriber.name!r} is served already", hint="a bus in memory has one instance of each"
            )
        service = Service(self.context, subscriber)
        await service.start()
        self._services.append(service)
        return service

    async def stop(self, service: Service, *, grace: float = STOP_GRACE_SECONDS) -> bool:
        """Finish what runs and hand back the rest; False if a handler did not end within `grace` seconds."""
        try:
            return await service.stop(grace)
        finally:
            if service in self._services:
                self._services.remove(service)

    @contextlib.asynccontextmanager
    async def serve(self, *subscribers: Subscriber) -> AsyncIterator[None]:
        """Serve subscribers while the block runs."""
        async with contextlib.AsyncExitStack() as stack:
            for subscriber in subscribers:
                stack.push_async_callback(self.stop, await self.start(subscriber))
            yield

    async def subscribe(
        self, event: type[T], *, where: str | None = None, start: StartAt = "latest", in_flight: int = 1000
    ) -> AsyncGenerator[tuple[T, Delivery], None]:
        """Iterate over events as they come, without a durable subscription:

        async for event, delivery in bus.subscribe(TradeDone, where="price > 100"): …
        """
        arrived: asyncio.Queue[tuple[T, Delivery]] = asyncio.Queue(in_flight)
        policy = Policy(in_flight=in_flight, handler_timeout=None)
        watcher = Subscriber(f"watch-{secrets.token_hex(4)}", policy=policy, ephemeral=True)

        @watcher.on(event, where=where, start=start)
        async def each(event: Any, delivery: Delivery) -> None:
            await arrived.put((event, delivery))

        service = await self.start(watcher)
        try:
            while True:
                yield await arrived.get()
        finally:
            await self.stop(service, grace=0)
            self.metrics.forget(subscriber=watcher.name)

    # Look after

    async def sweep(self) -> dict[str, int]:
        """Purge what the streams' settings say and no durable subscriber needs; how many events went, by stream. An
        open bus does this by itself every half minute."""
        return await Retention(self.context).sweep()

    @property
    def context(self) -> Context:
        if self._context is None:
            raise DeclarationError("the bus is not open", hint="use it inside `async with tutti.connect() as bus:`")
        return self._context

    @property
    def dead(self) -> DeadLetters:
        return self.context.dead

    @property
    def name(self) -> str:
        return self.context.publisher.name

    @property
    def services(self) -> tuple[Service, ...]:
        return tuple(self._services)

    def health(self) -> Health:
        status = self.context.transport.status()
        state: Literal["ok", "degraded", "down"] = "ok" if not self._failures else "degraded"
        services = {service.subscriber.name: sorted(service.partitions) for service in self._services}
        return Health(state if status.connected else "down", status, services, list(self._failures))

    def _failed(self, task: asyncio.Task[None]) -> None:
        """A task of ours died: that is a bug, and it must be seen."""
        error = task.exception()
        self._failures.append(f"{type(error).__name__}: {error}")
        log.error("a task of the bus failed", exc_info=error)

    def _report(self, trouble: str) -> None:
        if trouble not in self._failures:
            self._failures.append(trouble)
            log.error("%s", trouble)


def _answer(record: Record, wanted: str) -> Any:
    reason = record.headers.get(FAILURE_HEADER)
    if reason is not None:
        raise RequestFailed(f"the handler gave up: {reason}", hint="`tutti dead ls` shows the request and the reason")
    envelope = from_message(record.headers, record.data)
    if envelope.type != wanted:
        raise TuttiError(f"the answer is a {envelope.type}, not a {wanted}")
    return envelope


__all__ = ["Bus", "Health", "OpenTransport"]
