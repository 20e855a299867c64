"""A publisher: `python -m examples.mediator_tour.exchange london --count 600 --seconds 8`."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys

import tutti
from examples.mediator_tour.events import TradeDone, trades


async def publish_all(exchange: str, count: int, seconds: float) -> None:
    """Publish the day's trades, evenly over so many seconds, and report each acknowledgement."""
    loop = asyncio.get_running_loop()
    async with tutti.connect(name=exchange) as bus:
        await bus.advertise(TradeDone)
        start = loop.time()
        for trade in trades(exchange, count):
            await asyncio.sleep(start + seconds * trade.number / count - loop.time())
            await publish_surely(bus, trade)
            sys.stdout.write(json.dumps({"exchange": exchange, "stored": trade.number}) + "\n")
            sys.stdout.flush()


async def publish_surely(bus: tutti.Bus, trade: TradeDone) -> None:
    """Publishing waits for a server that is away. Should that take too long, the same id makes repetition harmless."""
    event_id = f"{trade.exchange}-{trade.number}"
    while True:
        try:
            await bus.publish(trade, id=event_id)
        except (tutti.Refused, tutti.OutcomeUnknown):
            continue
        return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("exchange")
    parser.add_argument("--count", type=int, default=600)
    parser.add_argument("--seconds", type=float, default=8.0)
    given = parser.parse_args()
    asyncio.run(publish_all(given.exchange, given.count, given.seconds))


if __name__ == "__main__":
    main()
