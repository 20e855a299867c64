"""The events that both sides publish and handle, and the watch that times them."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Final

import msgspec

import tutti

EVENT_BYTES: Final = 200
SYMBOLS: Final = ("AAPL", "AMZN", "GOOG", "IBM", "INTC", "MSFT", "NVDA", "ORCL")


class Trade(tutti.Event):
    """200 bytes of JSON. The symbol goes into the subject, on both sides."""

    symbol: Annotated[str, tutti.routing]
    account: str
    price: float
    quantity: int
    note: str


encode: Final = msgspec.json.Encoder().encode
decode: Final = msgspec.json.Decoder(Trade).decode


def trade(number: int) -> Trade:
    bare = Trade(SYMBOLS[number % len(SYMBOLS)], f"A{number % 1000:05}", 100.25 + number % 100, number % 1000, "")
    return msgspec.structs.replace(bare, note="x" * (EVENT_BYTES - len(encode(bare))))


def trades(count: int) -> list[Trade]:
    return [trade(number) for number in range(count)]


async def handle(event: Trade) -> None:
    """What every subscriber does with an event: nothing, asynchronously."""


class Watch:
    """Counts events; `done` has the rate from the first to the last."""

    def __init__(self, expected: int) -> None:
        self._expected = expected
        self._started = 0.0
        self.count = 0
        self.done: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    def hit(self) -> None:
        if not self.count:
            self._started = time.perf_counter()
        self.count += 1
        if self.count == self._expected:
            self.done.set_result((self._expected - 1) / (time.perf_counter() - self._started))
