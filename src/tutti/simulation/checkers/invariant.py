"""The form of a checker: a name, the rule in words, and what it says to a fact, and at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tutti.simulation.facts import Fact
from tutti.simulation.ledger import Ledger

Objections = Iterator[str]


class Violation(Exception):
    """The rule of this invariant does not hold."""

    def __init__(self, invariant: str, tx: str, objection: str) -> None:
        super().__init__(f"{invariant}: {objection}")
        self.invariant, self.tx, self.objection = invariant, tx, objection


def no_objection(ledger: Ledger) -> Iterator[tuple[str, str]]:
    """For invariants that have nothing to say at the end."""
    del ledger
    yield from ()


class Invariant(NamedTuple):
    """`observe(ledger, fact)` yields what is wrong with the fact, beside what stood before; `conclude(ledger)` (tx,
    what is wrong) when everything has come to rest. `watches`: the kinds of facts that it looks at."""

    name: str
    rule: str
    watches: tuple[type[Fact], ...]
    observe: Callable[[Ledger, Any], Objections]
    conclude: Callable[[Ledger], Iterator[tuple[str, str]]] = no_objection
