"""A manager and members of one transaction in a small world: a clock, a journal, a log of events, wires that lose,
repeat and delay, and processes that crash. It carries out effects the way a driver would, and watches.

`play(seed)` replays a failure. With `faults=False` everything arrives, at once and in order: messages can be counted.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tutti.control.doubt import recovery_answer
from tutti.control.participation import messages as p
from tutti.control.participation.life import Stage as MemberStage
from tutti.control.participation.machine import Participation
from tutti.control.participation.unknown import answer_unknown
from tutti.control.transaction import messages as t
from tutti.control.transaction.life import Stage as ManagerStage
from tutti.control.transaction.machine import Transaction
from tutti.model.messages import (
    MANAGER,
    NOBODY,
    Begin,
    Close,
    Decide,
    Dismiss,
    Ended,
    Inquiry,
    Invite,
    Join,
    Message,
    Prepare,
    Received,
    Relay,
    Send,
    Standing,
    Tally,
    Ticked,
    To,
    Vote,
    WakeAt,
    decode,
    encode,
)
from tutti.model.transaction import (
    PUBLISHER,
    CensusRule,
    Consumed,
    Decision,
    Member,
    Outcome,
    ParticipantRecord,
    TransactionRecord,
    member_hash,
)

TX = "j1-tx"
DEADLINE = 60.0
HANDLES = ("Invitation", "Booked")


@dataclass
class Habits:
    """Of one member: chances in [0, 1]."""

    vital: bool = True
    compensatable: bool = False
    early_commit: bool = False
    handles: tuple[str, ...] = HANDLES
    handler_fails: float = 0.0
    prepare_fails: float = 0.0
    publishes: float = 0.0
    defers: bool = False
    crashes: float = 0.0  # at each effect
    compensator_fails: float = 0.0


class MemberNode:
    """One subscriber process, and what of it survives a crash."""

    def __init__(self, world: World, number: int, habits: Habits) -> None:
        self.world, self.number, self.habits = world, number, habits
        self.pseudonym, self.key = f"p{number}", f"key{number}"
        self.hash = member_hash(TX, self.pseudonym)
        self.record: ParticipantRecord | None = None  # its own log
        self.prepared: set[int] = set()
        self.committed = False
        self.applied: Counter[Consumed] = Counter()  # what its database shows in the end
        self.working: dict[int, list[Consumed]] = {}
        self.votes: dict[tuple[int, int], str] = {}
        self.machine: Participation | None = None
        self.generation, self.down = 0, False
        self.heuristics: list[p.RecordHeuristic] = []

    def part(self) -> p.Part:
        h, group = self.habits, "" if self.world.census else "g"
        return p.Part(
            tx=TX,
            pseudonym=self.pseudonym,
            key=self.key,
            inbox=f"inbox{self.number}",
            deadline=DEADLINE,
            handles=h.handles,
            compensatable=h.compensatable,
            early_commit=h.early_commit,
            group=group,
        )

    def tell(self, given: p.Input) -> None:
        if self.machine is None:
            return
        if isinstance(given, Received) and isinstance(given.message, Relay):
            for envelope in given.message.envelopes:
                self.tell(Received(decode(envelope), MANAGER, self.world.now, envelope))
            return
        before = self.machine.stage
        effects = self.machine.step(given)
        self.machine.check()
        self.world.stages.add((before, self.machine.stage))
        self.carry_out(effects)

    def carry_out(self, effects: list[p.Effect]) -> None:
        generation = self.generation
        for effect in effects:
            if self.generation != generation:
                return  # crashed meanwhile
            if self.world.chance(self.habits.crashes):
                self.crash()
                return
            self.perform(effect)

    def later(self, given: p.Input) -> None:
        generation = self.generation
        self.world.later(self.world.pause(), lambda: self.tell(given) if self.generation == generation else None)

    def crash(self) -> None:
        self.world.crashes += 1
        self.generation += 1
        self.machine, self.down = None, True
        self.working.clear()
        self.world.later(self.world.rng.uniform(0.5, 4.0), self.restart)

    def restart(self) -> None:
        if not self.down:
            return
        self.down = False
        self.prepared &= set(self.record.branches) if self.record is not None else set()  # the reaper's part
        if self.record is not None:
            self.machine = Participation.recovered(self.part(), self.record)
            self.tell(p.Recovered(self.world.now))

    def perform(self, effect: p.Effect) -> None:  # noqa: PLR0915  one case per effect
        world, now = self.world, self.world.now
        match effect:
            case Send():
                if isinstance(effect.message, Vote):
                    self.watch_vote(effect.message)
                world.send(effect, self.key)
            case WakeAt():
                if effect.time is not None:
                    generation, at = self.generation, effect.time
                    world.at(at, lambda: self.tell(Ticked(world.now)) if self.generation == generation else None)
            case p.Handle():
                self.handle(effect)
            case p.Fetch():
                for number in effect.numbers:
                    found = world.find(effect.publisher, effect.type, number)
                    gone = p.EventGone(effect.publisher, effect.type, number, now)
                    self.later(p.Arrived(found, now, self.habits.defers) if found is not None else gone)
            case p.Publish():
                world.publish(self.hash, effect.type, effect.number, None)
            case p.PrepareResources():
                if world.chance(self.habits.prepare_fails):
                    self.later(p.PrepareFailed(effect.round, "no space", now))
                else:
                    self.prepared.add(effect.round)
                    self.later(p.Prepared(effect.round, now))
            case p.CommitWork():
                if world.chance(self.habits.prepare_fails):
                    self.later(p.PrepareFailed(effect.round, "no space", now))
                else:
                    if not self.habits.early_commit:
                        self.applied.update(self.working.pop(effect.round, []))
                    self.record = effect.record
                    self.later(p.Prepared(effect.round, now))
            case p.WriteLog():
                self.record = effect.record
                self.later(p.LogWritten(max(effect.record.branches, default=0), now))
            case p.CommitResources():
                self.watch_finish("commit")
                assert set(effect.rounds) <= self.prepared or self.committed, "commits what was not prepared"
                self.committed = True  # a second time, after a crash, the branches do not exist any more
                self.apply(effect.rounds)
                self.later(p.ResourcesFinished("commit", now))
            case p.RollbackResources():
                self.watch_finish("abort")
                for number in effect.rounds:
                    self.prepared.discard(number)
                    self.working.pop(number, None)
                self.later(p.ResourcesFinished("abort", now))
            case p.RunCompensator():
                if world.chance(self.habits.compensator_fails):
                    self.later(p.CompensationFailed(effect.event, "busy", now))
                else:
                    self.applied.pop(effect.event, None)  # behind the barrier: once
                    self.later(p.Compensated(effect.event, now))
            case p.Park():
                self.later(p.CompensationResumed(now))
            case p.CloseLog():
                self.record = effect.record
            case p.RecordHeuristic():
                self.heuristics.append(effect)
            case p.Stuck() | p.Forget():
                pass

    def handle(self, effect: p.Handle) -> None:
        world, now, event = self.world, self.world.now, effect.event
        if world.chance(self.habits.handler_fails):
            self.later(p.HandlerFailed(event, "no room", now))
            return
        if effect.commit:
            self.applied[event] += 1
            record = self.record.consumed if self.record is not None else ()
            self.record = ParticipantRecord(
                TX, self.pseudonym, self.key, "working", 1, 0, DEADLINE, True, consumed=(*record, event)
            )
        else:
            self.working.setdefault(effect.round, []).append(event)
        may = self.machine is not None and self.machine.may_publish and event.type == "Invitation"
        if may and world.chance(self.habits.publishes):
            self.tell(p.Publishing("reaction", "Booked"))
        self.later(p.Handled(event, now))

    def apply(self, rounds: tuple[int, ...]) -> None:
        """What was prepared survives a crash: it is what the log says was consumed."""
        if self.prepared >= set(rounds) and self.record is not None:
            self.prepared -= set(rounds)
            for event in self.record.consumed:
                self.applied[event] = 1

    def watch_vote(self, vote: Vote) -> None:
        key = (vote.epoch, vote.round)
        if vote.value == "yes":
            logged = self.record is not None and (self.record.epoch, self.record.round) == key
            assert logged, "a yes left before it was written down"
        said = self.votes.setdefault(key, vote.value)
        assert said in {vote.value, "open"}, f"said {said}, then {vote.value}"  # `open` is no vote yet
        self.votes[key] = vote.value

    def watch_finish(self, outcome: str) -> None:
        row = self.world.decisions.get(TX)
        if outcome == "commit":
            assert row is not None, "commits without the row"
            assert row.outcome_for(self.hash) == "commit", "commits against the row"
            return
        last = self.votes.get(max(self.votes)) if self.votes else None
        if last == "yes" and not self.world.taken_back(max(self.votes)):
            assert row is not None, "aborts alone after a yes"
            assert row.outcome_for(self.hash) == "abort", "aborts against the row"


class ManagerNode:
    def __init__(self, world: World, machine: Transaction) -> None:
        self.world, self.machine, self.alive = world, machine, True
        self.answers: dict[int, t.CommitAnswer] = {}
        self.opened = False
        self.failed: t.CensusFailed | None = None
        self.finished = False

    def tell(self, given: t.Input) -> None:
        if not self.alive:
            return
        before = self.machine.stage
        effects = self.machine.step(given)
        self.machine.check()
        self.world.stages.add((before, self.machine.stage))
        for effect in effects:
            if self.world.chance(self.world.manager_crashes):
                self.world.crashes += 1
                self.alive = False
                self.world.later(5.0, self.world.succeed)
                return
            self.perform(effect)

    def later(self, given: t.Input) -> None:
        self.world.later(self.world.pause(), lambda: self.tell(given))

    def perform(self, effect: t.Effect) -> None:
        world, now = self.world, self.world.now
        match effect:
            case Send():
                if isinstance(effect.message, Decide):
                    row = world.decisions.get(TX)
                    assert row is not None, "announced before the row"
                    assert row.outcome == effect.message.outcome, "announced something else than the row"
                if isinstance(effect.message, Close | Prepare):
                    world.asked.add((effect.message.epoch, effect.message.round))
                world.send(effect, MANAGER)
            case WakeAt():
                if effect.time is not None:
                    world.at(effect.time, lambda: self.tell(Ticked(world.now)))
            case t.Register():
                world.record = effect.record
                self.later(t.Registered(now))
            case t.Opened():
                self.opened = True
                world.later(world.pause(), world.work)
            case t.CensusFailed():
                self.failed = effect
            case t.Publish():
                if effect.prepare is not None:
                    world.asked.add((effect.prepare.epoch, effect.prepare.round))
                world.publish(PUBLISHER, effect.type, effect.number, effect.prepare)
                self.later(t.Stored(effect.event, now))
            case t.PrepareOwn():
                self.later(t.OwnPrepared(now))
            case t.FinishOwn():
                self.later(t.OwnFinished(now))
            case t.DecideInJournal():
                self.decide(effect.decision)
            case t.Answer():
                assert effect.request not in self.answers, "answered twice"
                self.answers[effect.request] = effect.answer
            case t.Finished():
                self.finished = True
            case t.QueueStatus() | t.RecordEnded():
                pass

    def decide(self, proposal: Decision) -> None:
        world = self.world
        if world.chance(world.journal_fails / 2):
            self.later(t.JournalFailed("unreachable", world.now))
            return
        if proposal.epoch < world.epoch:
            self.later(t.Fenced(world.now))
            return
        if TX not in world.decisions:
            world.watch_decision(proposal)
            world.decisions[TX] = proposal
        if world.chance(world.journal_fails / 2):
            self.later(t.JournalFailed("no answer", world.now))  # though it is written
            return
        self.later(t.JournalDecided(world.decisions[TX], world.now))


class World:
    def __init__(
        self,
        seed: int = 0,
        habits: list[Habits] | None = None,
        *,
        census: bool = False,
        faults: bool = True,
        last: bool = False,
        events: int = 1,
        minimum: int = 0,
    ) -> None:
        self.rng = random.Random(seed)
        self.faults, self.census, self.last, self.events = faults, census, last, events
        self.loss = self.rng.choice([0.0, 0.05, 0.2]) if faults else 0.0
        self.forgery = self.rng.choice([0.0, 0.2]) if faults else 0.0
        self.journal_fails = self.rng.choice([0.0, 0.2]) if faults else 0.0
        self.manager_crashes = self.rng.choice([0.0, 0.0, 0.03]) if faults else 0.0
        self.now = 0.0
        self.agenda: list[tuple[float, int, Callable[[], None]]] = []
        self.ticket = 0
        self.log: list[Consumed] = []
        self.decisions: dict[str, Decision] = {}
        self.record: TransactionRecord | None = None
        self.epoch = 1
        self.asked: set[tuple[int, int]] = set()
        self.sent: Counter[str] = Counter()
        self.stages: set[tuple[ManagerStage | MemberStage, ManagerStage | MemberStage]] = set()
        self.crashes = 0
        self.members = [MemberNode(self, n, h) for n, h in enumerate(habits or [Habits()])]
        listed = tuple(Member(m.hash, m.key, m.habits.vital, f"m{m.number}") for m in self.members)
        vital = {m.pseudonym: m.habits.vital for m in self.members}
        count = len(self.members)
        rule = CensusRule(max(1, minimum), count, 2.0, vital=lambda offer: vital[offer.pseudonym])
        plan = t.Plan(
            tx=TX,
            type="Meeting",
            deadline=DEADLINE,
            manager="m1",
            minimum=minimum,
            events=HANDLES,
            census=rule if census else None,
            group="" if census else "g",
            members=() if census else listed,
        )
        self.manager = ManagerNode(self, Transaction(plan))
        self.later(0.0, lambda: self.manager.tell(t.Started(self.now)))

    # Time and chance

    def chance(self, share: float) -> bool:
        return share > 0.0 and self.rng.random() < share

    def pause(self) -> float:
        return self.rng.expovariate(20.0) if self.faults else 0.0

    def at(self, time: float, act: Callable[[], None]) -> None:
        self.ticket += 1
        heapq.heappush(self.agenda, (max(time, self.now), self.ticket, act))

    def later(self, delay: float, act: Callable[[], None]) -> None:
        self.at(self.now + delay, act)

    def run(self, until: float) -> None:
        steps = 0
        while self.agenda and self.agenda[0][0] <= until:
            self.now, _, act = heapq.heappop(self.agenda)
            act()
            steps += 1
            assert steps < 100_000, "this does not come to an end"
        self.now = until

    def heal(self) -> None:
        """No more faults; whatever is down comes up."""
        self.loss = self.journal_fails = self.manager_crashes = 0.0
        for member in self.members:
            member.habits.crashes = member.habits.compensator_fails = 0.0
            member.restart()
        if not self.manager.alive:
            self.succeed()

    # The publisher

    def work(self) -> None:
        for number in range(self.events):
            if self.manager.machine.open:
                last = self.last and number == self.events - 1
                self.manager.tell(t.Publishing(f"e{number}", "Invitation", self.now, last))
        self.later(self.pause(), lambda: self.manager.tell(t.CommitRequested(1, 30.0, self.now)))

    def succeed(self) -> None:
        """Another manager takes over what the journal knows."""
        if self.manager.alive or self.record is None:
            return
        self.epoch += 1
        heir = Transaction.recovered(self.record, self.decisions.get(TX), self.epoch)
        self.manager = ManagerNode(self, heir)
        self.manager.tell(t.Started(self.now))

    # The bus

    def publish(self, publisher: str, event_type: str, number: int, prepare: Prepare | None) -> None:
        self.sent["event"] += 1
        event = next((e for e in self.log if (e.publisher, e.type, e.number) == (publisher, event_type, number)), None)
        if event is None:
            event = Consumed(publisher, event_type, number, len(self.log) + 1)
            self.log.append(event)
        for member in self.members:
            if event_type in member.habits.handles:
                self.reach(member, partial(self.arrive, member, event))
            if prepare is not None:
                carried = Received(prepare, MANAGER, self.now, encode(prepare))
                self.reach(member, partial(self.hear, member, carried))

    def arrive(self, member: MemberNode, event: Consumed) -> None:
        self.enrol(member)
        member.tell(p.Arrived(event, self.now, member.habits.defers and event.publisher == PUBLISHER))

    def find(self, publisher: str, event_type: str, number: int) -> Consumed | None:
        return next((e for e in self.log if (e.publisher, e.type, e.number) == (publisher, event_type, number)), None)

    def enrol(self, member: MemberNode) -> None:
        """A group's member begins when it hears of the transaction, unless its log knows more."""
        if member.machine is None and not self.census and member.record is None:
            member.machine = Participation(member.part())
            member.tell(p.Enrolled(self.now))

    def hear(self, member: MemberNode, given: Received) -> None:
        given = self.at_now(given)
        if isinstance(given.message, Invite):
            if member.machine is None and member.record is None:
                member.machine = Participation(member.part())
                member.tell(p.Accepted(self.now, name=f"m{member.number}"))
            return
        if isinstance(given.message, Prepare | Close | Decide):
            self.enrol(member)
        if member.machine is None and member.record is None and given.signer == MANAGER:
            self.answer(member, given.message)
        member.tell(given)

    def answer(self, member: MemberNode, message: Message) -> None:
        if isinstance(message, Begin | Close | Prepare | Decide):
            known = answer_unknown(message, member.hash)
            if known is not None:
                self.send(known, member.key)

    def send(self, effect: Send, signer: str) -> None:
        message = effect.message
        self.sent[type(message).__name__.lower()] += 1
        if self.chance(self.forgery):
            self.forge()
        given = Received(message, signer, self.now, encode(message) if signer == MANAGER else b"")
        match effect.to:
            case To.CANDIDATES | To.MEMBERS:
                for member in self.members:
                    if member.key != signer:
                        self.reach(member, partial(self.hear, member, given))
                if isinstance(message, Inquiry):
                    self.way(lambda: self.manager.tell(self.at_now(given)))
            case To.MANAGER:
                self.way(lambda: self.manager.tell(self.at_now(given)))
            case To.RECOVERY:
                assert isinstance(message, Inquiry)
                self.way(lambda: self.recover(message))
            case To.INBOX:
                member = next(m for m in self.members if f"inbox{m.number}" == effect.inbox)
                self.reach(member, lambda: member.tell(self.at_now(given)))

    def forge(self) -> None:
        """What somebody who overheard everything, and has no key, can send; and what an old manager may still say."""
        victim = self.rng.choice(self.members)
        round_number = max(self.asked, default=(1, 1))[1]
        stranger = Member(member_hash(TX, "stranger"), "stranger's key")
        lies: list[tuple[Message, str]] = [
            (Vote(TX, self.epoch, round_number, victim.hash, "yes"), stranger.key),
            (Vote(TX, self.epoch, round_number, victim.hash, "no", "forged"), NOBODY),
            (Vote(TX, self.epoch, round_number, stranger.hash, "yes"), stranger.key),
            (Vote(TX, self.epoch - 1, round_number, victim.hash, "yes"), victim.key),
            (Vote(TX, self.epoch, round_number - 1, victim.hash, "yes"), victim.key),
            (Ended(TX, victim.hash, "commit"), stranger.key),
            (Ended(TX, stranger.hash, "commit"), stranger.key),
            (Tally(TX, self.epoch, round_number, victim.hash, 99, {}, {}, ()), stranger.key),
            (Join(TX, victim.pseudonym, victim.key), stranger.key),
        ]
        message, signer = self.rng.choice(lies)
        self.way(lambda: self.manager.tell(Received(message, signer, self.now)))
        row = self.decisions.get(TX)
        wrong: Outcome = "abort" if row is not None and row.outcome == "commit" else "commit"
        orders: list[Message] = [
            Decide(TX, self.epoch, wrong),
            Dismiss(TX, "forged"),
            Begin(TX, self.epoch, (), DEADLINE),
            Close(TX, self.epoch, round_number + 1),
            Prepare(TX, self.epoch, round_number + 1, {}, DEADLINE),
            Standing(TX, "unknown"),
        ]
        order = self.rng.choice(orders)
        self.reach(victim, lambda: victim.tell(Received(order, stranger.key, self.now)))

    def recover(self, inquiry: Inquiry) -> None:
        answer: Message = recovery_answer(TX, known=self.record is not None, decision=self.decisions.get(TX))
        self.send(Send(answer, To.INBOX, inquiry.inbox), MANAGER)

    def at_now(self, given: Received) -> Received:
        return Received(given.message, given.signer, self.now, given.verbatim)

    def reach(self, member: MemberNode, act: Callable[[], None]) -> None:
        self.way(lambda: act() if not member.down else None)

    def way(self, act: Callable[[], None]) -> None:
        """Lost, or late, or twice."""
        if self.chance(self.loss):
            return
        for _ in range(2 if self.chance(self.loss) else 1):
            self.later(self.rng.uniform(1.0, 8.0) if self.chance(self.loss) else self.pause(), act)

    # What must hold

    def taken_back(self, voted: tuple[int, int]) -> bool:
        return any(asked > voted for asked in self.asked)

    def watch_decision(self, proposal: Decision) -> None:
        if proposal.outcome == "abort":
            return
        last = max(self.asked)
        for member in self.members:
            listed = self.record is not None and member.hash in self.record.members
            if listed and member.habits.vital:
                assert member.votes.get(last) == "yes", "commit without a vital yes"
            if listed and member.hash not in proposal.excluded:
                assert member.votes.get(last) == "yes", "commit without a yes of somebody who is not left out"

    def check_end(self) -> None:
        row = self.decisions.get(TX)
        if self.record is None or row is None:
            assert not any(member.applied for member in self.members)
            return
        assert self.manager.finished, f"not finished: {self.manager.machine.stage}"
        for member in self.members:
            outcome = row.outcome_for(member.hash) if member.hash in self.record.members else "abort"
            assert not member.prepared, f"member {member.number} has prepared branches left"
            if outcome == "abort":
                assert not +member.applied, f"member {member.number} kept {member.applied}"
            else:
                assert set(member.applied.values()) <= {1}
                invited = {e for e in member.applied if e.publisher == PUBLISHER}
                assert len(invited) == self.events * ("Invitation" in member.habits.handles)


