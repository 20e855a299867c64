"""What goes wrong: data. A seed draws its own subset; a failure prints it, and it can be given again.

Chances are per message, write or effect. Sites are named as in `workloads`: p0… (publishers), k0… (keepers: managers as
a service), s0… (subscribers), and the journal."""

from __future__ import annotations

import random
from typing import Final, Literal

import msgspec

from tutti.control.participation import messages as p
from tutti.control.transaction import messages as t
from tutti.model.messages import Send, WakeAt

JOURNAL: Final = "journal"
Role = Literal["manager", "successor", "member"]


class Partition(msgspec.Struct, frozen=True):
    """`apart` do not reach the others; nor the others them, unless it is one-way."""

    start: float
    end: float
    apart: tuple[str, ...]
    one_way: bool = False


class Pause(msgspec.Struct, frozen=True):
    """The process stands still (SIGSTOP) and goes on as if nothing had happened."""

    start: float
    end: float
    site: str


class Jump(msgspec.Struct, frozen=True):
    """The site's clock is set."""

    at: float
    site: str
    by: float


class Crash(msgspec.Struct, frozen=True):
    """The process dies at this effect, the `skip`-th time; `down` seconds later it is started again."""

    role: Role
    effect: str
    when: Literal["before", "after"]
    skip: int
    down: float

    @property
    def point(self) -> str:
        return f"crash of a {self.role} {self.when} {self.effect}"


class Outage(msgspec.Struct, frozen=True):
    """The site dies at this moment, whatever it does."""

    at: float
    site: str
    down: float


class Faults(msgspec.Struct, frozen=True, omit_defaults=True):
    """Without arguments: none."""

    loss: float = 0.0
    duplication: float = 0.0
    delay: float = 0.0
    reordering: bool = False
    partitions: tuple[Partition, ...] = ()
    pauses: tuple[Pause, ...] = ()
    jumps: tuple[Jump, ...] = ()
    crashes: tuple[Crash, ...] = ()
    outages: tuple[Outage, ...] = ()
    journal_unreachable: float = 0.0
    answer_lost: float = 0.0
    append_lost: float = 0.0
    append_refused: float = 0.0
    ack_lost: float = 0.0
    log_fails: float = 0.0
    finish_fails: float = 0.0
    forgery: float = 0.0
    replay: float = 0.0


MANAGER_EFFECTS: Final = (
    Send,
    WakeAt,
    t.Register,
    t.Opened,
    t.CensusFailed,
    t.Publish,
    t.PrepareOwn,
    t.FinishOwn,
    t.DecideInJournal,
    t.QueueStatus,
    t.Answer,
    t.RecordEnded,
    t.Finished,
)
SUCCESSOR_EFFECTS: Final = (Send, WakeAt, t.FinishOwn, t.DecideInJournal, t.RecordEnded, t.Finished)
MEMBER_EFFECTS: Final = (
    Send,
    WakeAt,
    p.Handle,
    p.Fetch,
    p.Publish,
    p.PrepareResources,
    p.CommitWork,
    p.WriteLog,
    p.CommitResources,
    p.RollbackResources,
    p.RunCompensator,
    p.Park,
    p.CloseLog,
    p.RecordHeuristic,
    p.Forget,
)  # `Stuck` is not here: it needs a journal that has forgotten what it must not forget
EFFECTS: Final[dict[Role, tuple[type, ...]]] = {
    "manager": MANAGER_EFFECTS,
    "successor": SUCCESSOR_EFFECTS,
    "member": MEMBER_EFFECTS,
}
WHENS: Final[tuple[Literal["before", "after"], ...]] = ("before", "after")
TARGETS: Final = tuple(
    (role, kind.__name__, when) for role, kinds in EFFECTS.items() for kind in kinds for when in WHENS
)
# What few runs come to: without an effort a whole suite would not see a process die there.
RARE: Final = tuple(
    (role, effect, when)
    for role, effect, when in TARGETS
    if effect in {"Park", "RecordHeuristic", "QueueStatus"}
    or (role == "successor" and effect in {"FinishOwn", "Finished", "WakeAt"})
)
KINDS: Final = (
    "a message is lost",
    "a message comes twice",
    "a message is late",
    "a message overtakes another",
    "one-way partition",
    "full partition",
    "a process stands still",
    "a clock jumps ahead",
    "a clock jumps back",
    "the journal's clock jumps ahead",
    "the journal's clock jumps back",
    "the journal is unreachable",
    "the journal's answer is lost",
    "the journal crashes and loses its tail",
    "the journal crashes and keeps its tail",
    "outage of a publisher",
    "outage of a keeper",
    "outage of a subscriber",
    "an unfinished write of a member is lost in a crash",
    "an unfinished write of a member survives a crash",
    "an append is lost on its way",
    "an append is refused",
    "an append's acknowledgement is lost",
    "a member's log fails",
    "a branch cannot be finished right now",
    "a forged message to a manager",
    "a forged message to a member",
    "a replayed message",
)
POINTS: Final = (*KINDS, *(Crash(role, effect, when, 0, 0.0).point for role, effect, when in TARGETS))


