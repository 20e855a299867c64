"""Every promise of the checker is broken here once, in evidence that is otherwise in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.chaos.evidence import Complaint
from tests.chaos.transactions.aftermath import Entered, Found
from tests.chaos.transactions.checker import QUIET_MAX_SECONDS, check
from tests.chaos.transactions.evidence import Evidence
from tests.chaos.transactions.workload import (
    ACCOUNTS_COUNT,
    NORTH,
    OPENING_BALANCE,
    ORDERS,
    SOUTH,
    Leaving,
    Said,
    Told,
    Tried,
)

TOTAL = 2 * ACCOUNTS_COUNT * OPENING_BALANCE


def in_order() -> Evidence:
    """One transfer that committed (with an order), and one that aborted and was compensated."""
    said: list[Said] = [
        Tried("p-1", 1.0),
        Tried("p-1", 1.1, "t1"),
        Told("p-1", "t1", "committed", 2.0),
        Tried("p-2", 3.0, "t2"),
        Told("p-2", "t2", "aborted", 4.0, "north does not like it"),
    ]
    found = Found(
        entries={
            NORTH: [Entered("p-1", "t1", -7)],
            SOUTH: [Entered("p-1", "t1", 7)],
            ORDERS: [Entered("p-1", "t1", 7)],
        },
        receipts=[Entered("p-1", "t1", kind="transfer"), Entered("p-2", "t2", kind="transfer")],
        voided=[Entered("p-2", "t2", kind="transfer")],
        total=TOTAL,
        prepared=[],
        outcomes={"t1": "commit", "t2": "abort"},
        unfinished=[],
        unsent=0,
        open_rows=[],
        parked=[],
        undecided_seconds=0.4,
    )
    return Evidence(
        wanted=2,
        seconds=10.0,
        quiet_seconds=1.0,
        said=said,
        owned=frozenset({"t1"}),
        steps=[],
        kills=[],
        missed=[],
        found=found,
        leaving=[],
        complaints=[],
        crashed=[],
        left=[],
    )


def changed(**what: Any) -> Callable[[Evidence], Evidence]:
    return lambda evidence: msgspec.structs.replace(evidence, **what)


def found(**what: Any) -> Callable[[Evidence], Evidence]:
    return lambda evidence: msgspec.structs.replace(evidence, found=msgspec.structs.replace(evidence.found, **what))


def entries(**what: list[Entered]) -> Callable[[Evidence], Evidence]:
    return lambda evidence: found(entries={**evidence.found.entries, **what})(evidence)


RECEIPT, OTHER = Entered("p-1", "t1", kind="transfer"), Entered("p-2", "t2", kind="transfer")
NORTHERN, SOUTHERN = Entered("p-1", "t1", -7), Entered("p-1", "t1", 7)


def test_what_is_in_order_has_no_fault() -> None:
    verdict = check(in_order())
    assert verdict.faults == []
    assert (verdict.begun, verdict.committed, verdict.aborted, verdict.compensated) == (2, 1, 1, 1)
    assert verdict.told == {"committed": 1, "aborted": 1}


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (entries(south=[]), "half done"),
        (entries(north=[NORTHERN] * 2, south=[SOUTHERN] * 2), "was done 2 times in north"),
        (entries(orders=[]), "not in orders"),
        (entries(orders=[SOUTHERN, Entered("p-2", "t2", 1)]), "not in the banks"),
        (found(receipts=[RECEIPT, RECEIPT, OTHER]), "2 receipts for one transfer"),
        (found(voided=[OTHER, OTHER]), "voided 2 times"),
        (found(voided=[RECEIPT, OTHER]), "t1 committed, but its receipt"),
        (found(voided=[]), "t2 did not commit, but its receipt"),
        (found(receipts=[RECEIPT]), "without receipt was voided"),
        (found(receipts=[OTHER]), "committed without a receipt"),
        (found(outcomes={"t1": "abort", "t2": "abort"}), "t1 stands in north; the journal says abort"),
        (found(outcomes={"t2": "abort"}), "the journal says nothing"),
        (found(outcomes={"t1": "commit", "t2": "commit"}), "t2 committed in the journal and is not in south"),
        (entries(north=[], south=[], orders=[]), "acknowledged as committed and is not there"),
        (
            entries(north=[NORTHERN, Entered("p-2", "t2", -1)], south=[SOUTHERN, Entered("p-2", "t2", 1)]),
            "acknowledged as aborted and is there",
        ),
        (found(total=TOTAL - 1), "hold 399,999"),
        (entries(south=[Entered("p-1", "t1", 8)]), "add up to 1"),
        (found(prepared=["tutti:north:t1:north-1"]), "a prepared branch is left"),
        (found(unfinished=["t1"]), "unfinished in the journal"),
        (found(open_rows=["north: t1 voted"]), "open in a participant's log"),
        (found(parked=["receipts: t1"]), "waits for an operator"),
        (found(unsent=1), "were not sent"),
        (changed(quiet_seconds=QUIET_MAX_SECONDS + 1), "everything had ended only"),
        (changed(wanted=3), "2 transactions began; 3 were wanted"),
        (changed(said=[Tried(f"p-{n}", 1.0, f"t{n}") for n in range(1, 9)]), "only 1 of 8 transactions committed"),
        (changed(crashed=["north-1-1 ended by itself with 1"]), "ended by itself"),
        (changed(left=["process 7"]), "left behind"),
        (changed(leaving=[Leaving("north-1-1", 9, 1, 1, ["ValueError()"])]), "a task of the bus failed"),
        (changed(complaints=[Complaint("ERROR", "tutti", 1.0, "it is broken")]), "error in a log (tutti)"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_broken_promise_is_seen(spoil: Callable[[Evidence], Evidence], fault: str) -> None:
    assert any(fault in said for said in check(spoil(in_order())).faults)


def test_a_warning_is_no_fault() -> None:
    complaint = Complaint("WARNING", "tutti", 1.0, "its manager is gone")
    assert check(changed(complaints=[complaint])(in_order())).ok


def test_who_was_told_nothing_may_find_either_outcome() -> None:
    told: list[Said] = [Tried("p-1", 1.0, "t1"), Told("p-2", "t2", "unchecked", 1.0)]
    assert check(changed(said=told, wanted=1)(in_order())).ok
