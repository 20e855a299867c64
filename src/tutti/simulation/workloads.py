"""What people do: which publishers and subscribers there are, how these behave, which transactions are run. Data."""

from __future__ import annotations

import random
from typing import Final, Literal

import msgspec

from tutti.model.transaction import Outcome

TYPES: Final = ("Invitation", "Booked")  # what publishers publish, and what members answer with
FAULTY_SECONDS: Final = 45.0  # transactions begin, and faults happen, in this time; then the world heals
LONG_FAULTY_SECONDS: Final = 120.0  # the same where a compensator is tried until it is parked, which takes a minute


class Habits(msgspec.Struct, frozen=True, omit_defaults=True):
    """Of one subscriber; chances per event or call."""

    vital: bool = True
    compensatable: bool = False
    early_commit: bool = False
    handles: tuple[str, ...] = TYPES
    defers: bool = False  # what publishers publish is handled after the work has ended
    joins: float = 1.0  # a census
    publishes: float = 0.0
    handler_fails: float = 0.0
    sets_abort: float = 0.0
    prepare_fails: float = 0.0
    compensator_fails: float = 0.0
    compensator_broken: bool = False  # fails until the operator has had it mended
    forgetful: bool = False  # drops a machine as soon as that is allowed


class Order(msgspec.Struct, frozen=True, omit_defaults=True):
    """One transaction. `group`: which one; None: a census. `ending`: what the publisher does when it has published;
    `lost`: it is gone, and its manager lives. After a time-out it says commit again, or abort (`patient`)."""

    number: int
    publisher: int
    start: float
    group: int | None = None
    at_least: int = 1
    at_most: int | None = None
    events: int = 1
    last: bool = False
    own: bool = False
    own_fails: bool = False
    child: bool = False
    condition: Literal["", "met", "broken"] = ""
    ending: Literal["commit", "abort", "lost", "nothing"] = "commit"
    timeout: float = 10.0
    patient: bool = True
    deadline: float = 25.0

    @property
    def tx(self) -> str:
        return f"j1-{self.number}"


class Resolution(msgspec.Struct, frozen=True):
    """The operator ends a branch in doubt, if there is one."""

    at: float
    outcome: Outcome


class Workload(msgspec.Struct, frozen=True):
    publishers: int
    keepers: int
    subscribers: tuple[Habits, ...]
    groups: tuple[tuple[int, ...], ...]
    orders: tuple[Order, ...]
    resolutions: tuple[Resolution, ...] = ()

    @property
    def faulty_seconds(self) -> float:
        broken = any(habits.compensator_broken for habits in self.subscribers)
        return LONG_FAULTY_SECONDS if broken else FAULTY_SECONDS

    @property
    def sites(self) -> tuple[str, ...]:
        named = (("p", self.publishers), ("k", self.keepers), ("s", len(self.subscribers)))
        return tuple(f"{letter}{number}" for letter, count in named for number in range(count))


def draw(rng: random.Random) -> Workload:
    publishers, subscribers = rng.randint(2, 3), tuple(_habits(rng) for _ in range(rng.randint(4, 5)))
    numbers = range(len(subscribers))
    groups = tuple(tuple(sorted(rng.sample(numbers, rng.randint(1, 4)))) for _ in range(rng.randint(2, 3)))
    orders = tuple(_order(rng, number, publishers, groups) for number in range(rng.randint(14, 20)))
    resolutions = tuple(
        Resolution(rng.uniform(2.0, FAULTY_SECONDS), rng.choice(("commit", "abort")))
        for _ in range(rng.choice((0, 0, 0, 3)))
    )
    return Workload(publishers, rng.randint(1, 2), subscribers, groups, orders, resolutions)


def _habits(rng: random.Random) -> Habits:
    compensatable = rng.random() < 0.35
    return Habits(
        vital=rng.random() < 0.75,
        compensatable=compensatable,
        early_commit=compensatable and rng.random() < 0.5,
        handles=rng.choice((TYPES, TYPES, TYPES, ("Invitation",), ("Booked",))),
        defers=rng.random() < 0.15,
        joins=rng.choice((1.0, 0.9, 0.6)),
        publishes=rng.choice((0.0, 0.0, 0.0, 0.4)),
        handler_fails=rng.choice((0.0, 0.0, 0.0, 0.05)),
        sets_abort=rng.choice((0.0, 0.0, 0.0, 0.03)),
        prepare_fails=rng.choice((0.0, 0.0, 0.0, 0.05)),
        compensator_fails=rng.choice((0.0, 0.3, 0.6)),
        compensator_broken=compensatable and rng.random() < 0.1,
        forgetful=rng.random() < 0.4,
    )


def _order(rng: random.Random, number: int, publishers: int, groups: tuple[tuple[int, ...], ...]) -> Order:
    group = rng.randrange(len(groups)) if rng.random() < 0.55 else None
    at_least = rng.choice((1, 1, 2))
    own = rng.random() < 0.3
    return Order(
        number=number,
        publisher=rng.randrange(publishers),
        start=rng.uniform(0.0, 0.8 * FAULTY_SECONDS),
        group=group,
        at_least=at_least,
        at_most=rng.choice((None, 2, 3, 4)),
        events=rng.choice((0, 1, 1, 2, 3)),
        last=rng.random() < 0.4,
        own=own,
        own_fails=own and rng.random() < 0.1,
        child=rng.random() < 0.15,
        condition=rng.choice(("", "", "", "", "", "", "met", "broken")),
        ending=rng.choice(("commit",) * 14 + ("abort", "lost", "nothing")),
        timeout=rng.choice((0.0, 2.0, 10.0, 20.0)),
        patient=rng.random() < 0.8,
        deadline=rng.choice((8.0, 15.0, 25.0, 25.0)),
    )
