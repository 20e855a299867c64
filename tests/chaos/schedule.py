"""When who is killed: decided by the seed alone, in shares of the work done, so that it can be had again."""

from __future__ import annotations

import random
from typing import Final

import msgspec

from tests.chaos.workload import SUBSCRIBERS
from tutti.limits import LEASE_TTL_SECONDS

SERVER: Final = "server"
SERVER_SHARE: Final = 0.4
FIRST_SHARE: Final = 0.03  # everybody is at work by then
LAST_SHARE: Final = 0.97
RESTART_MAX_SECONDS: Final = 1.5  # how long a killed instance stays away at most
LONG_OUTAGE_SHARE: Final = 0.25  # of the server's kills
LONG_OUTAGE_SECONDS: Final = LEASE_TTL_SECONDS + 1.5  # leases run out meanwhile


class Kill(msgspec.Struct, frozen=True):
    """`at`: when this share of all events is acknowledged. `target`: the server, or an instance of a subscriber.
    `away`: how long it stays away at least: the driver starts the instance again, the supervisor the server."""

    at: float
    target: str
    away: float = 0.0

    @property
    def is_server(self) -> bool:
        return self.target == SERVER


def instances() -> list[str]:
    return [f"{plan.name}-{number}" for plan in SUBSCRIBERS for number in range(1, plan.instances + 1)]


def schedule(seed: int, count: int) -> list[Kill]:
    """`count` kills. The server and every instance have their turn, if there are turns enough."""
    chance = random.Random(seed)
    servers = max(1, round(count * SERVER_SHARE)) if count > 1 else count
    everybody = instances()
    chance.shuffle(everybody)
    targets = [SERVER] * servers + [everybody[number % len(everybody)] for number in range(count - servers)]
    chance.shuffle(targets)
    moments = sorted(chance.uniform(FIRST_SHARE, LAST_SHARE) for _ in targets)
    return [Kill(round(at, 4), target, _away(target, chance)) for at, target in zip(moments, targets, strict=True)]


def _away(target: str, chance: random.Random) -> float:
    if target == SERVER:
        return LONG_OUTAGE_SECONDS if chance.random() < LONG_OUTAGE_SHARE else 0.0
    return round(chance.uniform(0, RESTART_MAX_SECONDS), 2)
