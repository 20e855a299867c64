"""What the dispatcher promises holds for every script of arrivals, answers, pauses, revocations and nonsense.

A witness sees only inputs and effects, and knows the rules by a slow and plain reading of them: after every step it
looks at every event it knows of.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
    Input,
    Paused,
    Resumed,
    Returned,
    Revoked,
    Run,
    Skipped,
    Ticked,
    WakeAt,
    check,
    machine,
)
from tutti.flow.dispatcher.life import TRANSITIONS, Cause, Life
from tutti.model.policy import Backoff, Batch, Policy

PARTITIONS = 2
LANES = 4


BACKOFF = Backoff(first=1.0, factor=2.0, most=4.0)


class Fact(msgspec.Struct):
    """An event as the log holds it: the same whenever it arrives."""

    sequence: int
    partition: int
    lane: str
    priority: int
    expires_at: float | None


class Seen(msgspec.Struct):
    """An event as the witness sees it since it arrived."""

    fact: Fact
    order: int
    arrived_at: float
    attempts: int
    state: str = "waiting"  # running, retrying, burying, done, forgotten (draining: the position must not pass it)
    due: float = 0.0
    call: tuple[int, ...] = ()


class Witness:
    """Feeds a dispatcher, believes nothing it says, and reads every rule plainly."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.dispatcher = Dispatcher(policy)
        self.now = 0.0
        self.paused = False
        self.order = 0
        self.sequence = 0
        self.wake: float | None = None
        self.fell_out = False  # in this step: an event whose turn came was not handled, and its place stays empty
        self.log: list[list[Fact | int]] = [[] for _ in range(PARTITIONS)]  # an int is a skipped sequence
        self.cursor = [0] * PARTITIONS
        self.floor = [0] * PARTITIONS
        self.seen: dict[int, Seen] = {}  # the present tenure of each partition
        self.orphans: dict[int, Seen] = {}
        self.draining: set[int] = set()
        self.most = policy.batch.most if policy.batch else 1
        self.wait = policy.batch.wait if policy.batch else 0.0

    # What the dispatcher must not do

    def step(self, given: Input) -> None:
        effects = self.followed(given) or self.dispatcher.step(given)
        self.fell_out = False
        for effect in effects:
            self.judge(effect)
        check(self.dispatcher)
        self.judge_rest()

    def followed(self, given: Input) -> list[Effect]:
        """What `follow` does with every second return, if it takes it on, as effects."""
        if not isinstance(given, Returned) or not sum(given.sequences) % 2:
            return []
        followed = self.dispatcher.follow(given.sequences, given.now)
        if followed is None:
            return []
        run, position = followed
        moved = Advance(self.seen[given.sequences[0]].fact.partition, position)
        return [moved, run] if position else [run]

    def judge(self, effect: Effect) -> None:
        match effect:
            case Run():
                self.judge_run(effect)
            case Bury():
                event = self.seen[effect.sequence]
                assert event.attempts == effect.attempts
                assert event.state == "failed" or (event.state == "waiting" and event.attempts >= self.policy.attempts)
                self.fell_out = self.fell_out or event.state == "waiting"
                event.state = "burying"
            case Expire():
                event = self.seen[effect.sequence]
                assert event.state in {"waiting", "retrying"}
                assert event.fact.expires_at is not None
                assert event.fact.expires_at <= self.now
                self.fell_out = True
                event.state = "done"
            case Advance():
                assert effect.position > self.floor[effect.partition]
                self.floor[effect.partition] = effect.position
            case WakeAt():
                assert effect.time > self.now
                self.wake = effect.time

    def judge_run(self, run: Run) -> None:
        assert not self.paused
        assert len(self.calls()) < self.policy.concurrency
        assert 1 <= len(run.sequences) <= self.most
        members = [self.seen[sequence] for sequence in run.sequences]
        states = {event.state for event in members}
        assert states in ({"waiting"}, {"retrying"})
        self.judge_choice(members, states.pop())
        for event in members:
            assert run.attempt == event.attempts + 1 <= self.policy.attempts
            assert event.fact.expires_at is None or event.fact.expires_at > self.now
            self.judge_lane(event, members)
        for event in members:
            event.state, event.call = "running", run.sequences

    def judge_lane(self, event: Seen, members: list[Seen]) -> None:
        earlier = [e for e in self.seen.values() if e.fact.lane == event.fact.lane and e.order < event.order]
        before = members[: members.index(event)]
        assert all(e.state in {"done", "forgotten"} or e in before for e in earlier), "overtaken on its lane"
        lane = [*self.seen.values(), *self.orphans.values()]
        assert not any(e.state == "running" and e.fact.lane == event.fact.lane for e in lane), "two calls of one lane"

    def judge_choice(self, members: list[Seen], state: str) -> None:
        first = members[0]
        if state == "retrying":
            assert all(event.due <= self.now for event in members)
            whole = {e.fact.sequence for e in self.seen.values() if e.state == "retrying" and e.call == first.call}
            assert whole == {e.fact.sequence for e in members}, "a failed batch is tried again whole"
        elif not self.fell_out:
            ready = self.ready()
            oldest = min(event.arrived_at for event in ready)
            assert len(ready) >= self.most or oldest + self.wait <= self.now, "a batch before its time"
        if self.most == 1:
            due = [e for e in self.seen.values() if e.state == "retrying" and e.due <= self.now]
            rivals = [e for e in self.heads() + due if not self.over(e)]
            assert all((-first.fact.priority, first.order) <= (-e.fact.priority, e.order) for e in rivals)

    def judge_rest(self) -> None:
        d = self.dispatcher
        unfinished_here = [e for e in self.seen.values() if e.state != "done"]
        alive = [e for e in unfinished_here if e.state != "forgotten"]
        running = [e for e in alive if e.state == "running"]
        assert d.running() == len(running) + len(self.orphans)
        assert d.waiting() == len(alive) - len(running)
        assert d.idle() == (not alive and not self.orphans)
        assert d.room() == max(0, self.policy.in_flight - len(alive) - len(self.orphans))
        for partition in range(PARTITIONS):
            mine = [e for e in unfinished_here if e.fact.partition == partition]
            assert d.attempts(partition) == {e.fact.sequence: e.attempts for e in mine if e.attempts}
            unfinished = min((e.fact.sequence for e in mine), default=self.sequence + 1)
            read = self.log[partition][: self.cursor[partition]]
            done = [n for item in read if (n := item if isinstance(item, int) else item.sequence) < unfinished]
            assert self.floor[partition] == (done[-1] if done else 0), (
                "the position must be as high as it can, no higher"
            )
        if self.wake is not None and self.wake <= self.now:
            self.wake = None
        pauses = [e.due for e in alive if e.state == "retrying" and e.due > self.now]
        assert not pauses or (self.wake is not None and self.wake <= min(pauses)), "nobody would be woken for a retry"
        if not self.paused and len(self.calls()) < self.policy.concurrency:
            self.judge_no_rest_for_the_ready()

    def judge_no_rest_for_the_ready(self) -> None:
        ready = self.ready()
        assert len(ready) < self.most, "a full batch does not start"
        if ready:
            due = min(event.arrived_at for event in ready) + self.wait
            assert due > self.now, "a batch that is due does not start"
            assert self.wake is not None, "nobody would be woken for a batch"
            assert self.wake <= due, "a batch would start too late"

    # What the witness knows

    def calls(self) -> list[tuple[int, ...]]:
        everything = [*self.seen.values(), *self.orphans.values()]
        return sorted({e.call for e in everything if e.state == "running"})

    def free_lanes(self) -> Iterator[list[Seen]]:
        for lane in {e.fact.lane for e in self.seen.values()}:
            here = sorted((e for e in self.seen.values() if e.fact.lane == lane), key=lambda e: e.order)
            orphaned = any(e.fact.lane == lane for e in self.orphans.values())
            waiting = [e for e in here if e.state == "waiting"]
            if waiting and not orphaned and not any(e.state not in {"waiting", "done", "forgotten"} for e in here):
                yield waiting

    def heads(self) -> list[Seen]:
        return [waiting[0] for waiting in self.free_lanes()]

    def ready(self) -> list[Seen]:
        return [event for waiting in self.free_lanes() for event in waiting]

    def over(self, event: Seen) -> bool:
        expires_at = event.fact.expires_at
        return expires_at is not None and expires_at <= self.now

    # What happens to the dispatcher

    def arrive(self, a: int, b: int) -> None:
        partition = b % PARTITIONS
        if partition in self.draining:
            self.step(Arrived(self.sequence + 1, partition, "late", 0, None, 0, self.now))
            if b % 3 == 0:
                self.revoke(partition, 0)
            return
        if self.cursor[partition] == len(self.log[partition]):
            self.sequence += 1 + a % 2
            lifetime = (None, None, None, 0.0, 1.5)[b % 5]
            expires_at = None if lifetime is None else self.now + lifetime
            self.log[partition].append(Fact(self.sequence, partition, f"lane {a % LANES}", (a + b) % 3, expires_at))
        item = self.log[partition][self.cursor[partition]]
        if isinstance(item, int):
            self.cursor[partition] += 1
            self.step(Skipped(item, partition))
        elif self.dispatcher.room():
            self.cursor[partition] += 1
            self.order += 1
            attempts = (0, 0, 0, 0, 1, 3)[(a + b) % 6]
            self.seen[item.sequence] = Seen(item, self.order, self.now, attempts)
            self.step(Arrived(item.sequence, partition, item.lane, item.priority, item.expires_at, attempts, self.now))

    def skip(self, a: int, _b: int) -> None:
        partition = a % PARTITIONS
        if partition in self.draining:
            self.step(Skipped(self.sequence + 1, partition))
        elif self.cursor[partition] == len(self.log[partition]):
            self.sequence += 1
            self.log[partition].append(self.sequence)
            self.cursor[partition] += 1
            self.step(Skipped(self.sequence, partition))

    def answered(self, a: int) -> tuple[int, ...]:
        """A call that runs."""
        calls = self.calls()
        return calls[a % len(calls)] if calls else ()

    def answer_return(self, a: int, _b: int) -> None:
        sequences = self.answered(a)
        for sequence in sequences:
            if sequence in self.orphans:
                del self.orphans[sequence]
            else:
                self.seen[sequence].state = "done"
        self.step(Returned(sequences, self.now))

    def answer_failure(self, a: int, b: int) -> None:
        sequences = self.answered(a)
        final = b % 5 == 0
        mine = [s for s in sequences if not self.orphans.pop(s, None)]
        for sequence in mine:
            event = self.seen[sequence]
            event.attempts += 1
            if final or event.attempts >= self.policy.attempts:
                event.state = "failed"
            elif event.fact.partition in self.draining:
                event.state = "forgotten"
            else:
                event.state = "retrying"
                event.due = self.now + min(4.0, 2.0 ** (event.attempts - 1))
                event.call = sequences
        self.step(Failed(sequences, "no", self.now, 0.0, final))
        assert not any(event.state == "failed" for event in self.seen.values()), "failed for the last time, not buried"

    def bury(self, a: int, _b: int) -> None:
        burying = sorted(s for s, event in self.seen.items() if event.state == "burying")
        if burying:
            sequence = burying[a % len(burying)]
            self.seen[sequence].state = "done"
            self.step(Buried(sequence))

    def tick(self, a: int, b: int) -> None:
        self.now += (0.0, 0.25, 0.5, 1.0, 2.0, 5.0)[(a + b) % 6]
        self.step(Ticked(self.now))

    def drain(self, a: int, _b: int) -> None:
        partition = a % PARTITIONS
        if self.cursor[partition]:
            self.draining.add(partition)
            for event in self.seen.values():
                if event.fact.partition == partition and event.state in {"waiting", "retrying"}:
                    event.state = "forgotten"
        self.step(Draining(partition))

    def revoke(self, a: int, _b: int) -> None:
        partition = a % PARTITIONS
        for sequence, event in list(self.seen.items()):
            if event.fact.partition == partition:
                del self.seen[sequence]
                if event.state == "running":
                    self.orphans[sequence] = event
        self.draining.discard(partition)
        position = self.floor[partition]
        self.log[partition] = [
            item for item in self.log[partition] if (item if isinstance(item, int) else item.sequence) > position
        ]
        self.cursor[partition] = self.floor[partition] = 0
        self.step(Revoked(partition))

    def rest(self, a: int, _b: int) -> None:
        self.paused = a % 3 == 0
        self.step(Paused() if self.paused else Resumed(self.now))

    def nonsense(self, a: int, b: int) -> None:
        """Answers to nothing, and sequences said twice: the witness's books do not change, so nothing else may."""
        still = [s for s in range(1, self.sequence + 3) if s not in self.orphans]
        running = {s for s in still if s in self.seen and self.seen[s].state == "running"}
        burying = {s for s in still if s in self.seen and self.seen[s].state == "burying"}
        idle = [s for s in still if s not in running]
        sequence = idle[a % len(idle)]
        arrived = [event for event in self.seen.values() if event.order == self.order]
        match b % 5:
            case 0:
                self.step(Returned((sequence,), self.now))
            case 1:
                self.step(Failed((*self.answered(a), sequence), "no", self.now, 0.5))
            case 2 if sequence not in burying:
                self.step(Buried(sequence))
            case 3 if arrived:
                fact = arrived[0].fact
                self.step(Arrived(fact.sequence, fact.partition, fact.lane, 9, None, 0, self.now))
            case _:
                self.step(Ticked(self.now - 1.0))

    def finish(self) -> None:
        """Handlers end, dead letters are written, time passes: then nothing may be left."""
        self.rest(1, 0)
        for partition in sorted(self.draining):
            self.revoke(partition, 0)
        for _ in range(2_000):
            if self.calls():
                self.answer_return(0, 1)
            elif any(event.state == "burying" for event in self.seen.values()):
                self.bury(0, 0)
            elif any(c < len(entries) for c, entries in zip(self.cursor, self.log, strict=True)):
                behind = [p for p in range(PARTITIONS) if self.cursor[p] < len(self.log[p])]
                before = self.cursor[behind[0]]
                self.arrive(0, behind[0])
                if self.cursor[behind[0]] == before:
                    self.tick(0, 3)
            elif not self.dispatcher.idle():
                self.tick(0, 3)
            else:
                break
        assert self.dispatcher.idle(), "handlers ended, and something is left"
        for partition, entries in enumerate(self.log):
            last = entries[-1] if entries else 0
            assert self.floor[partition] == (last if isinstance(last, int) else last.sequence)


