"""Does what was said stay so? A row, a vote of a round, an answer; and who voted yes waits for the decision."""

from __future__ import annotations

from tutti.model.messages import Vote
from tutti.simulation.checkers.invariant import Invariant, Objections
from tutti.simulation.facts import Decided, RolledBack, Sent, Undone
from tutti.simulation.ledger import Ledger


def _observe(ledger: Ledger, fact: Decided | Sent | RolledBack | Undone) -> Objections:
    match fact:
        case Decided():
            if fact.tx in ledger.rows:
                yield "a second row was written"
        case Sent(message=Vote(value="yes" | "no") as vote):
            before = ledger.votes.get((vote.member, (vote.epoch, vote.round)), vote.value)
            if before != vote.value:
                yield f"{fact.site} voted {before} in round {vote.round}, and then {vote.value}"
        case RolledBack() | Undone():
            alone = ledger.outcome_for(fact.tx, fact.place) is None and not ledger.excused(fact.place)
            if alone and ledger.bound(fact.tx, fact.place):
                yield f"{ledger.who(fact.place)} voted yes and undoes its work without a decision"
        case _:
            pass


INVARIANT = Invariant(
    "stability",
    "a row and a vote never change; after a yes only a decision ends it",
    (Decided, Sent, RolledBack, Undone),
    _observe,
)
