"""Is what an operator did on his own shown? Nothing that he did not do, and with the decision beside it once that is
known. (That he is excused only if it is shown is up to the other checkers.)"""

from __future__ import annotations

from collections.abc import Iterator

from tutti.simulation.checkers.invariant import Invariant, Objections
from tutti.simulation.facts import HeuristicShown
from tutti.simulation.ledger import Ledger


def _observe(ledger: Ledger, fact: HeuristicShown) -> Objections:
    if fact.place not in ledger.resolved:
        yield f"a heuristic outcome of {ledger.who(fact.place)} is shown, and nobody resolved anything"


def _conclude(ledger: Ledger) -> Iterator[tuple[str, str]]:
    for place, shown in ledger.heuristics.items():
        tx, finished = ledger.joined[place].tx, shown[0].finished
        decided = ledger.outcome_for(tx, place)
        compared = any(h.decided == decided for h in shown if h.decided is not None)
        if decided is not None and decided != finished and not compared:
            yield (
                tx,
                f"{ledger.who(place)} was resolved to {finished}, the row says {decided}, and nobody compared them",
            )
        if finished == "abort" and (ledger.applied.get(place) or ledger.committed.get(place)):
            yield tx, f"{ledger.who(place)} was resolved to abort, and its work is there"


INVARIANT = Invariant(
    "heuristics",
    "what an operator resolved is carried out, compared with the decision, and never invented",
    (HeuristicShown,),
    _observe,
    _conclude,
)
