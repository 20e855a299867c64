"""`python -m tests.chaos`: kill servers and processes under load, then count what was lost. See docs/chaos.md."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.chaos import driver, loss, report
from tests.chaos.checker import check
from tests.chaos.evidence import Evidence
from tests.chaos.schedule import Kill, schedule
from tests.chaos.transactions import command

SECONDS_PER_KILL = 5.0  # time for a successor to take over and to work for a while


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--only", choices=("mediator", "transactions"), default=None, help="one of the two parts")
    parser.add_argument("--events", type=int, default=100_000, help="published in all (default: 100000)")
    parser.add_argument("--kills", type=int, default=20, help="of the server and of subscribers (default: 20)")
    parser.add_argument("--seed", type=int, default=None, help="repeats the kills of an earlier run")
    parser.add_argument("--seconds", type=float, default=None, help="publishing is spread over (default: 5 a kill)")
    parser.add_argument("--keep", type=Path, default=None, help="keep the run's files in this folder")
    parser.add_argument("--json", action="store_true", help="only the figures, as one JSON object")
    command.add_arguments(parser)
    return parser.parse_args()


def main() -> int:
    given = arguments()
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(1_000_000)
    console = Console(quiet=given.json, highlight=False)
    kept = [part(given, seed, console) for name, part in _PARTS.items() if given.only in {None, name}]
    return 0 if all(kept) else 1


def _mediator(given: argparse.Namespace, seed: int, console: Console) -> bool:
    """Whether every promise was kept."""
    seconds = given.seconds if given.seconds is not None else given.kills * SECONDS_PER_KILL
    kills = schedule(seed, given.kills)
    report.show_plan(console, seed, given.events, kills)
    folder = Path(tempfile.mkdtemp(prefix="tutti-chaos-"))
    try:
        evidence = asyncio.run(_watched(console, folder, given.events, kills, seconds))
        verdict = check(evidence)
        losses = asyncio.run(loss.run(folder / "loss"))
    finally:
        if given.keep is not None:
            shutil.copytree(folder, given.keep, dirs_exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
    report.show(console, evidence, verdict, losses, seed)
    print(json.dumps(report.figures(evidence, verdict, losses, seed)))
    return verdict.ok and all(one.ok for one in losses)


_PARTS = {"mediator": _mediator, "transactions": command.run}


async def _watched(console: Console, folder: Path, events: int, kills: list[Kill], seconds: float) -> Evidence:
    columns = (TextColumn("{task.description:>22}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=console.quiet) as bars:
        published = bars.add_task("acknowledged", total=events)
        handled = bars.add_task("handled by everybody", total=events)
        killed = bars.add_task("kills", total=len(kills))

        def watch(progress: driver.Progress) -> None:
            bars.update(published, completed=progress.acknowledged)
            bars.update(handled, completed=progress.handled)
            bars.update(killed, completed=progress.kills, description=f"kills ({progress.note or 'none'})")

        return await driver.Chaos(folder, events, kills, seconds, watch).run()


if __name__ == "__main__":
    sys.exit(main())
