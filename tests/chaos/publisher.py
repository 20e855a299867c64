"""One publisher: `python -m tests.chaos.publisher <data folder> <marks folder> <name> <events> <seconds>`.

Publishes the numbered events, spread over about so many seconds; after an outage it makes up for the time. Tries an
event again, with the same id, until it is acknowledged, and only then goes on: so its numbers are its order.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import tutti
from tests.chaos.workload import PUBLISHERS, Acknowledged, Marks, PublisherPlan, Tick, complaints_to
from tutti.errors import OutcomeUnknown, Refused
from tutti.runtime.publication import Published


async def publish_all(bus: tutti.Bus, plan: PublisherPlan, marks: Marks, numbers: range, seconds: float) -> None:
    started = time.monotonic()
    for first in range(numbers.start, numbers.stop, plan.window):
        window = range(first, min(first + plan.window, numbers.stop))
        marks.add(*await publish_window(bus, plan, window))
        due = started + seconds * (window.stop - numbers.start) / len(numbers)
        await asyncio.sleep(max(0.0, due - time.monotonic()))


async def publish_window(bus: tutti.Bus, plan: PublisherPlan, window: range) -> list[Acknowledged]:
    """Side by side, in the order of the numbers; what failed is tried again one after the other, in that order too."""
    outcomes = await asyncio.gather(*(_publish(bus, plan, number) for number in window))
    acknowledged = []
    for number, first in zip(window, outcomes, strict=True):
        outcome, tries = first, 1
        while outcome is None:
            outcome, tries = await _publish(bus, plan, number), tries + 1
        acknowledged.append(
            Acknowledged(plan.name, number, outcome.sequence, outcome.duplicate, tries, time.monotonic())
        )
    return acknowledged


async def _publish(bus: tutti.Bus, plan: PublisherPlan, number: int) -> Published | None:
    try:
        return await bus.publish(Tick.numbered(plan.name, number), id=f"{plan.name}-{number}", timeout=plan.timeout)
    except (Refused, OutcomeUnknown):
        return None


async def main(data: str, marks: str, name: str, events: str, seconds: str) -> None:
    plan = next(plan for plan in PUBLISHERS if plan.name == name)
    with complaints_to(Path(marks, f"log-publisher-{name}")):
        async with tutti.connect(data=data, name=name) as bus:
            await bus.advertise(Tick)
            numbers = range(1, int(events) + 1)
            await publish_all(bus, plan, Marks(Path(marks, f"acknowledged-{name}")), numbers, float(seconds))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
