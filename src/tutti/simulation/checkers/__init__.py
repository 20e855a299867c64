"""What must hold, one invariant a file. They see facts only; `Judge` shows each fact to those that watch its kind."""

from __future__ import annotations

from typing import Final

from tutti.simulation.checkers import (
    agreement,
    answers,
    compensation,
    counting,
    ending,
    exactly_once,
    fencing,
    heuristics,
    liveness,
    membership,
    stability,
    strangers,
    validity,
    write_ahead,
)
from tutti.simulation.checkers.invariant import Invariant, Objections, Violation
from tutti.simulation.facts import Fact
from tutti.simulation.ledger import Ledger

INVARIANTS: Final[tuple[Invariant, ...]] = (
    agreement.INVARIANT,
    validity.INVARIANT,
    stability.INVARIANT,
    write_ahead.INVARIANT,
    exactly_once.INVARIANT,
    compensation.INVARIANT,
    membership.INVARIANT,
    strangers.INVARIANT,
    fencing.INVARIANT,
    counting.INVARIANT,
    ending.INVARIANT,
    answers.INVARIANT,
    heuristics.INVARIANT,
    liveness.INVARIANT,
)
_WATCHERS: Final[dict[type, tuple[Invariant, ...]]] = {
    kind: tuple(i for i in INVARIANTS if kind in i.watches) for i in INVARIANTS for kind in i.watches
}


class Judge:
    """Raises `Violation` for the first fact that breaks a rule."""

    def __init__(self) -> None:
        self.ledger = Ledger()

    def observe(self, fact: Fact) -> None:
        for invariant in _WATCHERS.get(type(fact), ()):
            for objection in invariant.observe(self.ledger, fact):
                raise Violation(invariant.name, fact.tx, objection)
        self.ledger.enter(fact)

    def conclude(self) -> None:
        """Everything has come to rest."""
        for invariant in INVARIANTS:
            for tx, objection in invariant.conclude(self.ledger):
                raise Violation(invariant.name, tx, objection)


__all__ = ["INVARIANTS", "Invariant", "Judge", "Objections", "Violation"]
