"""Does every effect happen once, and only if it may? In the end a committed member shows exactly the events that were
counted, each once; nobody else shows anything."""

from __future__ import annotations

from collections.abc import Iterator

from tutti.model.transaction import Consumed
from tutti.simulation.checkers.invariant import Invariant, Objections
from tutti.simulation.facts import Applied
from tutti.simulation.ledger import Ledger


def _observe(ledger: Ledger, fact: Applied) -> Objections:
    event, who = fact.event, ledger.who(fact.place)
    if event in ledger.applied.get(fact.place, ()):
        yield f"the work of {who} for {event.type} {event.number} is done twice"
    if not fact.prepared and not ledger.joined[fact.place].compensatable:
        yield f"{who} shows work that cannot be undone before the decision"


def _conclude(ledger: Ledger) -> Iterator[tuple[str, str]]:
    for tx, row in ledger.rows.items():
        for place in ledger.records[tx].members:
            if row.outcome_for(place) == "commit" and not ledger.excused(place):
                shown, wanted = {_key(event) for event in ledger.applied.get(place, ())}, _wanted(ledger, tx, place)
                if shown != wanted:
                    lost, more = sorted(wanted - shown), sorted(shown - wanted)
                    yield tx, f"{ledger.who(place)} committed; it lacks {lost}, and has {more} too many"


def _wanted(ledger: Ledger, tx: str, place: str) -> set[tuple[str, str, int]]:
    row, handles = ledger.rows[tx], ledger.joined[place].handles
    asked = max(number for about, number in ledger.prepares if about == tx and number[0] == row.epoch)
    counts = ledger.prepares[tx, asked].counts
    return {
        (publisher, event_type, number)
        for publisher, types in counts.items()
        for event_type, count in types.items()
        if event_type in handles
        for number in range(1, count + 1)
    }


def _key(event: Consumed) -> tuple[str, str, int]:
    return event.publisher, event.type, event.number


INVARIANT = Invariant(
    "exactly once",
    "every effect happens once, and only if its transaction commits",
    (Applied,),
    _observe,
    _conclude,
)
