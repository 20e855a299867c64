"""A subscriber at work in this process: its feeds, the partitions it owns, its positions, its queues.

`flow.partitions` decides which partitions are ours; this driver observes, writes leases and positions, and tells the
feeds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Sequence
from datetime import UTC, datetime
from itertools import count
from typing import Any

import msgspec

from tutti.bus.port import Listener
from tutti.errors import BusError, Conflict, DeclarationError, TypeConflict
from tutti.limits import (
    HORIZON_SECONDS,
    PARTITIONS_COUNT,
    POSITION_FLUSH_SECONDS,
    TRANSACTION_EVENTS_MAX_COUNT,
    WATCHED_CALLS_COUNT,
)
from tutti.runtime.admission import Item
from tutti.runtime.context import Context
from tutti.runtime.execution import Gate
from tutti.runtime.feed import Feed
from tutti.runtime.leases import Leases
from tutti.runtime.positions import Positions, PositionStore, Registration
from tutti.runtime.queues import QueueHandler, QueueHandlers, ReplayHandler
from tutti.runtime.subscriber import Subscriber, Subscription
from tutti.runtime.threads import Threads
from tutti.runtime.transactions.commit_feed import ON_COMMIT, CommitFeed, start_on_commit
from tutti.runtime.transactions.participant import Participants
from tutti.runtime.worker import QueueWorker

log = logging.getLogger("tutti.service")
_SERVICES = count(1)  # two services of one name in one process are two instances


class Service:
    """Start it, stop it; in between it handles events."""

    def __init__(self, context: Context, subscriber: Subscriber) -> None:
        self.subscriber = subscriber
        self._context = context
        self._store = PositionStore(context.transport, subscriber.name)
        self._starts: dict[str, int] = {}
        self._gate = Gate(subscriber.concurrency) if subscriber.concurrency is not None else None
        plain = [s for s in subscriber.subscriptions.values() if not s.is_async]
        self._threads = Threads(sum(subscription.policy.concurrency for subscription in plain))
        self.feeds: dict[str, Feed] = {}
        self._leases: Leases | None = None
        self._epochs: dict[int, int] = {}  # of the partitions that are ours
        self._dirty: set[int] = set()
        self._watched: dict[int, int] = {}  # partitions whose last owner died at once: calls still to be written down
        self._saving = False
        self._flush_wanted = asyncio.Event()
        self._queues: dict[str, QueueHandlers] = {}
        self._workers: list[QueueWorker] = []
        self._listeners: list[Listener] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._pens: dict[int, asyncio.Lock] = {}  # who writes the positions of a partition
        self._unproven: set[str] = set()  # subscriptions whose type nobody has advertised yet
        self.instance = f"{context.instance}-{next(_SERVICES)}"
        self.participants: Participants | None = None  # in transactions of others

    @property
    def partitions(self) -> frozenset[int]:
        """The partitions that this instance owns now."""
        return frozenset(self._epochs)

    # Start and stop

    async def start(self) -> None:
        """When this returns, an event published later will be handled."""
        if not self.subscriber.subscriptions:
            raise DeclarationError(
                f"subscriber {self.subscriber.name!r} has no handlers",
                hint=f"declare one with @{self.subscriber.name}.on(SomeEvent)",
            )
        parts = self.subscriber.parts()
        try:
            for subscription in self.subscriber.subscriptions.values():
                await self._add(subscription)
            if parts.joinings:
                own_log = await self._context.bus.participant_log()
                self.participants = Participants(self._context, parts, own_log, self.instance)
                await self.participants.start()
            self._start_queues()
            self._start_replays()
            if self.subscriber.ephemeral:
                await self._read_everything()
            else:
                await self._start_leases()
            self._spawn(self._follow_the_log())
        except BaseException:
            await self._close()
            raise

    async def stop(self, grace: float) -> bool:
        """Finish what runs, hand back the rest. False if a handler was still at work after `grace` seconds."""
        try:
            return await self._stop(grace)
        finally:
            await self._close()

    async def resign(self, group: str) -> None:
        """Leave a standing group for good: transactions with it no longer wait for this subscriber. What is under way
        still ends. A subscriber that declares the group enrols again when it is started again."""
        membership = self.participants.membership(group) if self.participants is not None else None
        if membership is None:
            raise DeclarationError(
                f"subscriber {self.subscriber.name!r} is not enrolled in the group {group!r}",
                hint="resign from a group that it declares with `enrol`",
            )
        await membership.resign()

    async def _stop(self, grace: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await self.follow()  # who runs for a moment now and then must not hold back retention for ever
        for listener in self._listeners:
            await listener.close()
        for feed in self.feeds.values():
            feed.pause()
        finished = await asyncio.gather(
            *(feed.finish(grace) for feed in self.feeds.values()),
            *(worker.finish(grace) for worker in self._workers),
            *([self.participants.stop(grace)] if self.participants is not None else []),
        )
        with contextlib.suppress(BusError, TimeoutError):
            async with asyncio.timeout(5.0 if all(finished) else 0.5):  # what cannot be handed back runs out
                await self._flush(clean=all(finished))
                if self._leases is not None:
                    await self._leases.stop()
        return all(finished)

    async def _close(self) -> None:
        if self.participants is not None:
            await self.participants.close()
        if self._leases is not None:
            await self._leases.close()
        for feed in self.feeds.values():
            await feed.close()
        for worker in self._workers:
            await worker.finish(0)
        for listener in self._listeners:
            await listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._threads.close()

    async def _add(self, subscription: Subscription) -> None:
        if subscription.takes_tx:
            return  # it has no feed: it hears events where its subscriber takes part in their transaction
        gate = Gate(subscription.policy.concurrency, self._gate)  # for both of its feeds
        feed = Feed(
            self._context,
            self.subscriber.name,
            subscription,
            gate=gate,
            threads=self._threads,
            moved=self._moved,
            may_run=self._may_run,
        )
        self.feeds[subscription.name] = feed
        if subscription.queue is not None:
            handlers = self._queues.setdefault(subscription.queue, QueueHandlers(subscription.queue))
            handlers.add(QueueHandler(self._context, self.subscriber.name, subscription, self._gate, self._threads))
            return
        if subscription.foreign_subject is None:
            await self._check_type(subscription)
            await self._context.catalogue.ensure_stream(subscription.published.stream)
        if subscription.foreign_stream is None:
            for subject in subscription.live_subjects(self._context.layout):
                await self._listen(feed, subject)
        if feed.stream and not self.subscriber.ephemeral:
            known = await self._store.register(self._registration(feed), subscription.start)
            self._starts[subscription.name] = known.start
        if feed.stream and subscription.foreign_subject is None:
            await self._add_committed(subscription, gate)

    async def _add_committed(self, subscription: Subscription, gate: Gate) -> None:
        """A second feed, for public events of transactions: they become visible when these commit."""
        name = subscription.name + ON_COMMIT
        start = await start_on_commit(self._context, subscription)
        feed = CommitFeed(
            self._context,
            self.subscriber.name,
            msgspec.structs.replace(subscription, start=start),
            gate=gate,
            threads=self._threads,
            moved=self._moved,
            may_run=self._may_run,
        )
        self.feeds[name] = feed
        if not self.subscriber.ephemeral:
            wanted = msgspec.structs.replace(
                self._registration(feed), subscription=name, scale=TRANSACTION_EVENTS_MAX_COUNT
            )
            known = await self._store.register(wanted, start)
            self._starts[name] = known.start

    async def _check_type(self, subscription: Subscription) -> None:
        """Routing attributes are subject tokens: a subscriber that counts them differently would hear nothing."""
        published = subscription.published
        known = await self._context.catalogue.find(published.name)
        if known is None:
            self._unproven.add(subscription.name)
            return
        self._unproven.discard(subscription.name)
        ours = tuple(a.name for a in published.routing)
        theirs = tuple(a.name for a in known.routing)
        if ours != theirs or known.stream != published.stream:
            raise TypeConflict(
                f"handler {subscription.name!r} knows {published.name} with routing attributes {ours} on stream "
                f"{published.stream!r}; it is advertised with {theirs} on stream {known.stream!r}",
                clashes=("routing",),
                hint=f"use the publisher's class: `tutti types show {published.name}`",
            )

    def _registration(self, feed: Feed) -> Registration:
        subscription = feed.subscription
        return Registration(
            subscriber=self.subscriber.name,
            subscription=subscription.name,
            stream=feed.stream,
            type=subscription.published.name,
            where=subscription.filter.text if subscription.filter is not None else "",
            start=0,
            since=datetime.fromtimestamp(self._context.clock.wall(), UTC).isoformat(),
            partitions=sum(feed.wants(partition) for partition in range(PARTITIONS_COUNT)),
        )

    async def _listen(self, feed: Feed, subject: str) -> None:
        group = "" if self.subscriber.ephemeral else f"{self.subscriber.name}-{feed.subscription.name}"
        listener = await self._context.transport.listen(subject, group=group)
        self._listeners.append(listener)
        self._spawn(self._hear(feed, listener))

    async def _hear(self, feed: Feed, listener: Listener) -> None:
        dropped = 0
        async for record in listener:
            feed.take_live(record)
            feed.dropped.value += listener.dropped - dropped
            dropped = listener.dropped

    def _start_queues(self) -> None:
        for queue, handlers in self._queues.items():
            worker = QueueWorker(
                self._context, queue, handlers.handle, concurrency=handlers.concurrency, most=handlers.most
            )
            self._workers.append(worker)
            worker.start()

    def _start_replays(self) -> None:
        if self.subscriber.ephemeral:
            return
        handler = ReplayHandler(self._context, self.subscriber, self._threads)
        worker = QueueWorker(self._context, handler.queue, handler.handle)
        self._workers.append(worker)
        worker.start()

    async def _read_everything(self) -> None:
        for feed in self.feeds.values():
            if feed.stream:
                position = await self._store.resolve(feed.stream, feed.subscription.start)
                for partition in range(PARTITIONS_COUNT):
                    if feed.wants(partition):
                        feed.own(partition, position, {})
        self.changed()

    async def _start_leases(self) -> None:
        if not any(feed.wants(0) for feed in self.feeds.values()):
            return
        if self._context.alone:
            for partition in range(PARTITIONS_COUNT):
                await self.begin(partition, epoch=1)
            self.changed()
        else:
            self._leases = Leases(self._context, self.subscriber.name, self.instance, self)
            await self._leases.start()
        self._spawn(self._flush_as_it_moves())

    # What the leases tell us

    async def begin(self, partition: int, epoch: int) -> bool:
        """The partition is ours: fence it and take it up where it was left. False: somebody newer has it."""
        known = await self._store.take_over(partition, epoch)
        if known is None:
            return False
        self._epochs[partition] = epoch
        if known.deaths:
            self._watch(partition)
        for name, feed in self.feeds.items():
            if feed.wants(partition):
                position = known.at.get(name, self._starts[name])
                feed.own(partition, position, _attempts_so_far(known, name), known.created.get(name, 0.0))
        return True

    def changed(self) -> None:
        """The set of our partitions is as it should be for now: read them."""
        for feed in self.feeds.values():
            feed.read()

    async def drain(self, partition: int) -> None:
        """Another instance will have it: finish what runs, start nothing new, write the position."""
        epoch = self._epochs.get(partition)
        for feed in self.feeds.values():
            feed.drain(partition)
        for feed in self.feeds.values():
            while feed.dispatcher.busy(partition):
                feed.changed.clear()
                await feed.changed.wait()
        if epoch is None or self._epochs.get(partition) != epoch:
            return  # it was lost meanwhile
        try:
            await self._save(partition, clean=True)
        finally:
            self.lose(partition)

    def lose(self, partition: int) -> None:
        self._epochs.pop(partition, None)
        self._dirty.discard(partition)
        self._watched.pop(partition, None)
        for feed in self.feeds.values():
            feed.disown(partition)

    def _may_run(self, partition: int, now: float) -> bool:
        return self._leases is None or self._leases.may_run(partition, now)

    # Positions

    def _moved(self, partition: int) -> None:
        if partition not in self._dirty:
            self._dirty.add(partition)
            self._flush_wanted.set()

    async def _flush_as_it_moves(self) -> None:
        while True:
            await self._flush_wanted.wait()
            await asyncio.sleep(POSITION_FLUSH_SECONDS)
            self._flush_wanted.clear()
            try:
                await self._flush(clean=False)
            except BusError as error:
                log.warning("%s: positions not written yet: %s", self.subscriber.name, error.what)
                self._flush_wanted.set()

    async def _flush(self, *, clean: bool) -> None:
        moved = [p for p in self._dirty if p in self._epochs] if not clean else list(self._epochs)
        self._dirty.clear()
        self._saving = True
        try:
            results = await asyncio.gather(*(self._save(p, clean=clean) for p in moved), return_exceptions=True)
        finally:
            self._saving = False
        failures = []
        for partition, result in zip(moved, results, strict=True):
            if isinstance(result, Conflict):
                log.warning("%s: partition %d has a new owner", self.subscriber.name, partition)
                self.lose(partition)
            elif isinstance(result, BaseException):
                self._dirty.add(partition)
                failures.append(result)
        if failures:
            raise failures[0]

    async def _save(self, partition: int, *, clean: bool) -> None:
        """Write how far the partition has come. One at a time: an older state must not follow a newer one."""
        async with self._pens.setdefault(partition, asyncio.Lock()):
            if partition in self._epochs:  # it may have been lost while we waited
                await self._store.save(partition, self._state_of(partition, clean=clean))

    def _state_of(self, partition: int, *, clean: bool) -> Positions:
        feeds = {name: feed for name, feed in self.feeds.items() if partition in feed.positions}
        return Positions(
            epoch=self._epochs[partition],
            at={name: feed.positions[partition] for name, feed in feeds.items()},
            attempts={n: a for n, feed in feeds.items() if (a := feed.dispatcher.attempts(partition))},
            running={} if clean else {n: r for n, feed in feeds.items() if (r := feed.running(partition))},
            created={name: feed.created.get(partition, 0.0) for name, feed in feeds.items()},
            deaths=int(partition in self._watched and not clean),
        )

    def _watch(self, partition: int) -> None:
        """The last owner died before it wrote a position. An event that kills the process must not do so for ever: for
        a while, each event is written down before its handler is called, so that a death counts as an attempt."""
        self._watched[partition] = WATCHED_CALLS_COUNT
        for feed in self.feeds.values():
            feed.write_down = self._write_down

    async def _write_down(self, items: Sequence[Item]) -> None:
        for partition in {item.partition for item in items}:
            if partition not in self._watched:
                continue
            self._watched[partition] -= 1
            with contextlib.suppress(BusError):  # the bus is away, or has given it to somebody else: seen elsewhere
                await self._save(partition, clean=False)
            if self._watched.get(partition, 1) <= 0:
                del self._watched[partition]
        if not self._watched:
            for feed in self.feeds.values():
                feed.write_down = None

    async def follow(self) -> None:
        """Positions of partitions without events move with the log: they hold back nothing that retention may purge."""
        for feed in self.feeds.values():
            reader = feed.reader
            if reader is not None:
                with contextlib.suppress(BusError):
                    horizon = await reader.horizon()
                    if feed.reader is reader:  # another one may read other partitions
                        feed.reached(horizon)

    async def _follow_the_log(self) -> None:
        while True:
            await asyncio.sleep(HORIZON_SECONDS)
            await self.follow()
            await self._prove_types()

    async def _prove_types(self) -> None:
        """Whoever subscribed before anybody advertised must learn that the publisher means something else."""
        for name in tuple(self._unproven):
            try:
                await self._check_type(self.subscriber.subscriptions[name])
            except TypeConflict as clash:
                self._unproven.discard(name)
                self._context.report(f"subscriber {self.subscriber.name}: {clash.what}")
            except BusError:
                return

    # Life

    @property
    def unsaved(self) -> bool:
        """A position moved and is not written yet."""
        return bool(self._dirty) or self._saving

    @property
    def at_work(self) -> bool:
        """A handler is running."""
        return any(feed.at_work for feed in self.feeds.values()) or any(worker.at_work for worker in self._workers)

    def idle(self) -> bool:
        """No handler is at work, nothing waits for one."""
        participants = self.participants is None or self.participants.idle
        return (
            participants
            and all(feed.dispatcher.idle() for feed in self.feeds.values())
            and all(w.idle for w in self._workers)
        )

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._context.failed(task)


def _attempts_so_far(known: Positions, subscription: str) -> dict[int, int]:
    """What was in a handler when its owner died counts as tried once: an event that kills the process must not do so
    for ever."""
    attempts = dict(known.attempts.get(subscription, {}))
    for sequence in known.running.get(subscription, []):
        attempts[sequence] = attempts.get(sequence, 0) + 1
    return attempts