def draw(rng: random.Random, sites: tuple[str, ...], until: float) -> Faults:
    """About half of all kinds, each in its own strength; never the same twice."""

    def some(*chances: float) -> float:
        return rng.choice(chances) if rng.random() < 0.5 else 0.0

    return Faults(
        loss=some(0.01, 0.05, 0.15),
        duplication=some(0.02, 0.1, 0.3),
        delay=some(0.01, 0.05, 0.15),
        reordering=rng.random() < 0.7,
        partitions=_partitions(rng, sites, until) if rng.random() < 0.4 else (),
        pauses=_pauses(rng, sites, until) if rng.random() < 0.4 else (),
        jumps=_jumps(rng, sites, until) if rng.random() < 0.35 else (),
        crashes=_crashes(rng) if rng.random() < 0.8 else (),
        outages=_outages(rng, sites, until) if rng.random() < 0.5 else (),
        journal_unreachable=some(0.02, 0.1),
        answer_lost=some(0.02, 0.1, 0.25),
        append_lost=some(0.05, 0.2),
        append_refused=some(0.01, 0.03),
        ack_lost=some(0.1, 0.4),
        log_fails=some(0.02, 0.1),
        finish_fails=some(0.1, 0.4),
        forgery=some(0.05, 0.2),
        replay=some(0.05, 0.2),
    )


def _partitions(rng: random.Random, sites: tuple[str, ...], until: float) -> tuple[Partition, ...]:
    found = []
    for _ in range(rng.randint(1, 3)):
        start = rng.uniform(0.0, until)
        apart = tuple(site for site in sites if rng.random() < 0.35) or (rng.choice(sites),)
        found.append(Partition(start, start + rng.uniform(1.0, 10.0), apart, rng.random() < 0.5))
    return tuple(found)


def _pauses(rng: random.Random, sites: tuple[str, ...], until: float) -> tuple[Pause, ...]:
    found = []
    for _ in range(rng.randint(1, 3)):
        start = rng.uniform(0.0, until)
        found.append(Pause(start, start + rng.uniform(0.5, 12.0), rng.choice(sites)))
    return tuple(found)


def _jumps(rng: random.Random, sites: tuple[str, ...], until: float) -> tuple[Jump, ...]:
    places = (*sites, JOURNAL, JOURNAL, JOURNAL)
    return tuple(
        Jump(rng.uniform(0.0, until), rng.choice(places), rng.choice((-8.0, -2.0, 2.0, 8.0, 15.0)))
        for _ in range(rng.randint(1, 3))
    )


def _crashes(rng: random.Random) -> tuple[Crash, ...]:
    usual = [
        Crash(role, effect, when, rng.choice((0, 0, 1, 2, 5)), rng.uniform(0.3, 8.0))
        for role, effect, when in rng.sample(TARGETS, rng.randint(1, 4))
    ]
    if rng.random() < 0.3:
        usual.append(Crash(*rng.choice(RARE), 0, rng.uniform(0.3, 8.0)))
    return tuple(usual)


def _outages(rng: random.Random, sites: tuple[str, ...], until: float) -> tuple[Outage, ...]:
    return tuple(
        Outage(rng.uniform(0.0, until), rng.choice((*sites, JOURNAL, JOURNAL)), rng.uniform(0.2, 8.0))
        for _ in range(rng.randint(1, 3))
    )
