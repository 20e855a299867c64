"""A manager as a service: `python -m tests.chaos.transactions.manager <marks folder> <run>`.

It finishes what publishers left that were killed; for that it reaches the database of their orders.
"""

from __future__ import annotations

import asyncio
import sys

import tutti
from tests.chaos.transactions.process import process
from tests.chaos.transactions.workload import ORDERS


async def main(marks: str, run: str) -> None:
    async with process(marks, run) as here:
        orders = here.settings.resource(ORDERS)
        await orders.start()
        try:
            async with tutti.connect(data=here.data, name=run, resources=[orders]) as bus:
                await bus.host()
                here.ready()
                await here.ended.wait()
                here.leave(bus)
        finally:
            await orders.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
