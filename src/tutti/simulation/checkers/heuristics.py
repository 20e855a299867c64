"""Is what an operator did on his own shown? Everything that he resolved, nothing that he did not, and with the decision
beside it once that is known."""

from __future__ import annotations

from collections.abc import Iterator

from tutti.simulation.checkers.invariant import Invariant, Objections
from tutti.simulation.facts import Committed, HeuristicShown, RolledBack, Undone
from tutti.simulation.ledger import Ledger


def _observe(ledger: Ledger, fact: HeuristicShown | Committed | RolledBack | Undone) -> Objections:
    who = ledger.who(fact.place)
    if isinstance(fact, HeuristicShown):
        if fact.place not in ledger.resolved:
            yield f"a heuristic outcome of {who} is shown, and nobody resolved anything"
    elif fact.place in ledger.resolved and fact.place not in ledger.heuristics:
        yield f"{who} ends what an operator resolved, and that is not written down"


def _conclude(ledger: Ledger) -> Iterator[tuple[str, str]]:
    for place in ledger.resolved:
        tx, decided = ledger.joined[place].tx, ledger.outcome_for(ledger.joined[place].tx, place)
        kept = bool(ledger.applied.get(place) or ledger.committed.get(place))
        shown = ledger.heuristics.get(place, [])
        if not shown:
            yield tx, f"{ledger.who(place)} was resolved by an operator, and nothing shows it"
        elif kept and decided == "abort" and not any((h.finished, h.decided) == ("commit", "abort") for h in shown):
            yield tx, f"{ledger.who(place)} kept its work against the row, and the heuristic does not say so"


INVARIANT = Invariant(
    "heuristics",
    "what an operator resolved is written down first, compared with the decision, and never invented",
    (HeuristicShown, Committed, RolledBack, Undone),
    _observe,
    _conclude,
)
