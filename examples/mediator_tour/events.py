"""The one type that everybody shares, and the trades of the day."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Annotated, Final

import tutti

EXCHANGES: Final = ("london", "new-york", "tokyo")
SYMBOLS: Final = ("IBM", "SAP", "SONY", "ACME")
UNLUCKY_QUANTITY: Final = 13  # the clearing house does not settle it


class TradeDone(tutti.Event):
    """A trade was made."""

    symbol: Annotated[str, tutti.routing]  # a token of the subject: the server itself filters on it
    exchange: str
    number: int  # counts the trades of its exchange
    price: Decimal
    quantity: int


def trades(exchange: str, count: int) -> list[TradeDone]:
    """The same every day. Exactly one of all exchanges' trades is unlucky."""
    chance = random.Random(exchange)
    day = [
        TradeDone(
            symbol=chance.choice(SYMBOLS),
            exchange=exchange,
            number=number,
            price=Decimal(chance.randrange(5_000, 25_000)) / 100,
            quantity=chance.randrange(100, 1_000, 10),
        )
        for number in range(1, count + 1)
    ]
    if exchange == EXCHANGES[0]:
        unlucky = count // 4
        day[unlucky - 1] = TradeDone("ACME", exchange, unlucky, Decimal("66.60"), UNLUCKY_QUANTITY)
    return day
