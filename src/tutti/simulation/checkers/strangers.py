"""Do strangers move anything? A machine that hears what nobody with a right to it has signed stays as it was, and does
nothing."""

from __future__ import annotations

from tutti.simulation.checkers.invariant import Invariant, Objections
from tutti.simulation.facts import Stirred
from tutti.simulation.ledger import Ledger


def _observe(ledger: Ledger, fact: Stirred) -> Objections:
    del ledger
    done = f"does {', '.join(fact.effects)}" if fact.effects else "is in another state"
    yield f"{fact.site} {done} because of a {fact.message} that {fact.signer or 'nobody'} signed"


INVARIANT = Invariant(
    "strangers",
    "what strangers say changes nothing",
    (Stirred,),
    _observe,
)
