"""A process that shares the journal: a publisher with the managers of its transactions, or a keeper, which has only
those that it took over. It drives `Transaction` as the runtime does, renews its lease, and looks for orphans."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, assert_never

from tutti.control.doubt import recovery_answer
from tutti.control.transaction import messages as t
from tutti.control.transaction.life import Stage
from tutti.control.transaction.machine import Transaction
from tutti.model.messages import MANAGER, Inquiry, Prepare, Received, Send, Ticked, To, WakeAt
from tutti.model.transaction import PUBLISHER, Decision, Member, Outcome
from tutti.simulation.database import Database
from tutti.simulation.facts import Answered, Carried, FencedOff, Fulfilled, NeverBegan, Proposed
from tutti.simulation.ground import Ground
from tutti.simulation.journal import Answer, Failed, Fenced, Journal, Row, Write
from tutti.simulation.log import Append, Log
from tutti.simulation.member import Subscriber
from tutti.simulation.network import BUS, Network, Packet, stirred
from tutti.simulation.site import Alarm, Site

RENEW_SECONDS = 1.5
LOOK_SECONDS = 2.0  # for orphans
WATCH_SECONDS = 1.0  # heartbeats; after two that did not come a member counts as lost
RETRY_SECONDS = 0.5
OVER = frozenset({Stage.ENDED, Stage.FAILED, Stage.FENCED})


class Post:
    """One transaction that is managed here. `epoch` is the one it was taken with."""

    def __init__(self, tx: str, machine: Transaction, role: Literal["manager", "successor"], epoch: int) -> None:
        self.tx, self.machine, self.role, self.epoch = tx, machine, role, epoch
        self.alarm: Alarm
        self.members: tuple[Member, ...] = ()
        self.silent: dict[str, int] = {}
        self.own = ""  # the database that the publisher uses in it
        self.own_fails = False
        self.own_over = False  # what is still to be prepared need not be

    @property
    def place(self) -> str:
        return f"own:{self.tx}"


class Shared:
    """What all of these processes reach."""

    def __init__(self, ground: Ground, network: Network, journal: Journal, log: Log) -> None:
        self.ground, self.network, self.journal, self.log = ground, network, journal, log
        self.databases: dict[str, Database] = {}
        self.subscribers: dict[str, Subscriber] = {}


class Control(Site):
    def __init__(self, name: str, shared: Shared) -> None:
        super().__init__(name, shared.ground)
        self.shared = shared
        self.posts: dict[str, Post] = {}

    @property
    def manager(self) -> str:
        """A new name for every process."""
        return f"{self.name}#{self.incarnation}"

    # Life

    def lose(self) -> None:
        for tx in self.posts:
            self.shared.network.hosts.get(tx, {}).pop(self.name, None)
        self.posts.clear()
        if self.name in self.shared.databases:
            self.shared.databases[self.name].lose_sessions()

    def begin(self) -> None:
        rng = self.ground.rng
        self.later(0.0, self._renew)
        self.later(rng.uniform(0.0, LOOK_SECONDS), self._look)
        self.later(rng.uniform(0.0, WATCH_SECONDS), self._watch)

    def _renew(self) -> None:
        journal, manager = self.shared.journal, self.manager
        journal.write(self, lambda: journal.renew(manager), lambda _: None)
        self.later(RENEW_SECONDS, self._renew)

    # Successors

    def _look(self) -> None:
        journal, manager = self.shared.journal, self.manager
        journal.read(self, lambda: journal.orphans(manager), self._found)
        self.later(LOOK_SECONDS, self._look)
        self._reap()

    def _found(self, answer: Answer) -> None:
        if not isinstance(answer, tuple):
            return
        for tx, epoch in answer:
            if not self._manages(tx):
                self._take_over(tx, epoch)

    def _manages(self, tx: str) -> bool:
        return tx in self.posts and self.posts[tx].machine.stage not in OVER

    def _take_over(self, tx: str, epoch: int) -> None:
        journal, manager = self.shared.journal, self.manager

        def taken(answer: Answer) -> None:
            if isinstance(answer, Row) and not self._manages(tx):
                self._succeed(answer)

        journal.write(self, lambda: journal.take_over(tx, epoch, manager), taken)

    def _succeed(self, row: Row) -> None:
        record = row.record
        post = Post(record.tx, Transaction.recovered(record, row.decision, record.epoch), "successor", record.epoch)
        post.own = record.resources[0] if record.resources else ""
        self.host(post)

    def host(self, post: Post) -> None:
        self.posts[post.tx] = post
        post.alarm = self.alarm(lambda now: self.tell(post, Ticked(now)))
        self.shared.network.hosts.setdefault(post.tx, {})[self.name] = None
        self.tell(post, t.Started(self.now))

    def _reap(self) -> None:
        """Prepared branches of our own that nobody here thinks of: what the journal says of them."""
        own = self.shared.databases.get(self.name)
        for tx, place, number in own.prepared() if own is not None else ():
            if not self._manages(tx):
                self._reap_one(tx, place, number)

    def _reap_one(self, tx: str, place: str, number: int) -> None:
        journal, own = self.shared.journal, self.shared.databases[self.name]

        def end(answer: Answer) -> None:
            match answer:
                case (True, Decision(outcome="commit")):
                    own.commit(tx, place, (number,))
                case (True, Decision()):
                    own.roll_back(tx, place, (number,))
                case _:
                    pass

        journal.read(self, lambda: journal.decision(tx), end)

    # Heartbeats

    def _watch(self) -> None:
        for post in list(self.posts.values()):
            for member in post.members if self._manages(post.tx) else ():
                silent = post.silent.get(member.hash, 0) + 1 if self._silent(member) else 0
                post.silent[member.hash] = silent
                if silent == 2:
                    self.tell(post, t.MemberLost(member.hash, self.now))
                if not self.up:
                    return
        self.later(WATCH_SECONDS, self._watch)

    def _silent(self, member: Member) -> bool:
        """An instance that was started again is another one; a group's member is the same."""
        name, _, incarnation = member.instance.partition("#")
        if not self.shared.network.hears(self.name, name):
            return True
        return bool(incarnation) and self.shared.subscribers[name].incarnation != int(incarnation)

    # Messages

    def receive(self, packet: Packet) -> None:
        message = packet.message
        post = self.posts.get(message.tx)
        if packet.to is To.RECOVERY and isinstance(message, Inquiry):
            self._recover(message)
        elif post is not None:
            self.tell(post, Received(message, packet.signer, self.now))

    def _recover(self, inquiry: Inquiry) -> None:
        """For the journal."""
        journal = self.shared.journal

        def say(answer: Answer) -> None:
            match answer:
                case (bool(known), Decision() | None as decision):
                    told = recovery_answer(inquiry.tx, known=known, decision=decision)
                    self.shared.network.cast(self.name, Send(told, To.INBOX, inquiry.inbox), MANAGER)
                case _:
                    pass

        journal.read(self, lambda: journal.decision(inquiry.tx), say)

    # Effects

    def tell(self, post: Post, given: t.Input) -> None:
        ground, born = self.ground, self.incarnation
        if self.posts.get(post.tx) is not post:
            return
        ground.say(self.name, post.tx, given)
        before = post.machine.stage
        effects = post.machine.step(given)
        moved = post.machine.stage is not before
        if (wrong := stirred(self, post.alarm, given, effects, moved=moved)) is not None:
            ground.see(self.name, wrong)
        if ground.scenario.self_checks:
            post.machine.check()
        for effect in effects:
            down = ground.crash_due(post.role, effect, "before")
            if down is None:
                ground.say(self.name, post.tx, effect)
                self._perform(post, effect)
                if self.incarnation != born:
                    return
                down = ground.crash_due(post.role, effect, "after")
            if down is not None:
                self.crash(down)
                return

    def _perform(self, post: Post, effect: t.Effect) -> None:
        shared, journal = self.shared, self.shared.journal
        match effect:
            case Send():
                shared.network.cast(self.name, effect, MANAGER)
            case WakeAt():
                post.alarm.set(effect.time)
            case t.Register():
                record = effect.record
                self._journal(post, lambda: journal.register(record), lambda _: t.Registered(self.now))
            case t.Opened():
                post.members = effect.members
                self.opened(post)
            case t.CensusFailed():
                self.ground.see(self.name, NeverBegan(post.tx))
            case t.Publish():
                self._publish(post, effect)
            case t.PrepareOwn():
                self.later(self.ground.latency(), lambda: self._prepare_own(post))
            case t.FinishOwn():
                outcome = effect.outcome
                self.later(self.ground.latency(), lambda: self._finish_own(post, outcome))
            case t.DecideInJournal():
                self._decide(post, effect.decision)
            case t.QueueStatus():
                self._queue_status(post.tx)
            case t.Answer():
                self.ground.see(self.name, Answered(post.tx, effect.request, effect.answer))
                self.answered(post, effect.answer)
            case t.RecordEnded(state="compensating"):
                pass  # for people
            case t.RecordEnded():
                member, outcome = effect.member, effect.outcome
                journal.write(self, lambda: journal.record_ended(post.tx, member, outcome), lambda _: None)
            case t.Finished():
                self._finish(post)
            case _:
                assert_never(effect)

    def opened(self, post: Post) -> None:
        """For publishers."""

    def answered(self, post: Post, answer: t.CommitAnswer) -> None:
        """For publishers."""

    def _journal(self, post: Post, write: Write, good: Callable[[Answer], t.Input]) -> None:
        def reply(answer: Answer) -> None:
            match answer:
                case Failed():
                    self.tell(post, t.JournalFailed(answer.reason, self.now))
                case Fenced():
                    self.ground.see(self.name, FencedOff(post.tx, self.name, post.epoch))
                    self.tell(post, t.Fenced(self.now))
                case _:
                    self.tell(post, good(answer))

        self.shared.journal.write(self, write, reply)

    def _decide(self, post: Post, proposal: Decision) -> None:
        def stands(answer: Answer) -> t.Input:
            return t.JournalDecided(answer, self.now) if isinstance(answer, Decision) else t.JournalFailed("", self.now)

        self.ground.see(self.name, Proposed(post.tx, proposal))
        self._journal(post, lambda: self.shared.journal.decide(proposal), stands)

    def _finish(self, post: Post) -> None:
        """Until it is written down, or somebody else thinks of it."""
        journal = self.shared.journal

        def reply(answer: Answer) -> None:
            if isinstance(answer, Failed):
                self.later(RETRY_SECONDS, lambda: self._finish(post))

        journal.write(self, lambda: journal.finish(post.tx, post.epoch), reply)

    def _publish(self, post: Post, effect: t.Publish) -> None:
        carried = self._carry(effect.prepare)
        append = Append(post.tx, PUBLISHER, effect.type, effect.number)

        def reply(reason: str) -> None:
            if reason:
                self.tell(post, t.NotStored(effect.event, reason, self.now))
                return
            self.ground.see(self.name, Fulfilled(post.tx, f"event {effect.event}"))
            self.tell(post, t.Stored(effect.event, self.now))

        self.shared.log.append(self, append, carried, reply)

    def _carry(self, prepare: Prepare | None) -> Packet | None:
        if prepare is None:
            return None
        self.ground.see(self.name, Carried(prepare.tx, prepare))
        return Packet(prepare, MANAGER, self.shared.network.sign(prepare))

    def _queue_status(self, tx: str) -> None:
        for name in list(self.shared.network.audience.get(tx, ())):
            subscriber = self.shared.subscribers[name]
            self.shared.network.convey(BUS, name, partial(subscriber.read_status, tx))

    # The publisher's own resources

    def _prepare_own(self, post: Post) -> None:
        if post.own_fails or post.own_over:
            self.tell(post, t.OwnPrepareFailed("no space", self.now))
            return
        self.shared.databases[post.own].prepare(post.tx, post.place, 1)
        self.ground.see(self.name, Fulfilled(post.tx, "own"))
        self.tell(post, t.OwnPrepared(self.now))

    def _finish_own(self, post: Post, outcome: Outcome) -> None:
        ground, own = self.ground, self.shared.databases[post.own]
        post.own_over = True
        if ground.strikes(ground.faults.finish_fails, "a branch cannot be finished right now"):
            self.later(RETRY_SECONDS, lambda: self._finish_own(post, outcome))
            return
        (own.commit if outcome == "commit" else own.roll_back)(post.tx, post.place, (1,))
        self.tell(post, t.OwnFinished(self.now))
