"""An event type for the tests of the commands, of many kinds of fields."""

from __future__ import annotations

import datetime as dt
import enum
import uuid
from decimal import Decimal
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec

import tutti


class Side(enum.Enum):
    BUY = "buy"
    SELL = "sell"


class Leg(msgspec.Struct, frozen=True):
    price: Decimal
    size: int = 1


class Spot(msgspec.Struct, tag=True, frozen=True):
    days: int = 2


class Future(msgspec.Struct, tag=True, frozen=True):
    until: dt.date
    margin: Decimal = Decimal("2.50")


class Note(TypedDict):
    text: str
    author: NotRequired[str]


class TradeDone(tutti.Event):
    """A trade was made."""

    symbol: Annotated[str, tutti.routing, tutti.key]
    price: Decimal
    quantity: int = 1


class Everything(tutti.Event, version=3, stream="other", lifetime=60, priority=2):
    symbol: Annotated[str, tutti.routing]
    side: Annotated[Side, tutti.routing, tutti.key]
    seen: Annotated[dt.datetime, tutti.routing]
    at: Annotated[dt.datetime, msgspec.Meta(tz=True)]
    day: dt.date
    leg: Leg
    identity: uuid.UUID
    contract: Spot | Future | None = None
    size: Annotated[int, msgspec.Meta(ge=1)] = 5
    tags: list[str] = []  # noqa: RUF012  a struct copies it
    pair: tuple[int, str] = (1, "a")
    blob: bytes = b"abc"
    rates: dict[str, Decimal] = {}  # noqa: RUF012  a struct copies it
    codes: frozenset[int] = frozenset()
    ratio: float = 1.0
    note: Note | None = None
    legs: list[Leg] = msgspec.field(default_factory=list)
    choice: Literal[1, 2, "x"] = 2
    region: Annotated[str | None, tutti.routing] = None
    anything: Any = None
    wait: dt.timedelta = dt.timedelta(seconds=5)
    local: Annotated[dt.datetime, msgspec.Meta(tz=False)] = dt.datetime(2026, 1, 31)  # noqa: DTZ001  that is the point
    opens: dt.time = dt.time(9, 30)
    by_day: dict[dt.date, int] = {}  # noqa: RUF012  a struct copies it
    by_number: dict[int, dict[str, Leg]] = {}  # noqa: RUF012  a struct copies it
    by_side: dict[Side, int] = {}  # noqa: RUF012  a struct copies it
    by_code: dict[Annotated[str, msgspec.Meta(max_length=3)], int] = {}  # noqa: RUF012  a struct copies it
    maybe: dt.datetime | int | None = None
    future: Future = Future(dt.date(2030, 1, 1))
