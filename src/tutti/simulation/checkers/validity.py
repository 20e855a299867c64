"""Is a commit allowed? Only if everybody who is not left out voted yes in this round, nobody vital is left out, enough
are left, every event, child, condition and own resource is done, and the publisher waits for it."""

from __future__ import annotations

from tutti.simulation.checkers.invariant import Invariant, Objections
from tutti.simulation.facts import Decided, Proposed
from tutti.simulation.ledger import Ledger


def _observe(ledger: Ledger, fact: Proposed | Decided) -> Objections:
    row = fact.decision
    if row.outcome == "abort":
        return
    if isinstance(fact, Proposed):
        if (fact.tx, row.epoch) not in ledger.proposed and not ledger.waiting.get(fact.tx):
            yield "commit is proposed, and nobody waits for one"
        return
    record = ledger.records[fact.tx]
    epoch, number = ledger.asked.get(fact.tx, (0, 0))
    if epoch != row.epoch:
        yield f"the row is of epoch {row.epoch}; the last prepare was of epoch {epoch}"
    for place in record.members:
        if place not in row.excluded and ledger.votes.get((place, (epoch, number))) != "yes":
            yield f"commit without a yes of {ledger.who(place)} in round {number}"
        if place in row.excluded and place in record.vital:
            yield f"commit without {ledger.who(place)}, which is vital"
    if len(record.members) - len(row.excluded) < ledger.ordered[fact.tx].minimum:
        yield "commit with too few members"
    if demands := ledger.demands.get(fact.tx):
        yield f"commit, and this is not done: {', '.join(sorted(demands))}"


INVARIANT = Invariant(
    "validity",
    "commit only with a yes of everybody who is not left out, with every requirement met, while somebody waits for it",
    (Proposed, Decided),
    _observe,
)
