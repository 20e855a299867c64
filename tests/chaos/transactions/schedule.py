"""Who is killed in which phase, in which order: decided by the seed alone.

Every role dies once in every phase of a transaction, in an order that the seed draws; PostgreSQL once, in the middle.
Further kills are drawn from all of them. Some come in pairs: the second one strikes while the first is being made good.
"""

from __future__ import annotations

import random
from typing import Final

import msgspec

from tests.chaos.transactions.workload import NORTH, RECEIPTS, SOUTH

PUBLISHER, MANAGER, SERVER, POSTGRES = "publisher", "manager", "server", "postgres"
ROLES: Final = (NORTH, SOUTH, RECEIPTS, PUBLISHER, MANAGER, SERVER)
PHASES: Final = ("census", "work", "preparing", "voting", "deciding", "finishing", "compensating")

INSTANCES: Final[dict[str, tuple[str, ...]]] = {
    NORTH: ("north-1", "north-2"),  # two instances: the other one goes on
    SOUTH: ("south-1",),
    RECEIPTS: ("receipts-1",),
    PUBLISHER: ("publisher-1", "publisher-2", "visitor-1"),  # the visitor's transactions are managed by the service
    MANAGER: ("manager-1",),
}
SELF_MANAGING: Final = ("publisher-1", "publisher-2")
VISITORS: Final = ("visitor-1",)

AWAY_MAX_SECONDS: Final = 2.0
AFTER_MAX_SECONDS: Final = 0.03  # from the step to the kill; half of them strike at the step itself
PAIR_SHARE: Final = 0.3
LONG_OUTAGE_SHARE: Final = 0.25  # of the server's kills
LONG_OUTAGE_SECONDS: Final = 6.0  # longer than the lease of a manager

# What tells that a transaction is in a phase: the words of the account, of members and of managers.
MEMBER_STEPS: Final[dict[str, tuple[str, ...]]] = {
    "census": ("joined",),
    "work": ("handling", "handled"),
    "preparing": ("prepared", "committed"),
    "voting": ("voted",),
    "deciding": ("learned",),
    "finishing": ("finished", "undone"),
    "compensating": ("undoing", "undone"),
}
MANAGER_STEPS: Final[dict[str, tuple[str, ...]]] = {
    "census": ("invited",),
    "work": ("begun", "published"),
    "preparing": ("asked",),
    "voting": ("heard",),
    "deciding": ("proposed", "decided"),
    "finishing": ("announced", "ended"),
}


class Aim(msgspec.Struct, frozen=True):
    """`at`: when this share of all transactions is through. `role` dies when somebody is in `phase`, `after`
    seconds later, and stays away for `away`. `also` is killed as soon as the first is dead."""

    at: float
    role: str
    phase: str
    after: float = 0.0
    away: float = 0.0
    also: str = ""

    @property
    def name(self) -> str:
        return f"{self.role}-{self.phase}-{self.at:.4f}"


class Plan(msgspec.Struct, frozen=True):
    """One run. `seconds`: over which the transactions are spread."""

    seed: int
    transactions: int  # at least
    seconds: float
    aims: tuple[Aim, ...]


def schedule(seed: int, extra: int = 0) -> list[Aim]:
    """A kill for every role and phase, `extra` more, and PostgreSQL."""
    chance = random.Random(seed)
    cells = [(role, phase) for role in ROLES for phase in PHASES]
    chance.shuffle(cells)
    cells += [(chance.choice(ROLES), chance.choice(PHASES)) for _ in range(extra)]
    cells.insert(len(cells) // 2, (POSTGRES, chance.choice(PHASES)))
    step = 0.9 / len(cells)
    return [drawn(chance, 0.03 + number * step, role, phase) for number, (role, phase) in enumerate(cells)]


def drawn(chance: random.Random, at: float, role: str, phase: str) -> Aim:
    after = round(chance.uniform(0, AFTER_MAX_SECONDS), 4) if chance.random() < 0.5 else 0.0
    away = round(chance.uniform(0, AWAY_MAX_SECONDS), 2)
    if role == SERVER:
        away = LONG_OUTAGE_SECONDS if chance.random() < LONG_OUTAGE_SHARE else 0.0
    others = [other for other in INSTANCES if other != role]
    also = chance.choice(others) if chance.random() < PAIR_SHARE else ""
    return Aim(round(at, 4), role, phase, after, away, also)
