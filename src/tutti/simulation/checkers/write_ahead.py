"""Is it on disk before it is said? The row before the decision, the own log before the yes."""

from __future__ import annotations

from tutti.model.messages import Decide, Vote
from tutti.simulation.checkers.invariant import Invariant, Objections
from tutti.simulation.facts import Sent
from tutti.simulation.ledger import Ledger


def _observe(ledger: Ledger, fact: Sent) -> Objections:
    match fact.message:
        case Decide() as decide:
            row = ledger.rows.get(fact.tx)
            if row is None:
                yield f"{fact.site} announces {decide.outcome} before there is a row"
            elif (row.outcome, row.excluded) != (decide.outcome, decide.excluded):
                yield f"{fact.site} announces {decide.outcome} without {decide.excluded}; the row is {row}"
        case Vote(value="yes") as vote:
            log = ledger.logs.get(vote.member)
            if log is None or log.state == "working" or (log.epoch, log.round) != (vote.epoch, vote.round):
                yield f"{fact.site} votes yes in round {vote.round}, and its log says {log.state if log else 'nothing'}"
        case _:
            pass


INVARIANT = Invariant(
    "write-ahead",
    "no decision leaves before its row is durable, and no yes before the own log is",
    (Sent,),
    _observe,
)
