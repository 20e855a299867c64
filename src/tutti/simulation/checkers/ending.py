"""Is the end reported only when it has come? And is the transaction finished only when every branch is?"""

from __future__ import annotations

from tutti.model.messages import Ended
from tutti.simulation.checkers.invariant import Invariant, Objections
from tutti.simulation.facts import Finished, Sent
from tutti.simulation.ledger import Ledger


def _observe(ledger: Ledger, fact: Sent | Finished) -> Objections:
    match fact:
        case Sent(message=Ended(state="ended" | "heuristic") as ended):
            place, who = ended.member, fact.site
            if ledger.prepared.get(place):
                yield f"{who} reports its end, and a branch of it is still prepared"
            if ended.outcome == "abort" and (ledger.applied.get(place) or ledger.committed.get(place)):
                yield f"{who} reports that it is undone, and its work is there"
            if ended.outcome == "commit" and ledger.rows.get(fact.tx) is None and not ledger.excused(place):
                yield f"{who} reports a commit without a row"
        case Finished():
            row = ledger.rows.get(fact.tx)
            for place in ledger.records[fact.tx].members:
                if row is None or (row.outcome_for(place) == "commit" and place not in ledger.ends):
                    yield f"finished, and {ledger.who(place)} has not ended"
            if ledger.prepared.get(f"own:{fact.tx}") and fact.tx in ledger.rows and ledger.epochs[fact.tx] == 1:
                yield "finished, and the publisher's own branch is still prepared"
        case _:
            pass


INVARIANT = Invariant(
    "ending",
    "the end is reported when the work is finished, and not before",
    (Sent, Finished),
    _observe,
)
