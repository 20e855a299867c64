"""Where the time of a transaction goes, from what everybody in it logs: one after the other, in every process.

A phase ends when the last one that takes part in it is through. `transactions` shows the medians.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Any, Final

import msgspec

import tutti
from benchmarks.journeys import GROUP, NAMES, TRAVELLER, Booking, Journey, Place
from benchmarks.travel_agents import Account, Agents

TRANSACTIONS: Final = 200
WARM_UP: Final = 50

_MANAGER: Final = "manager"
# What ends each phase: whose step it is, and which. In the order in which they happen.
ENDS: Final = (
    ("begin: members known, registered in the journal", _MANAGER, "begun"),
    ("publish: composed and handed to the bus", _MANAGER, "asked"),
    ("bus: the event, until handlers begin", "", "handling"),
    ("handle: BEGIN and the row", "", "handled"),
    ("prepare: PREPARE TRANSACTION", "", "prepared"),
    ("vote: written into the participant's log, signed", "", "voted"),
    ("bus: the votes", _MANAGER, "proposed"),
    ("journal: the deciding row", _MANAGER, "decided"),
    ("bus: the decision", "", "learned"),
    ("commit: COMMIT PREPARED", "", "finished"),
    ("bus: the reports of the end", _MANAGER, "over"),
)


class Phase(msgspec.Struct, frozen=True):
    name: str
    milliseconds: float


async def breakdown(place: Place) -> list[Phase]:
    """In the standing group, with `wait="ended"`."""
    commands = [(str(place.data), name, url, "--account") for name, url in zip(NAMES, place.databases, strict=True)]
    agents = Agents(commands)
    begun: dict[str, float] = {}
    try:
        async with tutti.connect(data=place.data, name="accountant") as bus:
            await bus.advertise(Booking)
            await asyncio.to_thread(agents.wait)
            account = Account.opened()
            for number in range(WARM_UP + TRANSACTIONS):
                started = time.perf_counter()
                async with bus.transaction(Journey("Turin"), group=GROUP) as tx:
                    await tx.publish(Booking(number, TRAVELLER))
                    await tx.commit(wait="ended")
                if number >= WARM_UP:
                    begun[tx.id] = started
            account.close()
    finally:
        told = agents.end()
    return _phases(begun, [*account.steps, *told])


def _phases(begun: dict[str, float], steps: list[Any]) -> list[Phase]:
    last: dict[tuple[str, str, str], float] = {}
    for moment, tx, role, step in steps:
        key = (tx, _MANAGER if role == _MANAGER else "", step)
        last[key] = max(moment, last.get(key, 0.0))
    took: dict[str, list[float]] = {name: [] for name, _, _ in ENDS}
    for tx, started in begun.items():
        before = started
        for name, role, step in ENDS:
            end = last.get((tx, role, step), before)
            took[name].append(max(0.0, end - before))  # a member may be quicker than the manager's next step
            before = max(before, end)
    return [Phase(name, statistics.median(values) * 1e3) for name, values in took.items()]
