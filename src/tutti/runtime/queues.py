"""What is done with messages taken from a queue: a handler's own queue, replayed dead letters, `bus.receive`."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

import msgspec

from tutti.bus.port import Taken
from tutti.errors import BusError, InvalidEvent
from tutti.model import attributes
from tutti.model.cloudevents import from_message
from tutti.model.envelope import Envelope
from tutti.model.event import CloudEvent, event_type
from tutti.model.policy import Batch
from tutti.runtime.admission import UNREADABLE, Admission, Item, moment
from tutti.runtime.clock import Clock
from tutti.runtime.context import Context
from tutti.runtime.dead import RECEIVED, DeadLetter, decoded
from tutti.runtime.delivery import Delivery
from tutti.runtime.execution import Failure, Gate, call
from tutti.runtime.publisher import REPLAY_PREFIX
from tutti.runtime.subscriber import Subscriber, Subscription
from tutti.runtime.threads import Threads
from tutti.runtime.worker import Beat, Hand, Verdict

log = logging.getLogger("tutti.queue")
_ONE = Batch(most=1, wait=0.0)


class Replay(msgspec.Struct, frozen=True):
    """A dead letter that comes back: from which stream its event was, and which replay this is."""

    stream: str
    number: int


class QueueHandler:
    """One subscription's part in taking messages from a queue."""

    def __init__(
        self, context: Context, subscriber: str, subscription: Subscription, gate: Gate | None, threads: Threads
    ) -> None:
        labels = {"subscriber": subscriber, "subscription": subscription.name}
        self._context = context
        self._subscriber = subscriber
        self.subscription = subscription
        self._gate = gate
        self._threads = threads
        self._places = asyncio.Semaphore(subscription.policy.concurrency)
        self._admission = Admission(subscription, context.clock, context.metrics, context.publisher.reply, **labels)
        self._admission.bus = context.bus
        self._handled = context.metrics.counter("tutti_handled_total", **labels)
        self._failures = context.metrics.counter("tutti_failures_total", **labels)
        self._expired = context.metrics.counter("tutti_expired_total", **labels)
        self._dead = context.metrics.counter("tutti_dead_total", **labels)

    @property
    def clock(self) -> Clock:
        return self._context.clock

    @property
    def batch(self) -> Batch:
        """How many it gets at once."""
        batch = self.subscription.policy.batch if self.subscription.takes_list else None
        return batch if batch is not None else _ONE

    def admit(self, message: Taken) -> Item | None:
        """The event, if this handler takes it. It may be poison."""
        item = self._admission.admit(message.record, -1, self._context.clock.monotonic())
        if item is not None:
            item.delivery.attempt = message.attempt
        return item

    def is_over(self, item: Item) -> bool:
        """Its lifetime has ended: it is not handled."""
        over = item.expires_at is not None and item.expires_at <= self._context.clock.monotonic()
        self._expired.value += over
        return over

    async def handle(self, items: list[Item], replay: Replay | None = None) -> Verdict:
        attempt = max(item.delivery.attempt for item in items)
        failure = await self._call(items)
        if self._context.witness is not None:
            self._context.tell_witness(self._subscriber, self.subscription.name, items, failure)
        if failure is None:
            self._handled.value += len(items)
            return None
        self._failures.value += 1
        self._say("attempt %d at %s failed: %s", items[0], attempt, items[0].delivery.id, failure.reason)
        policy = self.subscription.policy
        if not failure.final and attempt < policy.attempts:
            pause = min(policy.backoff.most, policy.backoff.first * policy.backoff.factor ** (attempt - 1))
            return pause * (1 - random.random() / 2)
        for item in items:
            await self.bury(item, failure, attempt, replay)
        return None

    async def _call(self, items: list[Item]) -> Failure | None:
        async with self._places:  # others may take from the same queue, and each has a policy of its own
            return await self._call_now(items)

    async def _call_now(self, items: list[Item]) -> Failure | None:
        if self._gate is None:
            return await call(self.subscription, items, self._threads)
        await self._gate.enter(self.subscription.policy.priority)
        try:
            return await call(self.subscription, items, self._threads)
        finally:
            self._gate.leave()

    async def bury(self, item: Item, failure: Failure, attempts: int, replay: Replay | None = None) -> None:
        letter = DeadLetter.of(
            item.delivery.record,
            item.delivery.envelope,
            subscriber=self._subscriber,
            subscription=self.subscription.name,
            stream=replay.stream if replay is not None else "",
            replay=replay.number if replay is not None else 0,
            reason=failure.reason,
            attempts=attempts,
            traceback=failure.traceback,
            buried_at=datetime.fromtimestamp(self._context.clock.wall(), UTC),
        )
        await self._context.dead.bury(letter, timeout=10.0)
        self._context.publisher.reply_failure(item.delivery.envelope, failure.reason)
        self._dead.value += 1
        self._say("%s is dead-lettered: %s", item, item.delivery.id, letter.reason)

    def _say(self, text: str, item: Item, *values: object) -> None:
        delivery = item.delivery
        about = {"event_id": delivery.id, "event_type": delivery.type}
        log.warning(f"%s.%s: {text}", self._subscriber, self.subscription.name, *values, extra=about)  # noqa: G004 fixed texts


