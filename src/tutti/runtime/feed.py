"""One subscription at work in one instance: reads its partitions, hands events to the handler, moves the positions.

The decisions are the dispatcher's (`flow.dispatcher`); this driver reads records, calls handlers, writes dead letters
and keeps timers. Who owns which partition is the service's affair.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, assert_never

from tutti.bus.port import FromSequence, Reader, Record
from tutti.errors import BusError, Gone
from tutti.flow.dispatcher import (
    Advance,
    Arrived,
    Buried,
    Bury,
    Dispatcher,
    Draining,
    Effect,
    Expire,
    Failed,
    Paused,
    Returned,
    Revoked,
    Run,
    Skipped,
    Ticked,
    WakeAt,
)
from tutti.limits import (
    HANDLE_SLICE_SECONDS,
    LAG_SAMPLE_SECONDS,
    LEASE_POLL_SECONDS,
    LIVE_SEQUENCE_START,
    PARTITIONS_COUNT,
    READ_BATCH_RECORDS,
    STREAM_POLL_SECONDS,
)
from tutti.model.subjects import partition_in
from tutti.runtime.admission import Admission, Item
from tutti.runtime.burial import Burial
from tutti.runtime.clock import Timer
from tutti.runtime.context import Context, ReadableLog
from tutti.runtime.crew import Crew
from tutti.runtime.dead import DeadLetter
from tutti.runtime.execution import CANCELLED, Failure, Gate, call, revive
from tutti.runtime.lookback import LookBack
from tutti.runtime.subscriber import Subscription
from tutti.runtime.threads import Threads
from tutti.runtime.timelimit import TimeLimit

log = logging.getLogger("tutti.feed")

LIVE = -1  # the partition of best-effort events: nobody keeps a position of it
FOREIGN_PARTITIONS = (0,)  # a foreign stream has no partition token; the owner of partition 0 reads it


class Feed:
    """`moved` is called when a position advances; `may_run` says whether a partition's lease holds at this moment."""

    def __init__(
        self,
        context: Context,
        subscriber: str,
        subscription: Subscription,
        *,
        gate: Gate | None,
        threads: Threads,
        moved: Callable[[int], None],
        may_run: Callable[[int, float], bool],
    ) -> None:
        self.subscription = subscription
        self._context = context
        self._log: ReadableLog = context.transport
        self._subscriber = subscriber
        self._is_foreign = subscription.foreign_subject is not None
        self._gate = gate
        self._threads = threads
        self._moved = moved
        self._may_run = may_run
        self.write_down: Callable[[Sequence[Item]], Awaitable[None]] | None = None  # before each call, if not None
        self.dispatcher = Dispatcher(subscription.policy)
        labels = {"subscriber": subscriber, "subscription": subscription.name}
        self._admission = Admission(subscription, context.clock, context.metrics, context.publisher.reply, **labels)
        self._look_back = LookBack(context, self.stream, labels)
        self._admission.bus = context.bus
        self._admission.on_gap = self._look_back.notice
        self._handled = context.metrics.counter("tutti_handled_total", **labels)
        self._failures = context.metrics.counter("tutti_failures_total", **labels)
        self._expired = context.metrics.counter("tutti_expired_total", **labels)
        self._burial = Burial(context, subscriber, subscription.name, self.stream)
        self._took = context.metrics.histogram("tutti_handle_seconds", **labels)
        self.positions: dict[int, int] = {}  # of the partitions that are ours
        self._arrived: dict[int, int] = {}  # the highest sequence seen of each
        self.created: dict[int, float] = {}  # when the stream was made that each position is of
        self._earlier_attempts: dict[int, int] = {}
        self._items: dict[int, Item] = {}
        self._running: dict[tuple[int, ...], list[Item]] = {}  # the calls under way, by their sequences
        policy = subscription.policy
        self._crew = Crew(policy.concurrency, policy.handler_timeout, self._work, self._ended)
        self._tasks: set[asyncio.Task[None]] = set()
        self._reading: asyncio.Task[None] | None = None
        self._being_read: frozenset[int] = frozenset()
        self.reader: Reader | None = None
        self._room = asyncio.Event()
        self._timer: Timer | None = None
        self._live_count, self._live = LIVE_SEQUENCE_START, set[int]()  # best-effort events: their numbers, those held
        self.dropped = context.metrics.counter("tutti_dropped_total", **labels)
        self._lag_due = 0.0  # when it is measured next
        self._lag = context.metrics.histogram("tutti_lag_seconds", **labels)
        self.changed = asyncio.Event()  # set whenever anything moved: for whoever waits until all is done
        self.closed = False

    # Partitions

    @property
    def stream(self) -> str:
        """The stream it reads from; empty if it only listens on the wire."""
        subscription = self.subscription
        if subscription.foreign_subject is not None:
            return subscription.foreign_stream or ""
        return self._context.layout.event_stream(subscription.published.stream)

    def wants(self, partition: int) -> bool:
        if not self.stream or self.subscription.queue is not None:
            return False
        return self.subscription.foreign_subject is None or partition in FOREIGN_PARTITIONS

    def own(self, partition: int, position: int, attempts: dict[int, int], created: float = 0.0) -> None:
        """The partition is ours from behind `position`, a place in the stream that was made at `created` (0: not
        known). Call `read` when all that changed are told."""
        self.positions[partition] = position
        self.created[partition] = created
        self._arrived[partition] = position
        self._being_read = frozenset()  # whoever reads now knows nothing of where this partition begins
        self._earlier_attempts.update(attempts)

    def disown(self, partition: int) -> None:
        """The partition is no longer ours: what waits is forgotten, what runs moves nothing any more."""
        if self.positions.pop(partition, None) is None:
            return
        self._arrived.pop(partition, None)
        self._admission.forget(partition)
        running = set(self.running(partition))
        gone = [s for s, item in self._items.items() if item.partition == partition and s not in running]
        for sequence in gone:
            del self._items[sequence]
        self._apply(self.dispatcher.step(Revoked(partition)))

    def drain(self, partition: int) -> None:
        """The partition will be handed over: take nothing more of it, start nothing that waits; what runs counts."""
        self._arrived.pop(partition, None)
        self._apply(self.dispatcher.step(Draining(partition)))

    def running(self, partition: int) -> list[int]:
        """Events of this partition for which a handler is at work."""
        return [item.sequence for items in self._running.values() for item in items if item.partition == partition]

    @property
    def at_work(self) -> bool:
        """A handler is running."""
        return bool(self._running)

    def reached(self, horizon: int) -> None:
        """Up to here the log holds nothing for us that we did not read: the positions may follow."""
        for partition, seen in self._arrived.items():
            if horizon > seen and partition in self._being_read:
                self._arrived[partition] = horizon
                self._apply(self.dispatcher.step(Skipped(horizon, partition)))

    def read(self) -> None:
        """Read the partitions that are ours now, each from behind what was seen of it."""
        mine = frozenset(self._arrived)
        if self._reading is not None and not self._reading.done() and mine == self._being_read:
            return
        self._being_read = mine
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
        if mine and not self.closed:
            self._reading = self._spawn(self._read())

    async def _read(self) -> None:
        while self._arrived:
            mine = tuple(sorted(self._arrived))
            complete = len(mine) == PARTITIONS_COUNT or self.subscription.foreign_subject is not None
            subjects = self.subscription.subjects(self._context.layout, None if complete else mine)
            reader = None
            try:
                begin = FromSequence(await self._where_to_begin())
                reader = self.reader = await self._log.reader(self.stream, subjects, begin)
                await self._read_all(reader)
            except Gone as error:
                self._look_back.lost(error)
                await asyncio.sleep(0.5)
            except BusError as error:
                log.warning("%s.%s: %s; reading again", self._subscriber, self.subscription.name, error.what)
                await asyncio.sleep(0.5)
            finally:
                self.reader = None
                if reader is not None:
                    await reader.close()

    async def _where_to_begin(self) -> int:
        """Behind the lowest of what was seen; in a stream that was made anew or restored from an older copy, where that
        begins. One that is not there is waited for. Health shows all of it."""
        info = await self._log.stream_info(self.stream)
        while info is None:
            self._context.report(f"{self._subscriber}.{self.subscription.name}: there is no stream {self.stream}")
            if self.subscription.foreign_stream is None:
                await self._context.catalogue.restore_stream(self.subscription.published.stream)
            await asyncio.sleep(STREAM_POLL_SECONDS)
            info = await self._log.stream_info(self.stream)
        if max(self._arrived.values(), default=0) > info.last:  # a new leader may be behind for a moment
            await asyncio.sleep(STREAM_POLL_SECONDS)
            info = await self._log.stream_info(self.stream) or info
        for partition, seen in list(self._arrived.items()):
            made_anew = self.created[partition] not in (0.0, info.created_at)
            self.created[partition] = info.created_at
            if made_anew or seen > info.last:
                self._rewind(partition)
        return min(self._arrived.values(), default=0) + 1  # all may have been handed over while we asked

    def _rewind(self, partition: int) -> None:
        """Nobody knows which of its records are new: repeating all loses none."""
        self._context.report(
            f"{self._subscriber}.{self.subscription.name}: stream {self.stream} went back behind what was read of it "
            f"(it was restored, or made anew); it is read again from its beginning"
        )
        created, being_read = self.created[partition], self._being_read
        self.disown(partition)
        self.own(partition, 0, {}, created)
        self._being_read = being_read  # this reader begins there; one that was made stale meanwhile stays so
        self._moved(partition)

    async def _read_all(self, reader: Reader) -> None:
        while True:
            while (room := self._room_for_records()) <= 0:
                self._room.clear()
                await self._room.wait()
            self.take(await reader.batch(min(room, READ_BATCH_RECORDS)))
            await asyncio.sleep(0)

    def _room_for_records(self) -> int:
        """Best-effort events have a limit of their own: they must not keep the log's from being read."""
        room = self.dispatcher.room()
        if not self._live:
            return room
        held = self.dispatcher.running() + self.dispatcher.waiting() - len(self._live)
        return min(room + len(self._live), self.subscription.policy.in_flight - held)

    def take(self, records: Sequence[Record]) -> None:
        """Admit records of the log, in order."""
        now = self._context.clock.monotonic()
        step = self.dispatcher.step
        for record in records:
            partition = self._partition(record.subject)
            sequence = record.sequence
            seen = self._arrived.get(partition)
            if seen is None or sequence <= seen:
                continue
            self._arrived[partition] = sequence
            item = self._admission.admit(record, partition, now)
            if item is None:
                self._apply(step(Skipped(sequence, partition)))
                continue
            item.sequence = sequence
            item.partition = partition
            self._items[sequence] = item
            attempts = self._earlier_attempts.pop(sequence, 0) if self._earlier_attempts else 0
            if item.poison:
                attempts = self.subscription.policy.attempts  # never tried, and it must not take a batch with it
            effects = step(Arrived(sequence, partition, item.lane, item.priority, item.expires_at, attempts, now))
            if effects:
                self._apply(effects)
        self.changed.set()

    def take_live(self, record: Record) -> None:
        """Admit a best-effort event. It has no place in the log: it gets a number of its own."""
        if len(self._live) >= self.subscription.policy.in_flight:
            self.dropped.value += 1
            return
        now = self._context.clock.monotonic()
        item = self._admission.admit(record, LIVE, now)
        if item is None:
            return
        self._live_count += 1
        item.sequence = self._live_count
        self._items[self._live_count] = item
        self._live.add(self._live_count)
        attempts = self.subscription.policy.attempts if item.poison else 0
        arrived = Arrived(self._live_count, LIVE, item.lane, item.priority, item.expires_at, attempts, now)
        self._apply(self.dispatcher.step(arrived))

    def _partition(self, subject: str) -> int:
        partition = None if self._is_foreign else partition_in(subject)
        return FOREIGN_PARTITIONS[0] if partition is None else partition  # its owner dead-letters what is not ours

    # Effects

    def _apply(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Run():
                    self._crew.take(effect)
                case Advance():
                    self._advance(effect.partition, effect.position)
                case Bury():
                    self._spawn(self._bury(effect))
                case Expire():
                    self._items.pop(effect.sequence, None)
                    self._live.discard(effect.sequence)
                    self._expired.value += 1
                case WakeAt():
                    self._wake_at(effect.time)
                case _:
                    assert_never(effect)

    async def _work(self, runs: deque[Run], limit: TimeLimit) -> None:
        """Carry out calls until there are none, or others in the loop must get their turn."""
        monotonic = self._context.clock.monotonic
        now = monotonic()
        slice_ends = now + HANDLE_SLICE_SECONDS
        while runs and now <= slice_ends:
            run = runs.popleft()
            if self._gate is not None and not self._gate.enter_at_once():
                await self._gate.enter(self.subscription.policy.priority)
                now = monotonic()
            items = self._ours(run, now)
            if items is None or self.write_down is not None:
                items = await self._made_sure(run, items)
                now = monotonic()
            self._running[run.sequences] = items
            started, failure = now, None
            if now >= self._lag_due and items:
                self._sample_lag(items[0], now)
            try:
                if items:
                    failure = await call(self.subscription, items, self._threads, limit)
            except asyncio.CancelledError:
                if self.closed or not revive():
                    raise
                failure = CANCELLED  # a handler may cancel the task that it runs in, which is ours
            finally:
                del self._running[run.sequences]
                if self._gate is not None:
                    self._gate.leave()
            now = monotonic()
            self._took.observe(now - started)
            if self._context.witness is not None:
                self._context.tell_witness(self._subscriber, self.subscription.name, items, failure)
            if failure is not None:
                self._fail(run, items, failure, now)
            elif (following := self._succeed(run, items, now)) is not None:
                runs.append(following)  # nobody need be woken for it: we are awake
            self._room.set()
            self.changed.set()

    def _ours(self, run: Run, now: float) -> list[Item] | None:
        """The events of a call that did not go to another instance; None while the lease of one of them does not
        hold."""
        items = []
        for sequence in run.sequences:
            item = self._items.get(sequence)
            if item is not None:
                if item.partition != LIVE and not self._may_run(item.partition, now):
                    return None
                item.delivery.attempt = run.attempt
                items.append(item)
        return items

    async def _made_sure(self, run: Run, items: list[Item] | None) -> list[Item]:
        """The events of a call whose lease holds, written down where that is wanted. A lease that has run out may be
        had again: wait for that. What went to another instance is handled there."""
        wanted = [item for sequence in run.sequences if (item := self._items.get(sequence)) is not None]
        while items is None:
            await asyncio.sleep(LEASE_POLL_SECONDS)
            items = self._ours(run, self._context.clock.monotonic())
        items = [item for item in items if item in wanted]  # not one that was lost and has arrived anew since
        self._running[run.sequences] = items
        if self.write_down is not None:
            await self.write_down(items)
        return items

    def _sample_lag(self, item: Item, now: float) -> None:
        if item.delivery.record.stored_at:
            self._lag_due = now + LAG_SAMPLE_SECONDS
            self._lag.observe(self._context.clock.wall() - item.delivery.record.stored_at)

    def _succeed(self, run: Run, items: list[Item], now: float) -> Run | None:
        """Returns the call that follows, if all else is done."""
        self._handled.value += len(items)
        for item in items:
            if self._live:
                self._live.discard(item.sequence)
            if self._items.get(item.sequence) is item:  # the same event may have arrived anew, with its partition
                del self._items[item.sequence]
        followed = self.dispatcher.follow(run.sequences, now) if items else None
        if followed is None:
            self._apply(self.dispatcher.step(Returned(run.sequences, now)))
            return None
        following, position = followed
        if position:
            self._advance(items[0].partition, position)
        return following

    def _advance(self, partition: int, position: int) -> None:
        if partition in self.positions:
            self.positions[partition] = position
            self._moved(partition)

    def _fail(self, run: Run, items: list[Item], failure: Failure, now: float) -> None:
        self._failures.value += 1
        for item in items:
            item.traceback = failure.traceback
        log.warning(
            "%s.%s: attempt %d at %s failed: %s",
            self._subscriber,
            self.subscription.name,
            run.attempt,
            items[0].delivery.id or f"record {items[0].delivery.sequence}",
            failure.reason,
            extra={"event_id": items[0].delivery.id, "event_type": items[0].delivery.type},
        )
        failed = Failed(run.sequences, failure.reason, now, random.random(), failure.final)
        self._apply(self.dispatcher.step(failed))

    async def _bury(self, bury: Bury) -> None:
        item = self._items.get(bury.sequence)
        if item is None:
            return
        await self._burial.write(self._letter(item, bury), item)
        self._items.pop(bury.sequence, None)
        self._live.discard(bury.sequence)
        self._apply(self.dispatcher.step(Buried(bury.sequence)))
        self._room.set()
        self.changed.set()

    def _letter(self, item: Item, bury: Bury) -> DeadLetter:
        return self._burial.letter(item, bury)

    def _wake_at(self, time: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._context.clock.call_at(time, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._apply(self.dispatcher.step(Ticked(self._context.clock.monotonic())))
        self.changed.set()

    # Life

    def pause(self) -> None:
        """Start nothing new."""
        self._apply(self.dispatcher.step(Paused()))
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    async def finish(self, timeout: float) -> bool:
        """Wait until what runs has ended; False if it did not in time."""
        try:
            async with asyncio.timeout(timeout):
                while self.dispatcher.running():
                    self.changed.clear()
                    await self.changed.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._look_back.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(self._crew.close(), *tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        """No task's exception is lost."""
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._context.failed(task)
