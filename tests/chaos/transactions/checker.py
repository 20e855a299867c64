"""Was every promise kept? Looks at the evidence of a run; what it cannot explain is a fault, said in a sentence.

1. *All or nothing*: a transaction stands in both banks, in receipts, and in the publisher's orders if it has one; or in
   none of them. A receipt of an aborted one was voided. Nothing stands anywhere twice.
2. *One truth*: what stands in the banks is what the journal says.
3. *Acknowledged commits are there, acknowledged aborts are not*, by what publishers were told and wrote down.
4. *Money*: the total of all balances is what it was, and the entries of every transaction add up to nothing.
5. *Everything ended*, soon after the last fault: no prepared branch, no open row in a participant's log, nothing
   unfinished or unsent in the journal, no compensation that waits for an operator.
6. *It is not for nothing*: at least `COMMITTED_MIN_RATIO` of the transactions committed, and as many as were asked for
   were tried.
7. No process that crashed, no lost task, no error in a log, no process left behind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from tests.chaos.transactions.evidence import Evidence
from tests.chaos.transactions.workload import ACCOUNTS_COUNT, BANKS, NORTH, OPENING_BALANCE, ORDERS, SOUTH, Told, Tried

COMMITTED_MIN_RATIO: Final = 0.3
QUIET_MAX_SECONDS: Final = 30.0  # a transaction's deadline and two leases
SHOWN_MAX_COUNT: Final = 5


class Verdict(msgspec.Struct):
    faults: list[str]
    begun: int  # transactions
    committed: int
    aborted: int
    told: dict[str, int]  # what publishers were told, by word
    compensated: int  # transactions that receipts had committed and undid

    @property
    def ok(self) -> bool:
        return not self.faults


def check(evidence: Evidence) -> Verdict:
    begun = {word.tx for word in evidence.said if isinstance(word, Tried) and word.tx}
    there = {entry.tx for entry in evidence.found.entries[NORTH]}
    told = Counter(word.word for word in evidence.said if isinstance(word, Told))
    verdict = Verdict(
        [], len(begun), len(there), len(begun - there), dict(told), len({e.tx for e in evidence.found.voided})
    )
    for faults in (
        _agreement(evidence),
        _receipts(evidence),
        _truth(evidence),
        _acknowledged(evidence),
        _money(evidence),
        _ended(evidence),
        _worth(evidence, verdict),
        _processes(evidence),
    ):
        verdict.faults += _some(faults)
    return verdict


# All or nothing


def _agreement(evidence: Evidence) -> Iterator[str]:
    north, south, orders = (
        Counter(entry.tx for entry in evidence.found.entries[name]) for name in (NORTH, SOUTH, ORDERS)
    )
    for tx in north.keys() | south.keys():
        if north[tx] != south[tx]:
            yield f"{tx} is half done: {north[tx]} times in {NORTH}, {south[tx]} times in {SOUTH}"
    for name, counts in ((NORTH, north), (SOUTH, south), (ORDERS, orders)):
        yield from (f"{tx} was done {count} times in {name}" for tx, count in counts.items() if count > 1)
    yield from (f"{tx} is in {ORDERS}, but not in the banks" for tx in orders.keys() - north.keys())
    for tx in evidence.owned & north.keys() - orders.keys():
        yield f"{tx} is in the banks, but not in {ORDERS}"


def _receipts(evidence: Evidence) -> Iterator[str]:
    committed = {entry.tx for entry in evidence.found.entries[NORTH]}
    written = Counter((entry.tx, entry.kind) for entry in evidence.found.receipts)
    voided = Counter((entry.tx, entry.kind) for entry in evidence.found.voided)
    yield from (f"{tx}: {n} receipts for one {kind}" for (tx, kind), n in written.items() if n > 1)
    yield from (f"{tx}: its {kind} was voided {n} times" for (tx, kind), n in voided.items() if n > 1)
    for (tx, kind), n in written.items():
        if tx in committed and voided[tx, kind]:
            yield f"{tx} committed, but its receipt for the {kind} was voided"
        if tx not in committed and n > voided[tx, kind]:
            yield f"{tx} did not commit, but its receipt for the {kind} stands"
    yield from (f"{tx}: a {kind} without receipt was voided" for tx, kind in voided.keys() - written.keys())
    yield from (f"{tx} committed without a receipt" for tx in committed - {tx for tx, _ in written})


# One truth


def _truth(evidence: Evidence) -> Iterator[str]:
    for bank in BANKS:
        for tx in {entry.tx for entry in evidence.found.entries[bank]}:
            if evidence.found.outcomes.get(tx) != "commit":
                yield f"{tx} stands in {bank}; the journal says {evidence.found.outcomes.get(tx, 'nothing')}"
        missing = {tx for tx, outcome in evidence.found.outcomes.items() if outcome == "commit"}
        missing -= {entry.tx for entry in evidence.found.entries[bank]}
        yield from (f"{tx} committed in the journal and is not in {bank}" for tx in missing)


def _acknowledged(evidence: Evidence) -> Iterator[str]:
    there = {entry.key for entry in evidence.found.entries[NORTH]} & {
        entry.key for entry in evidence.found.entries[SOUTH]
    }
    anywhere = {entry.key for rows in evidence.found.entries.values() for entry in rows}
    for word in evidence.said:
        if not isinstance(word, Told):
            continue
        if word.word == "committed" and word.key not in there:
            yield f"{word.key} ({word.tx}) was acknowledged as committed and is not there"
        if word.word in {"aborted", "failed"} and word.key in anywhere:
            yield f"{word.key} ({word.tx}) was acknowledged as {word.word} and is there: {word.why}"


def _money(evidence: Evidence) -> Iterator[str]:
    before = len(BANKS) * ACCOUNTS_COUNT * OPENING_BALANCE
    if evidence.found.total != before:
        yield f"the banks held {before:,} and hold {evidence.found.total:,}"
    entered = sum(entry.amount for bank in BANKS for entry in evidence.found.entries[bank])
    if entered:
        yield f"the entries of both banks add up to {entered:,}"


# Everything ended


def _ended(evidence: Evidence) -> Iterator[str]:
    yield from (f"a prepared branch is left: {gid}" for gid in evidence.found.prepared)
    yield from (f"unfinished in the journal: {tx}" for tx in evidence.found.unfinished)
    yield from (f"open in a participant's log: {row}" for row in evidence.found.open_rows)
    yield from (f"waits for an operator: {row}" for row in evidence.found.parked)
    if evidence.found.unsent:
        yield f"{evidence.found.unsent} statuses were not sent"
    if evidence.quiet_seconds > QUIET_MAX_SECONDS:
        yield f"everything had ended only {evidence.quiet_seconds:.0f} s after the last fault"


def _worth(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    if verdict.begun < evidence.wanted:
        yield f"{verdict.begun} transactions began; {evidence.wanted} were wanted"
    if verdict.committed < COMMITTED_MIN_RATIO * verdict.begun:
        yield f"only {verdict.committed} of {verdict.begun} transactions committed"


def _processes(evidence: Evidence) -> Iterator[str]:
    yield from evidence.crashed
    yield from (f"left behind: {left}" for left in evidence.left)
    for leaving in evidence.leaving:
        yield from (f"{leaving.run}: a task of the bus failed: {broken}" for broken in leaving.broken)
    yield from (f"error in a log ({c.logger}): {c.text}" for c in evidence.complaints if c.level == "ERROR")


def _some(faults: Iterable[str]) -> list[str]:
    found = sorted(faults)
    more = len(found) - SHOWN_MAX_COUNT
    return found[:SHOWN_MAX_COUNT] + ([f"… and {more} more of the kind"] if more > 0 else [])
