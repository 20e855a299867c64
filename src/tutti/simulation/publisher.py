"""A publisher's process: it carries out its orders, and its managers are with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from tutti.control.transaction import messages as t
from tutti.control.transaction.life import Stage
from tutti.control.transaction.machine import Transaction
from tutti.model.transaction import CensusRule, Member, Offer, Outcome
from tutti.simulation.control import Control, Post, Shared
from tutti.simulation.database import Database
from tutti.simulation.facts import Asked, Demanded, FencedOff, Fulfilled, Ordered
from tutti.simulation.journal import Answer, Failed, Fenced
from tutti.simulation.member import Standing
from tutti.simulation.workloads import TYPES, Order

COMMITS_COUNT: Final = 6  # said so often; then the publisher gives up
ENLIST_ATTEMPTS_COUNT: Final = 4
CENSUS_SECONDS: Final = 1.0


class Job:
    """An order that is being carried out."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.requests = 0
        self.script: Iterator[float | None] = iter(())


class Publisher(Control):
    """`groups`: the names of the subscribers in each group."""

    def __init__(self, name: str, shared: Shared, groups: tuple[tuple[str, ...], ...]) -> None:
        super().__init__(name, shared)
        self._groups = groups
        self._jobs: dict[str, Job] = {}
        self.database = shared.databases[name] = Database(name, shared.ground)

    def lose(self) -> None:
        super().lose()
        self._jobs.clear()

    # Beginning

    def start(self, order: Order) -> None:
        deadline = self.shared.journal.now + order.deadline
        members = self._members(order, deadline)
        minimum = min(order.at_least, len(members)) if order.group is not None else order.at_least
        plan = t.Plan(
            tx=order.tx,
            type="Meeting",
            deadline=deadline,
            manager=self.manager,
            events=TYPES,
            minimum=minimum,
            census=None if order.group is not None else self._rule(order),
            group="" if order.group is None else f"g{order.group}",
            members=members,
        )
        maximum = plan.census.at_most if plan.census is not None else None
        self.ground.see(self.name, Ordered(order.tx, members, minimum, maximum))
        post = Post(order.tx, Transaction(plan), "manager", plan.epoch)
        self._jobs[order.tx] = Job(order)
        self.host(post)

    def _members(self, order: Order, deadline: float) -> tuple[Member, ...]:
        if order.group is None:
            return ()
        members = []
        for name in self._groups[order.group]:
            site = self.shared.subscribers[name]
            place = site.place_in(order.tx)
            site.groups[order.tx] = Standing(f"g{order.group}", deadline)
            site.introduce(order.tx, place, site.key)
            self.shared.network.audience.setdefault(order.tx, {})[name] = None
            members.append(Member(place, site.key, site.habits.vital, name, name))
        return tuple(members)

    def _rule(self, order: Order) -> CensusRule:
        vital = {name for name, site in self.shared.subscribers.items() if site.habits.vital}

        def is_vital(offer: Offer) -> bool:
            return offer.name in vital

        most = max(order.at_most, order.at_least) if order.at_most is not None else None
        return CensusRule(order.at_least, most, CENSUS_SECONDS, vital=is_vital)

    # Working

    def opened(self, post: Post) -> None:
        job = self._jobs.get(post.tx)
        if job is not None:
            job.script = self._script(post, job.order)
            self.later(self.ground.latency(), lambda: self._advance(job))

    def _advance(self, job: Job) -> None:
        born = self.incarnation
        delay = next(job.script, None)
        if delay is not None and self.incarnation == born:
            self.later(delay, lambda: self._advance(job))

    def _script(self, post: Post, order: Order) -> Iterator[float | None]:
        """None: somebody else will have it go on."""
        ground, job = self.ground, self._jobs[order.tx]
        for _ in range(ENLIST_ATTEMPTS_COUNT if order.own else 0):
            if not self._works(post) or post.own:
                break
            self._enlist(post, order, lambda: self._advance(job))
            yield None
        if self._works(post) and order.child:
            self._child(post)
        if self._works(post) and order.condition:
            self._condition(post, met=order.condition == "met")
        for number in range(order.events):
            if self._works(post):
                ground.see(self.name, Demanded(post.tx, f"event e{number}"))
                last = order.last and number == order.events - 1
                self.tell(post, t.Publishing(f"e{number}", TYPES[0], self.now, last))
                yield ground.latency()
        match order.ending:
            case "commit":
                self._ask(post, "commit")
            case "abort":
                self._ask(post, "abort")
            case "lost":
                self.tell(post, t.PublisherLost(self.now))
            case "nothing":
                pass

    def _works(self, post: Post) -> bool:
        return self.posts.get(post.tx) is post and post.machine.open

    def _enlist(self, post: Post, order: Order, go_on: Callable[[], None]) -> None:
        journal = self.shared.journal

        def reply(answer: Answer) -> None:
            if isinstance(answer, Fenced):
                self.ground.see(self.name, FencedOff(post.tx, self.name, post.epoch))
                self.tell(post, t.Fenced(self.now))
            elif not isinstance(answer, Failed) and self._works(post):
                post.own, post.own_fails = self.name, order.own_fails
                self.ground.see(self.name, Demanded(post.tx, "own"))
                self.tell(post, t.Enlisted(self.name))
            go_on()

        journal.write(self, lambda: journal.enlist(post.tx, post.epoch, self.name), reply)

    def _child(self, post: Post) -> None:
        self.ground.see(self.name, Demanded(post.tx, "child"))
        self.tell(post, t.ChildBegan("child"))

        def done() -> None:
            self.ground.see(self.name, Fulfilled(post.tx, "child"))
            self.tell(post, t.ChildDone("child", self.now))

        self.later(self.ground.rng.uniform(0.1, 2.0), done)

    def _condition(self, post: Post, *, met: bool) -> None:
        self.ground.see(self.name, Demanded(post.tx, "condition"))
        self.tell(post, t.Required("condition"))

        def judged() -> None:
            if met:
                self.ground.see(self.name, Fulfilled(post.tx, "condition"))
                self.tell(post, t.Met("condition", self.now))
            else:
                self.tell(post, t.Broken("condition", "it does not hold", self.now))

        self.later(self.ground.rng.uniform(0.1, 2.0), judged)

    # Ending

    def _ask(self, post: Post, wish: Outcome) -> None:
        job = self._jobs.get(post.tx)
        if job is None:
            return  # it died on the way
        job.requests += 1
        self.ground.see(self.name, Asked(post.tx, job.requests, wish))
        if wish == "commit":
            self.tell(post, t.CommitRequested(job.requests, job.order.timeout, self.now))
        else:
            self.tell(post, t.AbortRequested(job.requests, "the publisher wants it", self.now))

    def answered(self, post: Post, answer: t.CommitAnswer) -> None:
        job = self._jobs.get(post.tx)
        if job is None or not isinstance(answer, t.Unchecked) or post.machine.stage is Stage.FENCED:
            return
        again: Outcome = "commit" if job.order.patient and job.requests < COMMITS_COUNT else "abort"
        self.later(0.5 + self.ground.latency(), lambda: self._ask(post, again))
