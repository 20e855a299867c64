"""The subscribers. Each is served by a process of its own: `tutti run examples.mediator_tour.desks:archive`."""

from __future__ import annotations

import json
import sys

import tutti
from examples.mediator_tour.events import UNLUCKY_QUANTITY, TradeDone

quickly = tutti.Policy(attempts=3, backoff=tutti.Backoff(first=0.05, most=0.2))

archive = tutti.Subscriber("archive", policy=quickly)  # two processes share its work
ibm = tutti.Subscriber("ibm", policy=quickly)
blocks = tutti.Subscriber("blocks", policy=quickly)
settlement = tutti.Subscriber("settlement", policy=quickly)


@archive.on(TradeDone)
async def keep(event: TradeDone) -> None:
    report("archive", event)


@ibm.on(TradeDone, where="symbol = 'IBM' AND price > 100")
async def watch(event: TradeDone) -> None:
    report("ibm", event)


@blocks.on(TradeDone, where="quantity >= 900 AND symbol IN ('SAP', 'SONY')")
def notice(event: TradeDone) -> None:  # a plain function: it runs in a thread
    report("blocks", event)


@settlement.on(TradeDone, where="symbol = 'ACME'")
async def settle(event: TradeDone) -> None:
    if event.quantity == UNLUCKY_QUANTITY:
        raise ValueError(f"the clearing house refuses a quantity of {event.quantity}")
    report("settlement", event)


def report(desk: str, event: TradeDone) -> None:
    """Tell the audience: one line for each trade that was handled."""
    line = {"desk": desk, "exchange": event.exchange, "number": event.number, "symbol": event.symbol}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
