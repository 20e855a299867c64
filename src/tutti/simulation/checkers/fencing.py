"""Is there one manager? Epochs grow by one, a row is of the newest, and who was told that there is a newer one is
silent."""

from __future__ import annotations

from tutti.model.messages import MANAGER, Begin, Close, Decide, Prepare
from tutti.simulation.checkers.invariant import Invariant, Objections
from tutti.simulation.facts import Decided, Sent, TakenOver
from tutti.simulation.ledger import Ledger


def _observe(ledger: Ledger, fact: TakenOver | Decided | Sent) -> Objections:
    match fact:
        case TakenOver():
            if fact.epoch != ledger.epochs[fact.tx] + 1:
                yield f"epoch {fact.epoch} follows {ledger.epochs[fact.tx]}"
        case Decided(decision=row):
            if row.epoch != ledger.epochs[fact.tx]:
                yield f"a manager of epoch {row.epoch} decides in epoch {ledger.epochs[fact.tx]}"
        case Sent(message=Begin() | Close() | Prepare() | Decide() as message) if fact.signer == MANAGER:
            if (fact.tx, fact.site, message.epoch) in ledger.fenced and not isinstance(message, Decide):
                yield f"{fact.site} was fenced, and still speaks"
        case _:
            pass


INVARIANT = Invariant(
    "fencing",
    "an older manager decides nothing, and is silent once it knows",
    (TakenOver, Decided, Sent),
    _observe,
)
