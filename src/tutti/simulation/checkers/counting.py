"""Is everything counted? A commit rests on a prepare that counts exactly what everybody who is not left out has
published."""

from __future__ import annotations

from tutti.model.transaction import PUBLISHER, Counts
from tutti.simulation.checkers.invariant import Invariant, Objections
from tutti.simulation.facts import Decided
from tutti.simulation.ledger import Ledger


def _observe(ledger: Ledger, fact: Decided) -> Objections:
    row = fact.decision
    prepare = ledger.prepares.get((fact.tx, ledger.asked.get(fact.tx, (0, 0))))
    if row.outcome == "abort" or prepare is None:
        return
    there = {PUBLISHER, *ledger.records[fact.tx].members} - set(row.excluded)
    counted, stored = _of(prepare.counts, there), _of(ledger.stored.get(fact.tx, {}), there)
    if counted != stored:
        yield f"counted are {counted}, and published were {stored}"


def _of(counts: Counts, publishers: set[str]) -> Counts:
    return {
        name: {t: n for t, n in sorted(types.items()) if n}
        for name, types in counts.items()
        if name in publishers and any(types.values())
    }


INVARIANT = Invariant(
    "counting",
    "a commit counts every event that was published in the transaction",
    (Decided,),
    _observe,
)
