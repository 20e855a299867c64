"""The room booking: `tutti run examples.meeting.rooms:rooms`."""

from __future__ import annotations

import tutti
from examples.meeting.meeting import PATIENCE_SECONDS, Invitation, Meeting, database_of

bookings = database_of("rooms")
rooms = tutti.Subscriber("rooms", resources=[bookings])


@rooms.join(Meeting, patience=PATIENCE_SECONDS)
async def interested(_: tutti.Invite[Meeting]) -> bool:
    return True


@rooms.on(Invitation)
async def book(event: Invitation, tx: tutti.Branch) -> None:
    """Prepared when it votes: nobody else can have the room until the decision is known."""
    db = await tx.enlist(bookings)
    slot = (event.room, event.starts)
    other = await db.fetchval("select subject from booking where room = $1 and starts = $2", *slot)
    if other is not None:
        raise ValueError(f"{event.room} is taken by {other}")  # an exception is a no
    await db.execute("insert into booking values ($1, $2, $3)", *slot, event.subject)
