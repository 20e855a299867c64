"""Does everybody reach the outcome of the row? Who is left out, and who never took part, is undone. The one exception
is what an operator resolved."""

from __future__ import annotations

from collections.abc import Iterator

from tutti.simulation.checkers.invariant import Invariant, Objections
from tutti.simulation.facts import Committed, RolledBack, Undone
from tutti.simulation.ledger import Ledger


def _observe(ledger: Ledger, fact: Committed | RolledBack | Undone) -> Objections:
    if ledger.excused(fact.place):
        return
    outcome, who = ledger.outcome_for(fact.tx, fact.place), ledger.who(fact.place)
    if isinstance(fact, Committed) and outcome != "commit":
        yield f"{who} commits, and the row says {outcome or 'nothing yet'}"
    if not isinstance(fact, Committed) and outcome == "commit" and _needed(ledger, fact):
        yield f"{who} undoes its work, and the row says commit"


def _needed(ledger: Ledger, fact: RolledBack | Undone) -> bool:
    """A branch that was prepared for a vote that never left belongs to no outcome."""
    logged = ledger.logs.get(fact.place)
    own = fact.place.startswith("own:")
    return own or isinstance(fact, Undone) or (logged is not None and fact.round in logged.branches)


def _conclude(ledger: Ledger) -> Iterator[tuple[str, str]]:
    for tx, record in ledger.records.items():
        for place in record.members:
            if ledger.excused(place):
                continue
            outcome = ledger.outcome_for(tx, place)
            if outcome == "abort" and (ledger.applied.get(place) or ledger.committed.get(place)):
                yield tx, f"{ledger.who(place)} kept its work, and the row says abort"
    for place, rows in ledger.applied.items():
        joined = ledger.joined[place]
        listed = joined.tx in ledger.records and place in ledger.records[joined.tx].members
        if rows and not ledger.excused(place) and not listed:
            yield joined.tx, f"{joined.site} kept work in a transaction of which it is no member"


INVARIANT = Invariant(
    "agreement",
    "everybody who is not left out reaches the outcome of the row; who is left out is undone",
    (Committed, RolledBack, Undone),
    _observe,
    _conclude,
)
