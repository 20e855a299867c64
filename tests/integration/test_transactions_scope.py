"""Who can read what: private payloads, public events on commit, handlers with and without `tx`."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import tutti
from tests.integration.transaction_stage import (
    Cancellation,
    Invitation,
    Stage,
    all_idle,
    fails_with,
    meeting,
    serving,
    until,
)
from tutti.bus.nats.transport import NatsTransport
from tutti.bus.port import FromEarliest, Record
from tutti.errors import TransactionAborted
from tutti.model.involvement import SEALED
from tutti.model.subjects import Layout

MARKER = "FW26-top-secret"


def all_of(record: Record) -> bytes:
    return f"{record.subject} {record.headers}".encode() + record.data


async def stored(bus: tutti.Bus) -> list[bytes]:
    """Everything in every stream of the namespace, headers and subjects included, as a client with all rights reads
    it."""
    transport, found = bus.context.transport, []
    for name in await transport.stream_names():
        info = await transport.stream_info(name)
        if info is None or not info.messages or not name.startswith(bus.context.layout.namespace):
            continue
        reader = await transport.reader(name, (">",), FromEarliest())
        while await reader.horizon() < info.last:
            found += [all_of(record) for record in await reader.batch(100, wait=0.5)]
        await reader.close()
    return found


@pytest.mark.parametrize("group", ["", "venues"])
@pytest.mark.parametrize("scope", ["private", "public"])
async def test_a_client_with_all_rights_reads_no_private_payload(stage: Stage, scope: Any, group: str) -> None:
    """It listens to everything, and reads every stream; the marker of a public transaction shows that it would see."""
    bus = await stage.bus()
    rooms, other = await stage.member("rooms", group=group), await stage.member("other", group=group)
    rooms.mood = "react"
    spy = NatsTransport(tutti.NatsOptions(urls=(stage.url,), synced=True), Layout(stage.namespace))
    await spy.start()
    heard: list[bytes] = []
    listener = await spy.listen(">")

    async def listen() -> None:
        async for record in listener:
            heard.append(all_of(record))  # noqa: PERF401  one after another, as they come

    listening = asyncio.create_task(listen())
    async with serving(bus, rooms, other):
        options = {"group": group} if group else {}
        async with meeting(bus, 2, scope=scope, **options) as tx:
            await tx.publish(Invitation(MARKER))
            await tx.commit(wait="ended")
        everything = await stored(bus)
    assert await rooms.booked() == await other.booked() == [MARKER]
    await until(lambda: any(SEALED.encode() in one or MARKER.encode() in one for one in heard))
    await listener.close()
    await listening
    await spy.close()
    seen = [one for one in (*everything, *heard) if MARKER.encode() in one or b"reacts" in one]
    assert bool(seen) == (scope == "public")
    assert len(everything) > 3


async def test_secrets_do_not_stand_in_the_journal_or_in_files_that_others_read(stage: Stage) -> None:
    bus = await stage.bus()
    rooms = await stage.member("rooms")
    async with serving(bus, rooms), meeting(bus, 1, scope="private") as tx:
        await tx.publish(Invitation(MARKER))
        await tx.commit(wait="ended")
    await asyncio.to_thread(check_files, stage.folder / "journal")


def check_files(folder: Path) -> None:
    assert {path.name for path in folder.iterdir()} >= {"journal.sqlite", "journal.key", "participants.db"}
    for path in folder.iterdir():
        assert MARKER.encode() not in path.read_bytes(), path.name
    # The participants' log holds secret keys while a transaction is open.
    for name in ("journal.key", "participants.db"):
        assert (folder / name).stat().st_mode & 0o077 == 0, name
    with sqlite3.connect(folder / "participants.db") as log:
        assert log.execute("select count(*) from participant_rows where ended_at is null").fetchone() == (0,)


async def test_ordinary_subscribers_see_public_events_on_commit_only(stage: Stage) -> None:
    bus = await stage.bus()
    rooms = await stage.member("rooms")
    seen: list[str] = []
    watcher = tutti.Subscriber("watcher")

    @watcher.on(Invitation)
    async def note(event: Invitation) -> None:
        seen.append(event.room)

    async with bus.serve(watcher), serving(bus, rooms):
        async with meeting(bus, 1, scope="private") as tx:
            await tx.publish(Invitation("private"))
            await tx.commit(wait="ended")
        with fails_with(TransactionAborted):
            async with meeting(bus, 1, scope="public") as tx:
                await tx.publish(Invitation("aborted"))
                await tx.publish(Invitation("closed"))
        async with meeting(bus, 1, scope="public") as tx:
            await tx.publish(Invitation("one"))
            await tx.publish(Invitation("two"))
            await until(lambda: "two" in rooms.calls)
            assert seen == [], "nothing before the commit"
            await tx.commit()
        await until(lambda: len(seen) >= 2)
        await bus.publish(Invitation("plain"))
        await until(lambda: "plain" in seen)
        assert seen == ["one", "two", "plain"]
        assert rooms.calls.count("plain") == 0, "a handler with tx runs in transactions only"


async def test_a_handler_with_tx_runs_only_in_transactions_that_its_subscriber_joined(stage: Stage) -> None:
    bus = await stage.bus()
    one, two = await stage.member("one"), await stage.member("two")
    two.answer = False
    plain: list[str] = []

    async def both(event: Cancellation) -> None:
        plain.append(event.room)

    two.subscriber.on(Cancellation, name="both")(both)

    async def ignore(event: Cancellation, tx: tutti.Branch) -> None: ...

    one.subscriber.on(Cancellation, name="ignore")(ignore)
    async with serving(bus, one, two):
        async with meeting(bus, 1, scope="public") as tx:
            await tx.publish(Invitation("FW26"))
            await tx.publish(Cancellation("FW26"))
            await tx.commit(wait="ended")
        await until(lambda: plain == ["FW26"], "the plain handler of who did not join sees it on commit")
        await all_idle(bus)
    assert (one.calls, two.calls) == (["FW26"], [])
