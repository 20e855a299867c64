"""`python -m examples.meeting [--json]`. Exit code 1 if a promise was not kept."""

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

from examples.meeting.staging.show import Show
from examples.meeting.staging.stage import Lines, Picture, Stage
from examples.meeting.staging.theatre import Cancelled
from examples.meeting.staging.verdict import Verdict

LINE_CHARACTERS: Final = 120  # in files and pipes


async def play(show: Show) -> list[Verdict]:
    """Ctrl-C and SIGTERM end the play early: everybody leaves the stage, and nothing is left behind."""
    task = asyncio.current_task()
    if task is not None:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    return await show.play()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.meeting", description=__doc__)
    parser.add_argument("--json", action="store_true", help="a JSON object for each step; the last is the summary")
    given = parser.parse_args()
    logging.getLogger("tutti").setLevel(logging.ERROR)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else LINE_CHARACTERS)
    stage: Stage = Lines() if given.json else Picture(console)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tutti-meeting-", ignore_cleanup_errors=True) as folder:
        try:
            verdicts = asyncio.run(play(Show(Path(folder), stage)))
        except Cancelled as reason:
            sys.stderr.write(f"The play was cancelled: {reason}\n")
            return 1
        except asyncio.CancelledError:
            return 130
    stage.sum_up(verdicts, time.monotonic() - began)
    return 0 if all(verdict.holds for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