def any_world(seed: int) -> World:
    """Members, habits and faults, all drawn from the seed."""
    rng = random.Random(seed * 7 + 1)
    habits = []
    for _ in range(rng.randint(1, 4)):
        compensatable = rng.random() < 0.3
        habits.append(
            Habits(
                vital=rng.random() < 0.8,
                compensatable=compensatable,
                early_commit=compensatable and rng.random() < 0.5,
                handles=rng.choice([HANDLES, HANDLES, ("Invitation",), ("Booked",)]),
                handler_fails=rng.choice([0.0, 0.0, 0.0, 0.1]),
                prepare_fails=rng.choice([0.0, 0.0, 0.0, 0.1]),
                publishes=rng.choice([0.0, 0.0, 0.0, 0.7]),
                defers=rng.random() < 0.15,
                crashes=rng.choice([0.0, 0.0, 0.02, 0.05]),
                compensator_fails=rng.choice([0.0, 0.3]),
            )
        )
    census, last, events = rng.random() < 0.5, rng.random() < 0.4, rng.randint(0, 3)
    return World(seed, habits, census=census, last=last, events=events, minimum=rng.choice([0, 1]))


def play(seed: int) -> World:
    """A life with faults, then one without; everything must have ended well."""
    world = any_world(seed)
    world.run(40.0)
    world.heal()
    world.run(400.0)
    world.check_end()
    return world
