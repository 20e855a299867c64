"""Transfers between two banks, and a third party that writes receipts and cannot wait for the decision.

North takes the amount from one of its accounts, south adds it to one of its own: two databases with prepared branches.
Receipts writes a row in a third one at once, and another row that voids it if the transfer aborts. Some publishers also
keep orders of their own in a fourth. No table has a unique key for a transfer: what happens twice is seen twice.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

import tutti
from tests.chaos.workload import NewLines
from tutti.model.transaction import Scope
from tutti.resources.postgres import PostgresOptions
from tutti.resources.postgres.asyncpg import AsyncpgResource

ACCOUNTS_COUNT: Final = 200
OPENING_BALANCE: Final = 1_000
GROUP: Final = "clearing"
NORTH, SOUTH, RECEIPTS, ORDERS = "north", "south", "receipts", "orders"
BANKS: Final = (NORTH, SOUTH)
SUBSCRIBERS: Final = (NORTH, SOUTH, RECEIPTS)
DATABASES: Final = (NORTH, SOUTH, RECEIPTS, ORDERS)
POSTGRES_CONNECTIONS_COUNT: Final = 8  # of each process to each of its databases

ENTRIES: Final = "create table entries (key text not null, tx text not null, amount bigint not null)"
BANK: Final = (
    "create table accounts (id int primary key, balance bigint not null)",
    f"insert into accounts select id, {OPENING_BALANCE} from generate_series(1, {ACCOUNTS_COUNT}) as id",  # noqa: S608  our own numbers
    ENTRIES,
)
TABLES: Final[Mapping[str, tuple[str, ...]]] = {
    NORTH: BANK,
    SOUTH: BANK,
    RECEIPTS: (
        "create table receipts (key text not null, tx text not null, kind text not null)",
        "create table voided (key text not null, tx text not null, kind text not null)",
    ),
    ORDERS: (ENTRIES,),
}


class Transfer(tutti.Event, stream="transfers"):
    """`refused_by` votes no: at once, or (`late`) when the others can have voted."""

    key: str
    source: int
    target: int
    amount: int
    refused_by: str = ""
    late: bool = False
    booked: bool = False  # south publishes a Booking in the transaction


class Booking(tutti.Event, stream="transfers"):
    key: str


class Standing(tutti.TxType, events=[Transfer, Booking]):
    """Of the standing group."""

    key: str


class Invited(tutti.TxType, events=[Transfer, Booking]):
    """By census."""

    key: str


class Deal(msgspec.Struct, frozen=True):
    """One transaction of a publisher, as the seed wants it."""

    transfer: Transfer
    census: bool
    scope: Scope
    own: bool  # the publisher keeps an order in its own database
    last: bool  # the event carries the prepare

    @classmethod
    def drawn(cls, seed: int, publisher: str, number: int) -> Deal:
        chance = random.Random(f"{seed}/{publisher}/{number}")
        refused_by = chance.choice(BANKS) if chance.random() < 0.15 else ""
        return cls(
            Transfer(
                key=f"{publisher}-{number}",
                source=chance.randint(1, ACCOUNTS_COUNT),
                target=chance.randint(1, ACCOUNTS_COUNT),
                amount=chance.randint(1, 100),
                refused_by=refused_by,
                late=chance.random() < 0.8,
                booked=chance.random() < 0.15,
            ),
            census=chance.random() < 0.4,
            scope="public" if chance.random() < 0.3 else "private",
            own=chance.random() < 0.3,
            last=chance.random() < 0.3,
        )


class Settings(msgspec.Struct, frozen=True):
    """What every process of a run is told, in a file."""

    data: str
    seed: int
    urls: dict[str, str]  # by database
    quota: int  # transactions of each publisher, at least
    seconds: float  # over which they are spread

    def resource(self, name: str) -> AsyncpgResource:
        return AsyncpgResource(name, self.urls[name], PostgresOptions(connections=POSTGRES_CONNECTIONS_COUNT))


def write_settings(marks: Path, settings: Settings) -> None:
    (marks / "settings.json").write_bytes(msgspec.json.encode(settings))


def read_settings(marks: Path) -> Settings:
    return msgspec.json.decode((marks / "settings.json").read_bytes(), type=Settings)


# What publishers write down


class Tried(msgspec.Struct, frozen=True, tag="tried"):
    """Before anything else: the number is not used again. `tx` is empty until it has begun."""

    key: str
    time: float
    tx: str = ""


class Told(msgspec.Struct, frozen=True, tag="told"):
    """What the publisher was told. `word`: committed, aborted, unchecked, failed (to begin), lost (the bus's doubt)."""

    key: str
    tx: str
    word: str
    time: float
    why: str = ""


Said = Tried | Told


def said(folder: Path) -> list[Said]:
    decode = msgspec.json.Decoder(Said).decode
    return [decode(line) for line in NewLines(folder, "said-*")]


class Leaving(msgspec.Struct, frozen=True):
    """What a process says of itself when it ends in peace."""

    run: str
    tasks: int
    memory_kb: int
    descriptors: int
    broken: list[str]


# Who takes part


class Vetoed(Exception):
    """A bank does not want this transfer."""


def bank(name: str, resource: AsyncpgResource) -> tutti.Subscriber:
    subscriber = tutti.Subscriber(name, resources=[resource])
    subscriber.enrol(GROUP, Standing)
    sign = -1 if name == NORTH else 1

    @subscriber.join(Invited)
    async def interested(_: tutti.Invite[Invited]) -> bool:
        return True

    @subscriber.on(Transfer)
    async def transfer(event: Transfer, tx: Any) -> None:
        db = await tx.enlist(resource)
        account = event.source if name == NORTH else event.target
        await db.execute("update accounts set balance = balance + $1 where id = $2", sign * event.amount, account)
        await db.execute("insert into entries values ($1, $2, $3)", event.key, tx.id, sign * event.amount)
        if event.booked and name == SOUTH:
            await tx.publish(Booking(event.key))
        if event.refused_by == name:
            if event.late:
                await asyncio.sleep(0.25)  # the others vote meanwhile, and receipts must undo
                tx.set_abort(f"{name} does not like {event.key}")
            else:
                raise Vetoed(f"{name} refuses {event.key}")

    return subscriber


def receipts(resource: AsyncpgResource) -> tutti.Subscriber:
    subscriber = tutti.Subscriber(RECEIPTS, resources=[resource])
    subscriber.enrol(GROUP, Standing, compensatable=True)

    @subscriber.join(Invited, compensatable=True)
    async def interested(_: tutti.Invite[Invited]) -> bool:
        return True

    @subscriber.on(Transfer)
    async def transfer(event: Transfer, tx: Any) -> None:
        await write(tx, "receipts", event.key, "transfer")

    @transfer.compensate
    async def void_transfer(event: Transfer, tx: Any) -> None:
        await write(tx, "voided", event.key, "transfer")

    @subscriber.on(Booking)
    async def booking(event: Booking, tx: Any) -> None:
        await write(tx, "receipts", event.key, "booking")

    @booking.compensate
    async def void_booking(event: Booking, tx: Any) -> None:
        await write(tx, "voided", event.key, "booking")

    async def write(tx: Any, table: str, key: str, kind: str) -> None:
        db = await tx.enlist(resource)
        await db.execute(f"insert into {table} values ($1, $2, $3)", key, tx.id, kind)  # noqa: S608  our own two names

    return subscriber


def subscriber_of(name: str, settings: Settings) -> tutti.Subscriber:
    resource = settings.resource(name)
    return receipts(resource) if name == RECEIPTS else bank(name, resource)
