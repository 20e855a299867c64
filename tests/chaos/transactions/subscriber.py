"""One instance of a subscriber: `python -m tests.chaos.transactions.subscriber <marks folder> <run>`."""

from __future__ import annotations

import asyncio
import sys

import tutti
from tests.chaos.transactions.process import name_of, process, role_of
from tests.chaos.transactions.workload import subscriber_of


async def main(marks: str, run: str) -> None:
    async with process(marks, run) as here:
        declared = subscriber_of(role_of(name_of(run)), here.settings)
        async with tutti.connect(data=here.data, name=run) as bus, bus.serve(declared):
            here.ready()
            await here.ended.wait()
            here.leave(bus)
        for resource in declared.resources:
            await resource.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
