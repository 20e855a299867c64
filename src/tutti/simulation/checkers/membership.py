"""Who counts? Only who joined, or is in the group, with its own key; and only what it said itself."""

from __future__ import annotations

from tutti.simulation.checkers.invariant import Invariant, Objections
from tutti.simulation.facts import Decided, EndRecorded, Registered
from tutti.simulation.ledger import Ledger


def _observe(ledger: Ledger, fact: Registered | Decided | EndRecorded) -> Objections:
    match fact:
        case Registered(record=record):
            for place, key in zip(record.members, record.keys, strict=True):
                joined = ledger.joined.get(place)
                if joined is None or joined.tx != fact.tx or joined.key != key:
                    yield f"{place} is on the list, and nobody joined under that name with that key"
            if ledger.ordered[fact.tx].members and len(record.members) != len(ledger.ordered[fact.tx].members):
                yield "the list is not that of the group"
            if len(record.members) < ledger.ordered[fact.tx].minimum:
                yield "the work begins with too few members"
            if len(set(record.members)) < len(record.members):
                yield "somebody is on the list twice"
            most = ledger.ordered[fact.tx].maximum
            if most is not None and len(record.members) > most:
                yield f"the work begins with {len(record.members)} members, and {most} were to be accepted"
        case Decided(decision=row):
            if strangers := set(row.excluded) - set(ledger.records[fact.tx].members):
                yield f"{sorted(strangers)} are left out, and were no members"
        case EndRecorded():
            if fact.member not in ledger.ends:
                yield f"the end of {ledger.who(fact.member)} is written down, and it has not said so"


INVARIANT = Invariant(
    "membership",
    "nobody outside the member list is counted, and nobody can speak for another",
    (Registered, Decided, EndRecorded),
    _observe,
)
