"""What a suite found, for people and for machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from tutti.simulation import story
from tutti.simulation.faults import KINDS, POINTS
from tutti.simulation.planted import Catch
from tutti.simulation.run import play
from tutti.simulation.scenario import draw
from tutti.simulation.suite import Totals

TOLD_COUNT: Final = 3  # failures that are told at length; the others are named
_OUTCOMES: Final = ("committed", "aborted", "never began", "heuristic", "taken over", "compensated")


def show(console: Console, totals: Totals, seconds: float) -> None:
    console.print(_outcomes(totals, seconds))
    console.print(_faults(totals))
    for report in totals.failed[:TOLD_COUNT]:
        failure, trace = report.failure, play(draw(report.seed))[1]
        if failure is not None:
            console.print("\n".join(story.tell(report, failure, trace)), markup=False, soft_wrap=True)
    for report in totals.failed[TOLD_COUNT:]:
        named = report.failure.invariant if report.failure is not None else ""
        console.print(f"seed {report.seed} breaks {named!r}; again: {story.replay(report.seed)}", markup=False)
    found = totals.objections()
    for objection in found:
        console.print(f"[bold red]red[/]: {objection}")
    if not found:
        console.print(f"[bold green]no rule was broken[/] in {totals.scenarios:,} scenarios")


def figures(totals: Totals, first: int, seconds: float) -> dict[str, Any]:
    return {
        "scenarios": totals.scenarios,
        "from": first,
        "steps": totals.steps,
        "seconds": round(seconds, 1),
        "scenarios_per_second": round(totals.scenarios / seconds, 1) if seconds else 0.0,
        "transactions": totals.transactions,
        "committed_share": round(totals.committed_share, 3),
        **{name.replace(" ", "_"): totals.outcomes[name] for name in _OUTCOMES},
        "fault_points": len(POINTS),
        "fault_points_fired": len(POINTS) - len(totals.silent_points()),
        "faults": sum(totals.fired.values()),
        "violations": [
            {"seed": report.seed, "check": report.failure.invariant, "objection": report.failure.objection}
            for report in totals.failed
            if report.failure is not None
        ],
        "green": not totals.objections(),
    }


def show_catches(console: Console, title: str, catches: Sequence[Catch]) -> None:
    table = Table(title=title, title_justify="left")
    table.add_column("what is wrong")
    table.add_column("scenarios", justify="right")
    table.add_column("noticed by")
    table.add_column("because")
    for caught in catches:
        seen = caught.failure
        row = (seen.invariant, seen.objection) if seen is not None else ("[yellow]nobody[/]", "")
        table.add_row(caught.name, f"{caught.seeds:,}", *row)
    console.print(table)
    console.print(f"{caught_count(catches)} of {len(catches)} were noticed")


def caught_count(catches: Sequence[Catch]) -> int:
    return sum(one.failure is not None for one in catches)


def _outcomes(totals: Totals, seconds: float) -> Table:
    pace = totals.scenarios / seconds if seconds else 0.0
    table = Table(
        title=f"{totals.scenarios:,} scenarios, {totals.steps:,} steps in {seconds:.0f} s ({pace:.1f} scenarios/s)",
        title_justify="left",
    )
    table.add_column("transactions")
    table.add_column("count", justify="right")
    table.add_row("begun", f"{totals.transactions:,}")
    for name in _OUTCOMES:
        share = f" ({totals.committed_share:.0%})" if name == "committed" else ""
        table.add_row(name, f"{totals.outcomes[name]:,}{share}")
    table.add_section()
    table.add_row("violations", f"[{'red' if totals.failed else 'green'}]{len(totals.failed):,}[/]")
    return table


def _faults(totals: Totals) -> Table:
    table = Table(title="faults", title_justify="left")
    table.add_column("kind")
    table.add_column("times", justify="right")
    for kind in KINDS:
        table.add_row(kind, f"{totals.fired[kind]:,}")
    crashes: Counter[str] = Counter()
    points: Counter[str] = Counter()
    for point in POINTS[len(KINDS) :]:
        role = " ".join(point.split()[:4])  # "crash of a member"
        crashes[role] += totals.fired[point]
        points[role] += bool(totals.fired[point])
    for role, times in crashes.items():
        all_points = sum(point.startswith(f"{role} ") for point in POINTS)
        table.add_row(f"{role}, before or after an effect ({points[role]} of {all_points} points)", f"{times:,}")
    return table
