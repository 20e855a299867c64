"""Does everything end? When the faults have stopped: every transaction that was registered is decided and finished, and
no branch is left prepared."""

from __future__ import annotations

from collections.abc import Iterator

from tutti.simulation.checkers.invariant import Invariant, Objections
from tutti.simulation.facts import Fact
from tutti.simulation.ledger import Ledger


def _observe(ledger: Ledger, fact: Fact) -> Objections:
    del ledger, fact
    yield from ()


def _conclude(ledger: Ledger) -> Iterator[tuple[str, str]]:
    for tx in ledger.records:
        if tx not in ledger.rows:
            yield tx, "nobody decided it"
        elif tx not in ledger.finished:
            waits = [ledger.who(m) for m in ledger.records[tx].members if (tx, m) not in ledger.end_rows]
            yield tx, f"it was decided and never finished; these have not ended: {', '.join(waits) or 'none'}"
    for place, rounds in ledger.prepared.items():
        if rounds:
            tx = place.removeprefix("own:") if place.startswith("own:") else ledger.joined[place].tx
            yield tx, f"{ledger.who(place)} has prepared branches left"
    for place, record in ledger.logs.items():
        if record.state in {"working", "voted"}:
            yield record.tx, f"the log of {ledger.who(place)} still says {record.state}"


INVARIANT = Invariant(
    "liveness",
    "after the faults stop every transaction ends, and no branch stays prepared",
    (),
    _observe,
    _conclude,
)
