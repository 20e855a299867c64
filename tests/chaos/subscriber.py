"""One instance of a subscriber: `python -m tests.chaos.subscriber <data folder> <marks folder> <subscriber> <run>`.

Handles until it is told to end (SIGTERM), then stops gracefully and says what its counters are.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import tutti
from tests.chaos.workload import SUBSCRIBERS, Counters, Marks, complaints_to, subscriber


async def main(data: str, marks: str, name: str, run: str) -> None:
    plan = next(plan for plan in SUBSCRIBERS if plan.name == name)
    told_to_end = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told_to_end.set)
    declared = subscriber(plan, run, Marks(Path(marks, f"handled-{run}")))
    with complaints_to(Path(marks, f"log-subscriber-{run}")):
        async with tutti.connect(data=data, name=run) as bus, bus.serve(declared):
            Marks(Path(marks, f"ready-{run}"))
            await told_to_end.wait()
            health = bus.health()
            Marks(Path(marks, f"counters-{run}")).add(
                Counters(
                    run,
                    missing=bus.metrics.total("tutti_missing_total"),
                    dead=bus.metrics.total("tutti_dead_total"),
                    failures=bus.metrics.total("tutti_failures_total"),
                    health=health.state,
                    broken=health.failures,
                )
            )


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