ACTS = (
    *(Witness.arrive,) * 9,
    *(Witness.answer_return,) * 5,
    *(Witness.answer_failure,) * 3,
    *(Witness.bury, Witness.tick) * 3,
    Witness.skip,
    Witness.revoke,
    Witness.drain,
    Witness.rest,
    Witness.nonsense,
)

scripts = st.lists(st.tuples(st.integers(0, len(ACTS) - 1), st.integers(0, 59), st.integers(0, 59)), max_size=80)
batches = st.none() | st.builds(Batch, most=st.integers(1, 4), wait=st.sampled_from([0.0, 0.5, 2.0]))


def policy_of(attempts: int, concurrency: int, spare: int, batch: Batch | None) -> Policy:
    needed = concurrency * (batch.most if batch else 1)
    return Policy(attempts, BACKOFF, concurrency=concurrency, in_flight=needed + spare, batch=batch)


policies = st.builds(policy_of, st.integers(1, 3), st.integers(1, 4), st.integers(0, 8), batches)


def play(policy: Policy, script: list[tuple[int, int, int]]) -> Witness:
    witness = Witness(policy)
    for act, a, b in script:
        ACTS[act](witness, a, b)
    witness.finish()
    return witness


@settings(max_examples=400, deadline=None)
@given(policies, scripts)
def test_every_promise_holds_for_every_script(policy: Policy, script: list[tuple[int, int, int]]) -> None:
    play(policy, script)


