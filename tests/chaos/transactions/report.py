"""What a run found, for people and for machines."""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

from rich.console import Console
from rich.table import Table

from tests.chaos.transactions.checker import Verdict
from tests.chaos.transactions.evidence import Evidence
from tests.chaos.transactions.schedule import PHASES, POSTGRES, ROLES, Plan

WARNINGS_SHOWN_COUNT: Final = 8
_VALUES: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{8}-\d+|[0-9a-f]{8,}|\d+")


def show_plan(console: Console, plan: Plan) -> None:
    pairs = sum(bool(aim.also) for aim in plan.aims)
    console.print(
        f"[bold]chaos in transactions[/]: {plan.transactions:,} transfers, {len(plan.aims)} kills aimed at a phase, "
        f"{pairs} of them in pairs; seed [bold]{plan.seed}[/]"
    )


def show(console: Console, evidence: Evidence, verdict: Verdict, seed: int) -> None:
    console.print(_kills(evidence))
    told = ", ".join(f"{count:,} {word}" for word, count in sorted(verdict.told.items()))
    console.print(f"  {verdict.begun:>7,} transactions began in {evidence.seconds:.0f} s")
    console.print(
        f"  {verdict.committed:>7,} committed, {verdict.aborted:,} aborted, {verdict.compensated:,} compensated"
    )
    console.print(f"          publishers were told: {told}")
    console.print(f"  {evidence.found.total:>7,} is what both banks hold together")
    console.print(f"  {evidence.quiet_seconds:>7.1f} s after the last transaction began, everything had ended")
    console.print(f"  {evidence.found.undecided_seconds:>7.1f} s at most from registration to decision")
    for text, count in warnings(evidence).most_common(WARNINGS_SHOWN_COUNT):
        console.print(f"  {count:>7,} warnings: {text}", markup=False)
    for missed in evidence.missed:
        console.print(f"          never hit: {missed}")
    if verdict.faults:
        console.print(f"\n[bold red]{len(verdict.faults)} promises broken[/] (again with --seed {seed}):")
        for fault in verdict.faults:
            console.print(f"  - {fault}", markup=False)
    else:
        console.print("[bold green]every promise kept[/]")


def _kills(evidence: Evidence) -> Table:
    table = Table(title="kills by role and phase", title_justify="left")
    table.add_column("role")
    for phase in PHASES:
        table.add_column(phase, justify="right")
    table.add_column("at any time", justify="right")
    counts = counted(evidence)
    for role in (*ROLES, POSTGRES):
        table.add_row(role, *(str(counts[role, phase] or "·") for phase in PHASES), str(counts[role, ""] or "·"))
    return table


def counted(evidence: Evidence) -> Counter[tuple[str, str]]:
    return Counter((killed.role, killed.phase) for killed in evidence.kills)


def never_hit(evidence: Evidence) -> list[str]:
    counts = counted(evidence)
    return [f"{role}/{phase}" for role in ROLES for phase in PHASES if not counts[role, phase]]


def warnings(evidence: Evidence) -> Counter[str]:
    """By what they say, without the values in them."""
    texts = (_VALUES.sub("#", c.text.splitlines()[0]) for c in evidence.complaints if c.level == "WARNING")
    return Counter(texts)


def figures(evidence: Evidence, verdict: Verdict, seed: int) -> dict[str, object]:
    return {
        "ok": verdict.ok,
        "seed": seed,
        "transactions": verdict.begun,
        "committed": verdict.committed,
        "aborted": verdict.aborted,
        "compensated": verdict.compensated,
        "told": verdict.told,
        "kills": len(evidence.kills),
        "kills_by_role": dict(Counter(killed.role for killed in evidence.kills)),
        "cells_never_hit": never_hit(evidence),
        "prepared_left": len(evidence.found.prepared),
        "total": evidence.found.total,
        "quiet_s": round(evidence.quiet_seconds, 1),
        "undecided_max_s": round(evidence.found.undecided_seconds, 1),
        "memory_max_kb": max((leaving.memory_kb for leaving in evidence.leaving), default=0),
        "tasks_max": max((leaving.tasks for leaving in evidence.leaving), default=0),
        "descriptors_max": max((leaving.descriptors for leaving in evidence.leaving), default=0),
        "warnings": sum(warnings(evidence).values()),
        "seconds": round(evidence.seconds, 1),
        "faults": verdict.faults,
    }
