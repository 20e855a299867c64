"""What a run leaves behind: everything that the checker looks at, and nothing else."""

from __future__ import annotations

import msgspec

from tests.chaos.evidence import Complaint
from tests.chaos.transactions.aftermath import Found
from tests.chaos.transactions.trap import Step
from tests.chaos.transactions.workload import Leaving, Said


class Killed(msgspec.Struct, frozen=True):
    """One process, or a server. `tx`: the transaction whose step it was; `back`: when it was at work again. `aim` is
    empty for the second of a pair, which is aimed at no phase."""

    role: str
    phase: str
    time: float
    back: float
    aim: str
    tx: str = ""
    step: str = ""


class Evidence(msgspec.Struct, frozen=True):
    wanted: int  # transactions, at least
    seconds: float  # from the first transaction to the last
    quiet_seconds: float  # from then until everything had ended
    said: list[Said]
    owned: frozenset[str]  # transactions in which the publisher keeps an order
    steps: list[Step]
    kills: list[Killed]
    missed: list[str]  # aims that found no occasion
    found: Found
    leaving: list[Leaving]
    complaints: list[Complaint]
    crashed: list[str]
    left: list[str]  # processes that are still there