class QueueHandlers:
    """The handlers of one subscriber that take from one queue: each message goes to the first that takes it. One that
    none of them takes is dead-lettered: nobody else will ever see it."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self._handlers: list[QueueHandler] = []

    def add(self, handler: QueueHandler) -> None:
        self._handlers.append(handler)

    @property
    def concurrency(self) -> int:
        return sum(handler.subscription.policy.concurrency for handler in self._handlers)

    @property
    def most(self) -> int:
        return max(handler.batch.most for handler in self._handlers)

    async def handle(self, hand: Hand) -> Sequence[Verdict]:
        """Single events at once; lists when they are full, or have waited long enough for more."""
        async with asyncio.TaskGroup() as calls:
            sorted_ = _Sorted(calls)
            self._sort(hand.taken, sorted_)
            while (wait := sorted_.wait(self._clock.monotonic())) > 0:
                more = await hand.more(sorted_.room, wait)
                if not more:
                    break
                self._sort(more, sorted_)
            sorted_.call_lists()
        return sorted_.verdicts

    @property
    def _clock(self) -> Clock:
        return self._handlers[0].clock

    def _sort(self, taken: Sequence[Taken], sorted_: _Sorted) -> None:
        for message in taken:
            handler, item = self._choose(message)
            if item.poison:
                sorted_.bury(handler, item)
            elif handler.is_over(item):
                sorted_.drop()
            elif handler.subscription.takes_list:
                sorted_.gather(handler, item, self._clock.monotonic())
            else:
                sorted_.call(handler, item)

    def _choose(self, message: Taken) -> tuple[QueueHandler, Item]:
        for handler in self._handlers:
            item = handler.admit(message)
            if item is not None:
                return handler, item
        unwanted = Item(Delivery(message.record, from_message(message.record.headers, message.record.data), _mute), "")
        unwanted.poison = f"no handler takes {unwanted.delivery.type} from the queue {self.queue!r}"
        return self._handlers[0], unwanted


class _List(msgspec.Struct):
    """Messages that one handler will get together, by their places in the hand."""

    ends: float
    items: dict[int, Item]


class _Sorted:
    """The messages of one hand and what is done with each. The verdicts are complete when all calls have ended."""

    def __init__(self, calls: asyncio.TaskGroup) -> None:
        self.verdicts: list[Verdict] = []
        self._calls = calls
        self._lists: dict[QueueHandler, _List] = {}

    def drop(self) -> int:
        """Nothing is done with it. Returns its place."""
        self.verdicts.append(None)
        return len(self.verdicts) - 1

    def bury(self, handler: QueueHandler, item: Item) -> None:
        self._calls.create_task(self._bury(handler, self.drop(), item))

    def call(self, handler: QueueHandler, item: Item) -> None:
        self._calls.create_task(self._call(handler, {self.drop(): item}))

    def gather(self, handler: QueueHandler, item: Item, now: float) -> None:
        gathered = self._lists.setdefault(handler, _List(now + handler.batch.wait, {}))
        gathered.items[self.drop()] = item
        if len(gathered.items) >= handler.batch.most:
            self._calls.create_task(self._call(handler, self._lists.pop(handler).items))

    def call_lists(self) -> None:
        for handler, gathered in self._lists.items():
            self._calls.create_task(self._call(handler, gathered.items))

    def wait(self, now: float) -> float:
        """How long the first list may go on waiting; 0 if there is none."""
        return max(0.0, min((gathered.ends - now for gathered in self._lists.values()), default=0.0))

    @property
    def room(self) -> int:
        """So many more fit in any list."""
        return min(handler.batch.most - len(gathered.items) for handler, gathered in self._lists.items())

    async def _call(self, handler: QueueHandler, items: dict[int, Item]) -> None:
        try:
            verdict = await handler.handle(list(items.values()))
        except BusError as error:
            verdict = _put_off(error)
        for place in items:
            self.verdicts[place] = verdict

    async def _bury(self, handler: QueueHandler, place: int, item: Item) -> None:
        try:
            await handler.bury(item, Failure(item.poison), 0)
        except BusError as error:
            self.verdicts[place] = _put_off(error)


def _put_off(error: BusError) -> float:
    """The dead letter could not be written: the message stays in its queue."""
    log.warning("dead letter not stored, the message is offered again: %s", error.what)
    return 1.0


def _mute(event: object, request: Envelope) -> None:
    """Nobody answers for an event that nobody takes."""


class ReplayHandler:
    """Dead letters that an operator sent back to this subscriber. They come out of order, and their lifetime no longer
    counts: their time is long past."""

    def __init__(self, context: Context, subscriber: Subscriber, threads: Threads) -> None:
        self._handlers = {
            name: QueueHandler(context, subscriber.name, subscription, None, threads)
            for name, subscription in subscriber.subscriptions.items()
        }
        self.queue = REPLAY_PREFIX + subscriber.name

    async def handle(self, hand: Hand) -> Sequence[Verdict]:
        return [await self._one(message) for message in hand.taken]

    async def _one(self, message: Taken) -> Verdict:
        try:
            return await self._replay(message)
        except BusError as error:
            return _put_off(error)

    async def _replay(self, message: Taken) -> Verdict:
        try:
            letter = decoded(message.record.data)
        except InvalidEvent as error:
            log.error("queue %s: %s; it is removed", self.queue, error.what)  # noqa: TRY400 expected; no traceback
            return None
        handler = self._handlers.get(letter.subscription)
        if handler is None:
            return 5.0  # a handler of another version of this subscriber: leave it for that one
        item = handler.admit(_Replayed(letter, message))
        if item is None:
            return None  # the filter has changed since, and no longer wants it
        replay = Replay(letter.stream, message.record.sequence)
        if item.poison:
            await handler.bury(item, Failure(item.poison), 0, replay)
            return None
        return await handler.handle([item], replay)


class _Replayed:
    """A dead letter, looking like the message it once was."""

    def __init__(self, letter: DeadLetter, taken: Taken) -> None:
        self.record = letter.record()
        self._taken = taken

    @property
    def attempt(self) -> int:
        return self._taken.attempt

    async def settle(self) -> None:
        await self._taken.settle()

    async def hand_back(self, *, delay: float = 0.0) -> None:
        await self._taken.hand_back(delay=delay)

    async def working(self) -> None:
        await self._taken.working()


async def receive(context: Context, queue: str, types: tuple[type, ...], wait: float | None) -> Message | None:
    """The next message that can be read and whose time is not over. What cannot be read is dead-lettered."""
    clock = context.clock
    deadline = clock.monotonic() + wait if wait is not None else None
    while True:
        left = max(0.0, deadline - clock.monotonic()) if deadline is not None else None
        taken = await context.transport.take(queue, wait=left)
        if not taken:
            return None
        try:
            message = Message(taken[0], types, clock)
        except InvalidEvent as error:
            await _bury_received(context, queue, taken[0], str(error))
        else:
            if not message.is_over(clock.wall()):
                return message
            context.metrics.counter("tutti_expired_total", queue=queue).value += 1
        await taken[0].settle()


async def _bury_received(context: Context, queue: str, taken: Taken, reason: str) -> None:
    letter = DeadLetter.of(
        taken.record,
        UNREADABLE,
        subscriber=queue,
        subscription=RECEIVED,
        stream="",
        reason=reason,
        attempts=0,
        traceback="",
        buried_at=datetime.fromtimestamp(context.clock.wall(), UTC),
    )
    await context.dead.bury(letter, timeout=10.0)
    context.metrics.counter("tutti_dead_total", queue=queue).value += 1


class Message:
    """A message received from a queue. As a context manager it is ours while the block runs, however long; it is done
    when the block ends, and handed back if the block raises, unless the block itself has said what becomes of it."""

    def __init__(self, taken: Taken, types: tuple[type, ...], clock: Clock) -> None:
        self._taken = taken
        self._beat = Beat(clock, [taken])
        self._settled = False
        self.envelope: Envelope = from_message(taken.record.headers, taken.record.data)
        known = {event_type(cls).name: event_type(cls) for cls in types}
        kind = known.get(self.envelope.type, event_type(CloudEvent))
        self.event: Any = kind.decode_envelope(self.envelope)

    @property
    def id(self) -> str:
        return self.envelope.id

    @property
    def attempt(self) -> int:
        return self._taken.attempt

    def is_over(self, now: float) -> bool:
        """Its lifetime has ended."""
        end = self.envelope.extensions.get(attributes.EXPIRY)
        return end is not None and moment(end, attributes.EXPIRY) <= now

    async def done(self) -> None:
        """It is removed for good."""
        self._settled = True
        await self._taken.settle()

    async def hand_back(self, *, delay: float = 0.0) -> None:
        """It is offered again, to whoever takes first."""
        self._settled = True
        await self._taken.hand_back(delay=delay)

    async def working(self) -> None:
        """Still at it. Outside an `async with` block, call it every second or so while a message takes long."""
        await self._taken.working()

    async def __aenter__(self) -> Self:
        self._beat.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._beat.stop()
        if self._settled:
            return
        if error is None:
            await self.done()
        else:
            await asyncio.shield(self.hand_back())
