"""What the processes of a run share: where they write, when they end, what they say of themselves."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import tutti
from tests.chaos.transactions.trap import Watch
from tests.chaos.transactions.workload import Leaving, Settings, read_settings
from tests.chaos.workload import Marks, complaints_to


class Process:
    """`ended`: it is told to end (SIGTERM)."""

    def __init__(self, marks: Path, run: str) -> None:
        self.marks = marks
        self.run = run
        self.settings: Settings = read_settings(marks)
        self.ended = asyncio.Event()

    @property
    def data(self) -> str:
        return self.settings.data

    def ready(self) -> None:
        Marks(self.marks / f"ready-{self.run}")

    def leave(self, bus: tutti.Bus) -> None:
        """Said while the bus is still open."""
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        descriptors = len(list(Path("/dev/fd").iterdir()))
        leaving = Leaving(self.run, len(asyncio.all_tasks()), peak, descriptors, bus.health().failures)
        Marks(self.marks / f"leaving-{self.run}").add(leaving)


@contextlib.asynccontextmanager
async def process(marks: str, run: str) -> AsyncIterator[Process]:
    folder = Path(marks)
    started = Process(folder, run)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, started.ended.set)
    transactions = logging.getLogger("tutti.transactions")
    transactions.setLevel(logging.INFO)
    transactions.addHandler(Watch(folder, run))
    with complaints_to(folder / f"log-{run}"):
        yield started


def name_of(run: str) -> str:
    """`north-1-3` is the third start of `north-1`."""
    return run.rsplit("-", 1)[0]


def role_of(instance: str) -> str:
    return instance.rsplit("-", 1)[0]
