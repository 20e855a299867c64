"""`python -m examples.mediator_tour [--count 500] [--seconds 8]`. Exit code 1 if a promise was not kept."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from rich.console import Console

from examples.mediator_tour.ledger import Ledger, Verdict
from examples.mediator_tour.stage import stage_for, summary
from examples.mediator_tour.story import Cancelled, Story

LINE_CHARACTERS: Final = 140  # in files and pipes


async def play(story: Story) -> list[Verdict]:
    """Ctrl-C and SIGTERM end the play early: everybody leaves the stage, and nothing is left behind."""
    task = asyncio.current_task()
    if task is not None:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    return await story.tell()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.mediator_tour", description=__doc__)
    parser.add_argument("--count", type=int, default=500, help="trades of each exchange (at least 100)")
    parser.add_argument("--seconds", type=float, default=8.0, help="over which they are spread")
    given = parser.parse_args()
    logging.getLogger("tutti").setLevel(logging.ERROR)  # that the server was lost is part of the play
    console = Console(highlight=False, width=None if sys.stdout.isatty() else LINE_CHARACTERS)
    ledger = Ledger(max(100, given.count))
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tutti-tour-", ignore_cleanup_errors=True) as folder:
        try:
            with stage_for(console, ledger) as stage:
                verdicts = asyncio.run(play(Story(Path(folder) / "data", ledger, stage, given.seconds)))
        except Cancelled as reason:
            console.print(f"The play was cancelled: {reason}", style="bold red", markup=False)
            return 1
        except asyncio.CancelledError:
            return 130
    summary(console, ledger, verdicts, time.monotonic() - began)
    return 0 if all(verdict.holds for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
