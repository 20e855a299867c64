"""The invitees: `tutti run examples.meeting.invitees:ann`, and `…:bob` elsewhere. Each has a calendar of its own."""

from __future__ import annotations

import asyncpg

import tutti
from examples.meeting.meeting import PATIENCE_SECONDS, Invitation, Meeting, database_of


def invitee(name: str) -> tutti.Subscriber:
    calendar = database_of(name)
    person = tutti.Subscriber(name, resources=[calendar])

    @person.join(Meeting, where="subject = 'DSOnline'", patience=PATIENCE_SECONDS)
    async def interested(census: tutti.Invite[Meeting]) -> bool:
        return census.data.starts.hour < 18  # later we are at home

    @person.on(Invitation)
    async def accept(event: Invitation, tx: tutti.Branch) -> None:
        db = await tx.enlist(calendar)
        try:
            await db.execute("insert into appointment values ($1, $2)", event.starts, event.subject)
        except asyncpg.UniqueViolationError:
            raise ValueError(f"{name} is busy at {event.starts:%H:%M}") from None

    return person


ann = invitee("ann")
bob = invitee("bob")
