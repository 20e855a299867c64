"""What a run found, for people and for machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from tests.chaos.checker import Verdict
from tests.chaos.evidence import Evidence, InstanceKilled, ServerKilled
from tests.chaos.loss import PUBLISHED, Loss
from tests.chaos.schedule import Kill
from tests.chaos.workload import PUBLISHERS, SUBSCRIBERS


def show_plan(console: Console, seed: int, events: int, kills: Sequence[Kill]) -> None:
    counts = Counter(kill.target for kill in kills)
    targets = ", ".join(f"{target} {count}×" for target, count in sorted(counts.items()))
    console.print(f"[bold]chaos[/]: {events:,} events, {len(kills)} kills ({targets or 'none'}); seed [bold]{seed}[/]")


def show(console: Console, evidence: Evidence, verdict: Verdict, losses: Sequence[Loss], seed: int) -> None:
    console.print(_subscribers(evidence, verdict))
    console.print(_kills(evidence))
    for cause, count in verdict.causes.items():
        console.print(f"  {count:>7,} duplicates because {cause}")
    console.print(
        f"  {verdict.retried:>7,} events were published again after a refusal or in doubt; "
        f"{verdict.recognised:,} of all acknowledgements said: stored before"
    )
    console.print(
        f"  {verdict.takeover_seconds:>7.1f} s at most from the kill of an instance to the next of its events"
    )
    for one in losses:
        said = "noticed" if one.ok else "NOT NOTICED as it should be"
        console.print(
            f"  a removed record, and a subscriber that {one.how}: {said} "
            f"({one.missing} missing, {len(one.handled)} of {PUBLISHED - 1} handled)"
        )
    faults = [*verdict.faults, *(f"the subscriber that {one.how}: {one}" for one in losses if not one.ok)]
    if faults:
        console.print(f"\n[bold red]{len(faults)} promises broken[/] (again with --seed {seed}):")
        for fault in faults:
            console.print(f"  - {fault}", markup=False)
    else:
        console.print("[bold green]every promise kept[/]")


def _subscribers(evidence: Evidence, verdict: Verdict) -> Table:
    table = Table(title=f"{evidence.events:,} events in {evidence.seconds:.0f} s", title_justify="left")
    for column in ("subscriber", "instances", "order", "handled", "duplicates"):
        table.add_column(column, justify="right" if column in {"handled", "duplicates"} else "left")
    for plan in SUBSCRIBERS:
        table.add_row(
            plan.name,
            str(plan.instances),
            "per publisher and account" if plan.keyed else "per publisher",
            f"{verdict.handled[plan.name]:,}",
            f"{verdict.duplicates[plan.name]:,}",
        )
    return table


def _kills(evidence: Evidence) -> Table:
    table = Table(title="kills", title_justify="left")
    for column in ("at", "who", "and then"):
        table.add_column(column, justify="right" if column == "at" else "left")
    start = min((mark.time for mark in evidence.acknowledged), default=0.0)
    for kill in evidence.kills:
        match kill:
            case ServerKilled():
                row = ("server", f"away for {kill.back - kill.time:.2f} s")
            case InstanceKilled(positions=None):
                row = (kill.run, "no server to say its positions")
            case InstanceKilled():
                row = (kill.run, "left at " + _places(kill))
        table.add_row(f"{kill.time - start:.1f} s", *row)
    return table


def _places(kill: InstanceKilled) -> str:
    known = kill.positions or {}
    return ", ".join(f"{plan.name} {known.get(plan.partition, 0):,}" for plan in PUBLISHERS)


def figures(evidence: Evidence, verdict: Verdict, losses: Sequence[Loss], seed: int) -> dict[str, object]:
    servers = sum(isinstance(kill, ServerKilled) for kill in evidence.kills)
    return {
        "ok": verdict.ok and all(one.ok for one in losses),
        "seed": seed,
        "events": evidence.events,
        "acknowledged": len({(mark.publisher, mark.number) for mark in evidence.acknowledged}),
        "handled": min(verdict.handled.values()),
        "duplicates": sum(verdict.duplicates.values()),
        "duplicates_explained": sum(verdict.causes.values()),
        "retried": verdict.retried,
        "missing": sum(counters.missing for counters in evidence.counters),
        "dead_letters": evidence.dead_letters,
        "kills_server": servers,
        "kills_subscriber": len(evidence.kills) - servers,
        "takeover_s": round(verdict.takeover_seconds, 2),
        "losses_noticed": sum(one.ok for one in losses),
        "seconds": round(evidence.seconds, 1),
        "events_per_s": round(evidence.events / evidence.seconds),
        "faults": verdict.faults,
    }
