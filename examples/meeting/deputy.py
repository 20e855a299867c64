"""Who finishes what a dead organiser left: any process that shares the journal, and knows the organiser's database."""

from __future__ import annotations

import asyncio
import signal
import sys

import tutti
from examples.meeting.meeting import database_of

calendar = database_of("organiser")


async def stand_by() -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with tutti.connect(name="deputy", resources=[calendar]) as bus:
        await bus.coordinator()  # from here on it looks for managers whose lease has run out
        sys.stdout.write('{"ready": true}\n')
        sys.stdout.flush()
        await stop.wait()


def main() -> int:
    asyncio.run(stand_by())
    return 0


if __name__ == "__main__":
    sys.exit(main())
