"""Is the publisher told the truth? Once for each request; committed only if the row says so, and never two things."""

from __future__ import annotations

from tutti.control.transaction.messages import Aborted, Committed
from tutti.simulation.checkers.invariant import Invariant, Objections
from tutti.simulation.facts import Answered
from tutti.simulation.ledger import Ledger


def _observe(ledger: Ledger, fact: Answered) -> Objections:
    row = ledger.rows.get(fact.tx)
    if (fact.tx, fact.request) in ledger.answers:
        yield f"request {fact.request} is answered twice"
    if isinstance(fact.answer, Committed) and (row is None or row.outcome != "commit"):
        yield f"the publisher hears committed, and the row says {row.outcome if row else 'nothing yet'}"
    if isinstance(fact.answer, Aborted) and (row.outcome != "abort" if row else fact.tx not in ledger.never_began):
        yield f"the publisher hears aborted, and the row says {row.outcome if row else 'nothing yet'}"


INVARIANT = Invariant(
    "answers",
    "each request is answered once, with what stands",
    (Answered,),
    _observe,
)
