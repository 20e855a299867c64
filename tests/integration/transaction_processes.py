"""A subscriber as a process of its own: `python -m tests.integration.transaction_processes <url> <namespace> <journal>
<database> <name> [compensatable]`. It says what it does, a line for each, and waits for its end."""

from __future__ import annotations

import asyncio
import sys

import tutti
from tests.integration.transaction_stage import OPTIONS, Invitation, Meeting
from tutti.resources.postgres.asyncpg import AsyncpgResource


def say(*words: str) -> None:
    print(*words, flush=True)


async def main(url: str, namespace: str, journal: str, database: str, name: str, *words: str) -> None:
    compensatable = "compensatable" in words
    calendar = AsyncpgResource("calendar", database, OPTIONS)
    rooms = tutti.Subscriber(name, resources=[calendar])

    @rooms.join(Meeting, compensatable=compensatable, patience=0.5)
    async def interested(invite: tutti.Invite[Meeting]) -> bool:
        return True

    @rooms.on(Invitation)
    async def book(event: Invitation, tx: tutti.Branch) -> None:
        db = await tx.enlist(calendar)
        await db.execute("insert into booked (room, tx) values ($1, $2)", event.room, tx.id)
        say("handled", event.room)
        if event.room == "stuck":
            await asyncio.Event().wait()

    @book.compensate
    async def release(event: Invitation, tx: tutti.Branch) -> None:
        db = await tx.enlist(calendar)
        await db.execute("delete from booked where room = $1 and tx = $2", event.room, tx.id)
        say("undone", event.room)

    options = tutti.NatsOptions(urls=(url,), synced=True)
    async with (
        tutti.connect(url, namespace=namespace, options=options, journal=journal) as bus,
        bus.serve(rooms),
    ):
        say("serving")
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
