"""Is it undone in order? Only what was done, once, the last first; and nothing is done after it was undone."""

from __future__ import annotations

from tutti.simulation.checkers.invariant import Invariant, Objections
from tutti.simulation.facts import Applied, Undone
from tutti.simulation.ledger import Ledger


def _observe(ledger: Ledger, fact: Applied | Undone) -> Objections:
    event, who = fact.event, ledger.who(fact.place)
    undone = event in ledger.undone.get(fact.place, ())
    if isinstance(fact, Applied):
        if undone:
            yield f"{who} does {event.type} {event.number} after it was undone"
        return
    rows = ledger.applied.get(fact.place, [])
    if undone:
        yield f"{who} undoes {event.type} {event.number} twice"
    elif event not in rows:
        yield f"{who} undoes {event.type} {event.number}, which it never did"
    elif event != rows[-1]:
        yield f"{who} undoes {event.type} {event.number} before {rows[-1].type} {rows[-1].number}, which came later"


INVARIANT = Invariant(
    "compensation",
    "compensation runs only for what was done, once, in reverse order",
    (Applied, Undone),
    _observe,
)
