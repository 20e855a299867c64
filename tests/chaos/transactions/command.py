"""The part of `python -m tests.chaos` that is about transactions: everybody is killed in every phase of one."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import tempfile
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.chaos.transactions import driver, report
from tests.chaos.transactions.checker import check
from tests.chaos.transactions.evidence import Evidence
from tests.chaos.transactions.schedule import Plan, schedule

SECONDS_PER_TRANSACTION: Final = 0.25


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--transactions", type=int, default=1_000, help="at least, in all (default: 1000)")
    parser.add_argument("--aims", type=int, default=None, help="only the first so many kills of their schedule")
    parser.add_argument("--extra", type=int, default=8, help="kills besides one for each role and phase (default: 8)")


def run(given: argparse.Namespace, seed: int, console: Console) -> bool:
    """Whether every promise was kept."""
    seconds = given.transactions * SECONDS_PER_TRANSACTION
    plan = Plan(seed, given.transactions, seconds, tuple(schedule(seed, given.extra)[: given.aims]))
    report.show_plan(console, plan)
    folder = Path(tempfile.mkdtemp(prefix="tutti-chaos-"))
    folder.chmod(0o755)  # PostgreSQL may run as another user
    try:
        evidence = asyncio.run(_watched(console, folder, plan))
    finally:
        if given.keep is not None:
            shutil.copytree(folder / "marks", given.keep / "transactions", dirs_exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
    verdict = check(evidence)
    report.show(console, evidence, verdict, seed)
    print(json.dumps(report.figures(evidence, verdict, seed)))
    return verdict.ok


async def _watched(console: Console, folder: Path, plan: Plan) -> Evidence:
    columns = (TextColumn("{task.description:>28}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=console.quiet) as bars:
        told = bars.add_task("transactions", total=plan.transactions)
        killed = bars.add_task("kills", total=len(plan.aims))

        def watch(progress: driver.Progress) -> None:
            bars.update(told, completed=min(progress.told, plan.transactions))
            bars.update(killed, completed=progress.aimed, description=progress.note or "kills")

        return await driver.Chaos(folder, plan, watch).run()
