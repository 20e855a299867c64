"""Every kind of database inside a real transaction: at the publisher, and at a member."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import tutti
from tests.integration.postgres_adapters import ADAPTERS, OPTIONS, Adapter
from tests.integration.transaction_stage import (
    Invitation,
    Meeting,
    Stage,
    all_idle,
    fails_with,
    meeting,
    serving,
    until,
)
from tutti.errors import TransactionAborted, UncheckedTransaction
from tutti.resources.sqlite import SqliteResource


def insert(room: str, tx: str) -> str:
    return f"insert into booked (room, tx) values ('{room}', '{tx}')"  # noqa: S608  our own names


@pytest.mark.parametrize("adapter", ADAPTERS, ids=str)
async def test_each_postgresql_driver_at_the_publisher_and_at_a_member(stage: Stage, adapter: Adapter) -> None:
    bus = await stage.bus()
    mine, theirs = await stage.database(), await stage.database()
    host, calendar = adapter.make("host", mine, OPTIONS), adapter.make("calendar", theirs, OPTIONS)
    rooms = tutti.Subscriber("rooms", resources=[calendar])
    rooms.enrol("venues", Meeting)

    @rooms.on(Invitation)
    async def book(event: Invitation, tx: tutti.Branch) -> None:
        await adapter.execute(await tx.enlist(calendar), insert(event.room, tx.id))
        if event.room == "closed":
            raise ValueError("the room is closed")

    async with bus.serve(rooms):
        for room in ("FW26", "FW27"):
            async with meeting(bus, group="venues") as tx:
                await adapter.execute(await tx.enlist(host), insert(f"my {room}", tx.id))
                await tx.publish(Invitation(room), last=True)
                await tx.commit(wait="ended")
        with fails_with(TransactionAborted, "the room is closed"):
            async with meeting(bus, group="venues") as tx:
                await adapter.execute(await tx.enlist(host), insert("mine", tx.id))
                await tx.publish(Invitation("closed"))
        await all_idle(bus)
        await until(lambda: _nothing_prepared(stage, mine, theirs))
    await host.close()
    await calendar.close()
    assert await stage.booked(mine) == ["my FW26", "my FW27"]
    assert await stage.booked(theirs) == ["FW26", "FW27"]


async def _nothing_prepared(stage: Stage, *urls: str) -> bool:
    return not [gid for url in urls for gid in await stage.prepared(url)]


# SQLite


def sqlite_database(folder: Path, name: str) -> Path:
    path = folder / f"{name}.db"
    with sqlite3.connect(path) as database:
        database.execute("create table booked (number integer primary key, room text not null, tx text not null)")
    return path


def rows(path: Path) -> list[str]:
    with sqlite3.connect(path) as database:
        return [room for (room,) in database.execute("select room from booked order by number")]


async def test_sqlite_is_the_last_resource_of_a_publisher(stage: Stage) -> None:
    bus, path = await stage.bus(), sqlite_database(stage.folder, "mine")
    notes, member = SqliteResource("notes", path), await stage.member("rooms")
    async with serving(bus, member):
        async with meeting(bus, 1) as tx:
            await (await tx.enlist(notes)).execute(insert("mine", tx.id))
            await tx.publish(Invitation("FW26"))
            await tx.commit(wait="ended")
        member.mood = "closed"
        with fails_with(TransactionAborted):
            async with meeting(bus, 1) as tx:
                await (await tx.enlist(notes)).execute(insert("not mine", tx.id))
                await tx.publish(Invitation("FW27"))
        await all_idle(bus)
    await notes.close()
    assert rows(path) == ["mine"]
    assert await member.booked() == ["FW26"]


async def test_sqlite_is_compensatable_at_a_member(stage: Stage) -> None:
    bus, path = await stage.bus(), sqlite_database(stage.folder, "theirs")
    notes, peer = SqliteResource("notes", path), await stage.member("peer")
    tickets = tutti.Subscriber("tickets", resources=[notes])

    @tickets.join(Meeting, compensatable=True)
    async def always(invite: tutti.Invite[Meeting]) -> bool:
        return True

    @tickets.on(Invitation)
    async def reserve(event: Invitation, tx: tutti.Branch) -> None:
        await (await tx.enlist(notes)).execute(insert(event.room, tx.id))

    @reserve.compensate
    async def release(event: Invitation, tx: tutti.Branch) -> None:
        await (await tx.enlist(notes)).execute("delete from booked where tx = ?", (tx.id,))

    async with bus.serve(tickets), serving(bus, peer):
        async with meeting(bus, 2) as tx:
            await tx.publish(Invitation("FW26"))
            await tx.commit(wait="ended")
        peer.mood = "slow"
        async with meeting(bus, 2) as tx:
            await tx.publish(Invitation("FW27"))
            with fails_with(UncheckedTransaction):
                await tx.commit(timeout=0.3)
            await until(lambda: rows(path) == ["FW26", "FW27"], "it commits with its vote")
            await tx.abort()
        await all_idle(bus)
    await notes.close()
    assert rows(path) == ["FW26"]
    assert await peer.booked() == ["FW26"]
