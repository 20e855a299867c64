"""The publisher: `python -m examples.meeting.organiser DSOnline 2006-03-15T15:00+00:00 FW26 --by-train`.

One transaction covers its own calendar, the invitation, and whatever the subscribers do with it.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from datetime import datetime

import tutti
from examples.meeting.meeting import Invitation, Meeting, database_of

calendar = database_of("organiser")


async def invite(subject: str, starts: datetime, room: str, *, by_train: bool) -> None:
    parts = 4 if by_train else 3  # who they are is none of our business
    everybody = tutti.Census(at_least=parts, at_most=parts, within=10.0)
    async with tutti.connect(name="organiser") as bus:
        await bus.advertise(Invitation)
        async with bus.transaction(Meeting(subject, starts, by_train), census=everybody) as tx:
            db = await tx.enlist(calendar)
            await db.execute("insert into appointment values ($1, $2)", starts, subject)
            await tx.publish(Invitation(subject, starts, room))
            await tx.commit(wait="ended")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("subject")
    parser.add_argument("starts", type=datetime.fromisoformat)
    parser.add_argument("room")
    parser.add_argument("--by-train", action="store_true")
    given = parser.parse_args()
    try:
        asyncio.run(invite(given.subject, given.starts, given.room, by_train=given.by_train))
    except tutti.TransactionAborted as aborted:
        sys.stdout.write(f"no meeting: {aborted.reason}\n")
        return 1
    sys.stdout.write("the meeting stands\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
