"""Many instances share partitions through one store, in a small world with a clock of its own.

Clocks differ in offset and speed, messages are slow or lost, answers to writes that succeeded are lost, instances pause
for longer than a lease, crash, leave and come. Whatever happens: no two leases of a partition hold at the same real
time, and every taking has a new epoch. When the faults stop: every partition has an owner, all have their fair share.

`World(seed)` replays a failure.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

import pytest

from tutti.flow.partitions import (
    NOBODY,
    Begin,
    Claim,
    Denied,
    Drain,
    Drained,
    Effect,
    Granted,
    Input,
    LeaseRecord,
    Leaving,
    Lost,
    Observed,
    Partitions,
    Refused,
    Release,
    Renew,
    Ticked,
)
from tutti.limits import LEASE_TTL_SECONDS

PARTITIONS = 8
MEMBER_TIMEOUT = 2.0
STEP = 0.25  # real seconds between an instance's observations
SETTLED_WITHIN = 4 * LEASE_TTL_SECONDS


class Instance:
    def __init__(self, name: str, rng: random.Random, started: float) -> None:
        self.name = name
        self.machine = Partitions(name, PARTITIONS)
        self.offset = rng.uniform(-1_000.0, 1_000.0)
        self.speed = rng.uniform(0.95, 1.05)
        self.alive = True
        self.leaving = False
        self.paused_until = started
        self.begun: dict[int, int] = {}

    def clock(self, real: float) -> float:
        return self.offset + self.speed * real


class World:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.real = 0.0
        self.faults = True
        self.agenda: list[tuple[float, int, Callable[[], None]]] = []
        self.count = 0
        self.revision = 0
        self.records = {p: LeaseRecord(p, NOBODY, 0, 0) for p in range(PARTITIONS)}
        self.heard: dict[str, float] = {}
        self.instances: list[Instance] = []
        self.epochs = dict.fromkeys(range(PARTITIONS), 0)
        self.refused = 0
        self.overtaken = 0  # leases that were taken from somebody silent

    # Time

    def later(self, delay: float, act: Callable[[], None]) -> None:
        self.count += 1
        heapq.heappush(self.agenda, (self.real + delay, self.count, act))

    def run(self, seconds: float) -> None:
        end = self.real + seconds
        while self.agenda and self.agenda[0][0] <= end:
            self.real, _, act = heapq.heappop(self.agenda)
            act()
            self.check()
        self.real = end

    def delay(self) -> float:
        """How long one way takes: short as a rule, now and then longer than a lease."""
        slow = self.faults and self.rng.random() < 0.05
        return self.rng.uniform(0.0, 6.0) if slow else self.rng.uniform(0.0, 0.1)

    def lost(self) -> bool:
        return self.faults and self.rng.random() < 0.1

    # What must never happen

    def check(self) -> None:
        for partition in range(PARTITIONS):
            holders = [i.name for i in self.instances if i.alive and i.machine.may_run(partition, i.clock(self.real))]
            assert len(holders) <= 1, f"{holders} may all run partition {partition} at {self.real}"

    # The store

    def put(self, instance: Instance, write: Claim | Renew | Release) -> None:
        """A write on its way: it may be lost, or its answer may, and both may be late."""
        sent_at = instance.clock(self.real)
        if self.lost():
            self.no_answer(instance, write)
        else:
            self.later(self.delay(), lambda: self.store(instance, write, sent_at))

    def store(self, instance: Instance, write: Claim | Renew | Release, sent_at: float) -> None:
        record = self.records[write.partition]
        answer: Input = Denied(write.partition)
        if record.revision == write.expected_revision:
            owner = NOBODY if isinstance(write, Release) else instance.name
            if isinstance(write, Claim):
                assert write.epoch == record.epoch + 1
                self.overtaken += record.owner != NOBODY
            else:
                assert (write.epoch, record.owner) == (record.epoch, instance.name)
            self.revision += 1
            self.records[write.partition] = LeaseRecord(write.partition, owner, write.epoch, self.revision)
            answer = Granted(write.partition, self.revision, sent_at)
        if self.lost():
            self.no_answer(instance, write)
        else:
            self.later(self.delay(), lambda: self.tell(instance, answer))

    def no_answer(self, instance: Instance, write: Claim | Renew | Release) -> None:
        """A driver gives up and says so, or says nothing."""
        if self.rng.random() < 0.5:
            self.later(1.0, lambda: self.tell(instance, Denied(write.partition)))

    # The instances

    def start(self) -> Instance:
        instance = Instance(f"i{len(self.instances)}", self.rng, self.real)
        self.instances.append(instance)
        self.later(self.rng.uniform(0.0, STEP), lambda: self.live(instance))
        return instance

    def live(self, instance: Instance) -> None:
        """Beat, look at the store, and again after a while."""
        if not instance.alive:
            return
        if self.real >= instance.paused_until:
            if not instance.leaving:
                self.heard[instance.name] = self.real
            self.look(instance)
            self.tell(instance, Ticked(instance.clock(self.real)))
        if instance.leaving and instance.machine.gone():
            instance.alive = False
        self.later(STEP, lambda: self.live(instance))

    def look(self, instance: Instance) -> None:
        if self.lost():
            return
        members = tuple(sorted(m for m, at in self.heard.items() if self.real - at < MEMBER_TIMEOUT))
        records = tuple(record for record in self.records.values() if record.revision)
        self.later(self.delay(), lambda: self.tell(instance, Observed(instance.clock(self.real), members, records)))

    def tell(self, instance: Instance, given: Input) -> None:
        if not instance.alive:
            return
        if self.real < instance.paused_until:  # it waits in the process's own queue
            self.later(instance.paused_until - self.real, lambda: self.tell(instance, given))
            return
        if isinstance(given, Observed):
            given = Observed(instance.clock(self.real), given.members, given.records)
        effects = instance.machine.step(given)
        instance.machine.check()
        for effect in effects:
            self.carry_out(instance, effect)

    def carry_out(self, instance: Instance, effect: Effect) -> None:
        match effect:
            case Claim() | Renew() | Release():
                self.put(instance, effect)
            case Begin():
                assert effect.partition not in instance.begun, "begun twice"
                self.begin(instance, effect)
            case Drain():
                partition = effect.partition
                epoch = instance.begun[partition]
                self.later(self.rng.uniform(0.0, 1.5), lambda: self.drained(instance, partition, epoch))
            case Lost():
                del instance.begun[effect.partition]

    def begin(self, instance: Instance, begin: Begin) -> None:
        """Positions are fenced by the epoch: who comes late, with a lease that no longer holds, is refused."""
        instance.begun[begin.partition] = begin.epoch
        if begin.epoch > self.epochs[begin.partition]:
            self.epochs[begin.partition] = begin.epoch
            return
        self.refused += 1
        assert not instance.machine.may_run(begin.partition, instance.clock(self.real)), (
            "an old epoch whose lease holds"
        )
        self.later(0.05, lambda: self.tell(instance, Refused(begin.partition)))

    def drained(self, instance: Instance, partition: int, epoch: int) -> None:
        if self.real < instance.paused_until:
            self.later(instance.paused_until - self.real, lambda: self.drained(instance, partition, epoch))
        elif instance.begun.get(partition) == epoch:  # else it was lost, and the draining with it
            del instance.begun[partition]
            self.tell(instance, Drained(partition))

    # Faults

    def trouble(self) -> None:
        """One random thing happens to one random instance."""
        living = [i for i in self.instances if i.alive and not i.leaving]
        victim = self.rng.choice(living) if living else None
        act = self.rng.randrange(6)
        if victim is None or (act == 0 and len(living) < 5):
            self.start()
        elif act == 1:
            victim.alive = False
        elif act == 2:
            self.leave(victim)
        elif act in {3, 4}:
            victim.paused_until = self.real + self.rng.uniform(0.0, 2.5 * LEASE_TTL_SECONDS)

    def leave(self, instance: Instance) -> None:
        instance.leaving = True
        self.heard.pop(instance.name, None)
        self.tell(instance, Leaving())

    def heal(self) -> None:
        self.faults = False
        for instance in self.instances:
            instance.paused_until = min(instance.paused_until, self.real)
        if not any(i.alive and not i.leaving for i in self.instances):
            self.start()

    def assert_settled(self) -> None:
        living = [i for i in self.instances if i.alive]
        assert not any(i.leaving for i in living), "somebody could not leave"
        shares = {i.name: [p for p in range(PARTITIONS) if i.machine.may_run(p, i.clock(self.real))] for i in living}
        assert sorted(p for share in shares.values() for p in share) == list(range(PARTITIONS)), shares
        sizes = [len(share) for share in shares.values()]
        assert max(sizes) - min(sizes) <= 1, shares
        for instance in living:
            assert sorted(instance.begun) == shares[instance.name], "begun, and not held, or the other way round"


def troubled(seed: int, seconds: float) -> World:
    world = World(seed)
    for _ in range(world.rng.randint(1, 4)):
        world.start()
    end = world.real + seconds
    while world.real < end:
        world.run(world.rng.uniform(0.1, 4.0))
        world.trouble()
    return world


@pytest.mark.parametrize("seed", range(40))
def test_never_two_owners_and_fair_shares_when_the_faults_stop(seed: int) -> None:
    world = troubled(seed, 60.0)
    world.heal()
    world.run(SETTLED_WITHIN)
    world.assert_settled()


def test_the_worlds_are_as_troubled_as_they_should_be() -> None:
    worlds = [troubled(seed, 60.0) for seed in range(5)]
    assert sum(w.overtaken for w in worlds) >= 10, "hardly a lease ran out: this proves nothing"
    assert max(e for w in worlds for e in w.epochs.values()) >= 5


def test_a_seed_gives_the_same_world_again() -> None:
    one, two = troubled(7, 30.0), troubled(7, 30.0)
    assert (one.revision, one.records, one.epochs) == (two.revision, two.records, two.epochs)


@pytest.mark.parametrize("seed", range(5))
def test_without_faults_no_lease_is_lost_and_a_newcomer_moves_only_his_share(seed: int) -> None:
    world = World(seed)
    world.faults = False
    for _ in range(3):
        world.start()
    world.run(SETTLED_WITHIN)
    world.assert_settled()
    epochs = dict(world.epochs)
    world.run(60.0)
    assert world.epochs == epochs, "partitions moved although nothing happened"
    world.start()
    world.run(SETTLED_WITHIN)
    world.assert_settled()
    assert sum(world.epochs[p] - epochs[p] for p in epochs) == PARTITIONS // 4
    assert world.overtaken == 0


def test_who_crashes_is_replaced_within_seconds_and_who_leaves_at_once() -> None:
    world = World(3)
    world.faults = False
    for _ in range(2):
        world.start()
    world.run(SETTLED_WITHIN)
    stays, leaves = world.instances
    world.leave(leaves)
    world.run(1.5 + 4 * STEP)  # the longest drain, and a look at the store on either side
    assert len(stays.machine.held()) == PARTITIONS
    assert leaves.machine.gone()
    newcomer = world.start()
    world.run(SETTLED_WITHIN)
    newcomer.alive = False
    world.run(LEASE_TTL_SECONDS / 0.95 + 1.0)
    assert len(stays.machine.held()) == PARTITIONS
