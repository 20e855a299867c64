"""The dispatcher itself: its state, and `step`."""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import assert_never

from tutti.flow.dispatcher.life import (
    BEGUN,
    BURIAL,
    BURYING,
    DONE,
    DRAINING,
    EXPIRY,
    FAILURE,
    FORGOTTEN,
    LAST_FAILURE,
    NOBODY,
    ORPHANED,
    RETRYING,
    RETURN,
    RETURNED,
    REVOCATION,
    RUNNING,
    TRANSITIONS,
    TURN,
    USED_UP,
    WAITING,
    Again,
    Cause,
    Event,
    Lane,
    Partition,
    Ready,
    Timer,
    pause,
)
from tutti.flow.dispatcher.messages import (
    Advance,
    Arrived,
    Buried,
    Bury,
    Draining,
    Effect,
    Expire,
    Failed,
    Input,
    Paused,
    Resumed,
    Returned,
    Revoked,
    Run,
    Skipped,
    Ticked,
    WakeAt,
)
from tutti.limits import DONE_AHEAD_MAX_COUNT
from tutti.model.policy import Policy


class Dispatcher:
    """The state is changed in place: copying it for each event would cost more than most handlers."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._concurrency = policy.concurrency
        self._in_flight = policy.in_flight
        self._most = policy.batch.most if policy.batch else 1
        self._wait = policy.batch.wait if policy.batch else 0.0
        self._partitions: dict[int, Partition] = {}
        self._lanes: dict[str, Lane] = {}
        self._ready: list[Ready] = []  # heads of lanes that nothing holds
        self._ready_count = 0  # waiting events of those lanes, heads and all
        self._oldest: float | None = None  # when the oldest of them arrived; None: must be looked up
        self._again: list[Again] = []  # failed calls whose time has come
        self._timers: list[Timer] = []  # failed calls whose time has not come
        self._running: dict[tuple[int, ...], list[Event]] = {}  # the calls, by their sequences
        self._burying: dict[int, Event] = {}
        self._held = 0  # events that are neither done nor forgotten
        self._order = 0
        self._now = float("-inf")
        self._wake: float | None = None
        self._paused = False

    # Queries

    def room(self) -> int:
        """How many more events may arrive. One that arrives without room is still taken care of."""
        tracked = sum(len(home.pending) for home in self._partitions.values())
        return max(0, min(self._in_flight - self._held, DONE_AHEAD_MAX_COUNT - tracked))

    def idle(self) -> bool:
        """Nothing waits, runs or is being buried."""
        return not self._held

    def running(self) -> int:
        """Events with a handler at work, those of revoked partitions included."""
        return sum(map(len, self._running.values()))

    def busy(self, partition: int) -> bool:
        """An event of the partition runs or is being buried."""
        running = (event for members in self._running.values() for event in members if event.life is not ORPHANED)
        return any(event.partition == partition for event in chain(running, self._burying.values()))

    def waiting(self) -> int:
        """Events that arrived, do not run and are not done: in line, between attempts, or being buried."""
        return self._held - self.running()

    def attempts(self, partition: int) -> dict[int, int]:
        """Events of the partition that failed and are not done, with how often: what a successor must know."""
        home = self._partitions.get(partition)
        return dict(home.failed) if home else {}

    def positions(self) -> dict[int, int]:
        """The position of each partition that moved since it arrived here."""
        return {partition: home.floor for partition, home in self._partitions.items() if home.floor}

    # Step

    def step(self, given: Input) -> list[Effect]:
        effects: list[Effect] = []
        match given:
            case Arrived():
                self._arrive(given, effects)
            case Returned():
                self._hear(given.now)
                self._return(given.sequences, effects)
            case Skipped():
                self._skip(given, effects)
            case Failed():
                self._hear(given.now)
                self._fail(given, effects)
            case Buried():
                self._bury(given.sequence, effects)
            case Ticked():
                self._hear(given.now)
                self._start(effects)
            case Revoked():
                self._revoke(given.partition, effects)
            case Draining():
                self._drain(given.partition, effects)
            case Paused():
                self._paused = True
            case Resumed():
                self._hear(given.now)
                self._paused = False
                self._start(effects)
            case _:
                assert_never(given)
        return effects

    def follow(self, call: tuple[int, ...], now: float) -> tuple[Run, int] | None:
        """`step(Returned(call, now))` for the common case, where it would say that the next event of the lane runs, and
        the position that this moves, no more. Returns these (0: it does not move). None: ask `step`."""
        if self._most > 1 or self._paused or self._ready or self._again or self._timers:
            return None
        members = self._running.get(call)
        if members is None:
            return None
        event = members[0]
        lane = self._lanes[event.lane]
        if event.life is not RUNNING or event.attempts or not lane.queue:
            return None
        following = lane.queue[0]
        if following.expires_at is not None or following.attempts:
            return None
        del self._running[call]
        if now > self._now:  # noqa: PLR1730 calling max() costs more, for every event
            self._now = now
        event.life = RETURNED
        self._held -= 1
        lane.queue.popleft()
        if not lane.queue:
            lane.queue = NOBODY
        return self._begin(following), self._partitions[event.partition].advance()

    def _hear(self, now: float) -> None:
        if now > self._now:  # noqa: PLR1730 calling max() costs more, for every event
            self._now = now

    def _home(self, partition: int) -> Partition:
        home = self._partitions.get(partition)
        if home is None:
            home = self._partitions[partition] = Partition(deque(), 0, 0, {}, False)  # noqa: FBT003 fields in order
        return home

    def _skip(self, given: Skipped, effects: list[Effect]) -> None:
        home = self._home(given.partition)
        if given.sequence <= home.last or home.draining:
            return
        home.last = given.sequence
        if home.pending:
            home.pending[-1].up_to = given.sequence
        else:
            home.floor = given.sequence
            effects.append(Advance(given.partition, given.sequence))

    def _arrive(self, given: Arrived, effects: list[Effect]) -> None:
        sequence, partition, attempts, now = given.sequence, given.partition, given.attempts, given.now
        home = self._partitions.get(partition) or self._home(partition)
        if sequence <= home.last or home.draining:
            return
        if now > self._now:  # noqa: PLR1730 calling max() costs more, for every event
            self._now = now
        home.last = sequence
        self._order = order = self._order + 1
        event = Event(
            sequence, partition, given.lane, given.priority, given.expires_at, attempts, now, order, sequence, WAITING
        )
        home.pending.append(event)
        if attempts:
            home.failed[sequence] = attempts
        self._held += 1
        lane = self._lanes.get(given.lane)
        if lane is not None:
            self._line_up(lane, event)
            if lane.held or self._most == 1:
                return  # an event behind others: nothing became ready
        elif self._clear(event):
            self._lanes[given.lane] = Lane(1, NOBODY)
            effects.append(self._begin(event))
            return
        else:
            self._lanes[given.lane] = lane = Lane(0, NOBODY)
            self._line_up(lane, event)
            heappush(self._ready, (-given.priority, order, event))
        self._start(effects)

    def _clear(self, event: Event) -> bool:
        """The common case: its lane is idle and a call is free, so nobody else is ready: no heap needs to be asked."""
        return (
            len(self._running) < self._concurrency
            and self._most == 1
            and not (self._paused or event.attempts)
            and (not self._timers or self._timers[0][0] > self._now)
            and (event.expires_at is None or event.expires_at > self._now)
        )

    def _begin(self, event: Event) -> Run:
        event.life = BEGUN
        call = (event.sequence,)
        self._running[call] = [event]
        return Run(call, 1)

    def _line_up(self, lane: Lane, event: Event) -> None:
        if lane.queue is NOBODY:
            lane.queue = deque()
        lane.queue.append(event)
        if not lane.held:
            self._count_ready(1, event.arrived_at)

    def _count_ready(self, more: int, oldest: float) -> None:
        if not self._ready_count or (self._oldest is not None and oldest < self._oldest):
            self._oldest = oldest
        self._ready_count += more

    # Answers

    def _return(self, sequences: tuple[int, ...], effects: list[Effect]) -> None:
        touched: dict[int, None] = {}
        for event in self._running.pop(sequences, ()):
            event.life = life = TRANSITIONS[event.life][RETURN]
            if life is DONE:
                touched[event.partition] = None
                if event.attempts:
                    del self._partitions[event.partition].failed[event.sequence]
            self._leave(event)
        for partition in touched:
            self._advance(partition, effects)
        self._start(effects)

    def _fail(self, given: Failed, effects: list[Effect]) -> None:
        retrying: list[Event] = []
        for event in self._running.pop(given.sequences, ()):
            if event.life is ORPHANED:
                event.life = TRANSITIONS[ORPHANED][FAILURE]
                self._leave(event)
                continue
            home = self._partitions[event.partition]
            event.attempts += 1
            home.failed[event.sequence] = event.attempts
            if given.final or event.attempts >= self._policy.attempts:
                self._entomb(event, given.reason, effects)
                continue
            event.life = TRANSITIONS[event.life][FAILURE]
            if home.draining:
                event.life = TRANSITIONS[event.life][DRAINING]
                self._leave(event)
            else:
                retrying.append(event)
        if retrying:
            first = retrying[0]
            due = self._now + pause(self._policy.backoff, first.attempts, given.jitter)
            heappush(self._timers, (due, first.order, retrying))
        self._start(effects)

    def _entomb(self, event: Event, reason: str, effects: list[Effect]) -> None:
        event.life = TRANSITIONS[event.life][LAST_FAILURE]
        self._burying[event.sequence] = event
        effects.append(Bury(event.sequence, reason, event.attempts))

    def _bury(self, sequence: int, effects: list[Effect]) -> None:
        event = self._burying.pop(sequence, None)
        if event is None:
            return
        event.life = TRANSITIONS[event.life][BURIAL]
        self._finish(event, effects)
        self._start(effects)

    def _leave(self, event: Event) -> None:
        """The event is done or forgotten: it no longer holds its lane."""
        self._held -= 1
        name = event.lane
        lane = self._lanes[name]
        lane.held -= 1
        if lane.held:
            return
        if lane.queue:
            head = lane.queue[0]
            heappush(self._ready, (-head.priority, head.order, head))
            self._count_ready(len(lane.queue), head.arrived_at)
        else:
            del self._lanes[name]

    def _finish(self, event: Event, effects: list[Effect]) -> None:
        """The event is done without a handler's return."""
        self._partitions[event.partition].failed.pop(event.sequence, None)
        self._leave(event)
        self._advance(event.partition, effects)

    def _advance(self, partition: int, effects: list[Effect]) -> None:
        position = self._partitions[partition].advance()
        if position:
            effects.append(Advance(partition, position))

    # Starting

    def _start(self, effects: list[Effect]) -> None:
        """Start whatever may start, then ask to be woken for what may not yet."""
        while self._timers and self._timers[0][0] <= self._now:
            _, order, members = heappop(self._timers)
            heappush(self._again, (-members[0].priority, order, members))
        if not self._paused:
            while len(self._running) < self._concurrency:
                fresh = self._ready and self._batch_is_due()
                if self._again and (not fresh or self._again[0][:2] < self._ready[0][:2]):
                    self._run_again(effects)
                elif fresh:
                    self._run_fresh(effects)
                else:
                    break
        if self._timers or self._ready:
            self._ask_to_be_woken(effects)

    def _batch_is_due(self) -> bool:
        return self._ready_count >= self._most or self._oldest_ready() + self._wait <= self._now

    def _oldest_ready(self) -> float:
        """Called only while fewer than a batch are ready, so that looking through them stays cheap."""
        if self._oldest is None:
            self._oldest = min(event.arrived_at for _, _, event in self._ready)
        return self._oldest

    def _run_again(self, effects: list[Effect]) -> None:
        _, _, members = heappop(self._again)
        self._call([event for event in members if self._is_handled(event, effects)], effects)

    def _run_fresh(self, effects: list[Effect]) -> None:
        """Take the best heads. A lane that gave one is held, and its next head is a candidate for this batch only. If
        already the first cannot be handled, choose anew: a retry may be next."""
        members: list[Event] = []
        here: list[Ready] = []
        aside: list[Ready] = []
        while len(members) < self._most and (here or self._ready):
            from_here = bool(here) and (not self._ready or here[0] < self._ready[0])
            entry = heappop(here if from_here else self._ready)
            event = entry[2]
            if members and event.attempts != members[0].attempts:
                if not from_here:
                    aside.append(entry)
                continue
            lane = self._lanes[event.lane]
            self._hold(lane)
            if self._is_handled(event, effects):
                members.append(event)
            elif not members:
                return
            if lane.held and lane.queue:
                head = lane.queue[0]
                heappush(here, (-head.priority, head.order, head))
        for entry in aside:
            heappush(self._ready, entry)
        self._call(members, effects)

    def _is_handled(self, event: Event, effects: list[Effect]) -> bool:
        """Whether the event, whose turn has come, can be handled. If not, it goes its way here."""
        if event.expires_at is not None and event.expires_at <= self._now:
            self._expire(event, effects)
            return False
        if event.attempts >= self._policy.attempts:
            self._entomb(event, USED_UP, effects)
            return False
        return True

    def _hold(self, lane: Lane) -> None:
        """Take the head off its lane, which it holds from now on."""
        if not lane.held:
            self._ready_count -= len(lane.queue)
            self._oldest = None
        lane.held += 1
        lane.queue.popleft()
        if not lane.queue:
            lane.queue = NOBODY

    def _expire(self, event: Event, effects: list[Effect]) -> None:
        event.life = TRANSITIONS[event.life][EXPIRY]
        effects.append(Expire(event.sequence))
        self._finish(event, effects)

    def _call(self, members: list[Event], effects: list[Effect]) -> None:
        if not members:
            return  # all had expired
        call = tuple([event.sequence for event in members])
        for event in members:
            event.life = TRANSITIONS[event.life][TURN]
        self._running[call] = members
        effects.append(Run(call, members[0].attempts + 1))

    def _ask_to_be_woken(self, effects: list[Effect]) -> None:
        if self._wake is not None and self._wake <= self._now:
            self._wake = None
        due = self._timers[0][0] if self._timers else None
        if (
            self._ready
            and self._ready_count < self._most
            and len(self._running) < self._concurrency
            and not self._paused
        ):
            full_or_late = self._oldest_ready() + self._wait
            due = full_or_late if due is None else min(due, full_or_late)
        if due is not None and (self._wake is None or due < self._wake):
            self._wake = due
            effects.append(WakeAt(due))

    # Revocation and draining: rare, so they may look at everything

    def _revoke(self, partition: int, effects: list[Effect]) -> None:
        home = self._partitions.pop(partition, None)
        if home is None:
            return
        self._forget(list(home.pending), REVOCATION)
        self._start(effects)

    def _drain(self, partition: int, effects: list[Effect]) -> None:
        """What is forgotten stays in `pending`, so that the position cannot pass it."""
        home = self._partitions.get(partition)
        if home is None or home.draining:
            return
        home.draining = True
        self._forget([event for event in home.pending if event.life in {WAITING, RETRYING}], DRAINING)
        self._start(effects)

    def _forget(self, events: list[Event], cause: Cause) -> None:
        for event in events:
            before = event.life
            event.life = TRANSITIONS[before][cause]
            if before in {RUNNING, DONE, FORGOTTEN}:
                continue
            self._held -= 1
            if before is not WAITING:
                self._lanes[event.lane].held -= 1
            if before is BURYING:
                del self._burying[event.sequence]
        self._again = [(key, order, left) for key, order, members in self._again if (left := _retrying(members))]
        self._timers = [(due, order, left) for due, order, members in self._timers if (left := _retrying(members))]
        heapify(self._again)
        heapify(self._timers)
        self._rebuild_lanes()

    def _rebuild_lanes(self) -> None:
        self._ready, self._ready_count, self._oldest = [], 0, None
        for name, lane in list(self._lanes.items()):
            lane.queue = deque(event for event in lane.queue if event.life is WAITING) or NOBODY
            if lane.held:
                continue
            if lane.queue:
                head = lane.queue[0]
                self._ready.append((-head.priority, head.order, head))
                self._ready_count += len(lane.queue)
            else:
                del self._lanes[name]
        heapify(self._ready)


def _retrying(members: list[Event]) -> list[Event]:
    return [event for event in members if event.life is RETRYING]