def random_script(seed: int, length: int) -> tuple[Policy, list[tuple[int, int, int]]]:
    rng = random.Random(seed)
    batch = None if seed % 2 else Batch(rng.randint(1, 4), rng.choice([0.0, 0.5, 2.0]))
    policy = policy_of(rng.randint(1, 3), rng.randint(1, 4), rng.randint(0, 8), batch)
    return policy, [(rng.randrange(len(ACTS)), rng.randrange(60), rng.randrange(60)) for _ in range(length)]


@pytest.mark.parametrize("seed", range(12))
def test_long_scripts(seed: int) -> None:
    play(*random_script(seed, 600))


def test_every_transition_of_the_table_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: set[tuple[Life, Cause]] = set()

    class Row(dict[Cause, Life]):
        def __init__(self, life: Life, row: Mapping[Cause, Life]) -> None:
            super().__init__(row)
            self.life = life

        def __getitem__(self, cause: Cause) -> Life:
            taken.add((self.life, cause))
            return super().__getitem__(cause)

    monkeypatch.setattr(machine, "TRANSITIONS", {life: Row(life, row) for life, row in TRANSITIONS.items()})
    for seed in range(40):
        play(*random_script(seed, 120))
    assert taken == {(life, cause) for life, row in TRANSITIONS.items() for cause in row}
