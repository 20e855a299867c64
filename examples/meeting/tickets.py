"""The train tickets: `tutti run examples.meeting.tickets:tickets`.

The railway does not wait for anybody's decision: a ticket is sold at once, and given back if it must be. So this part
is *compensatable*: it commits when it votes, and if the transaction aborts after all, what it did is undone.
"""

from __future__ import annotations

import tutti
from examples.meeting.meeting import PATIENCE_SECONDS, Invitation, Meeting, database_of

sales = database_of("tickets")
tickets = tutti.Subscriber("tickets", resources=[sales])


@tickets.join(Meeting, where="by_train", compensatable=True, patience=PATIENCE_SECONDS)
async def always(_: tutti.Invite[Meeting]) -> bool:
    return True


@tickets.on(Invitation)
async def reserve(event: Invitation, tx: tutti.Branch) -> None:
    db = await tx.enlist(sales)
    await db.execute("insert into ticket values ($1, $2, 'sold')", event.starts, event.subject)


@reserve.compensate
async def release(event: Invitation, tx: tutti.Branch) -> None:
    """Once, in a transaction of its own. Not a rollback: the customer can see what happened."""
    db = await tx.enlist(sales)
    await db.execute("update ticket set state = 'refunded' where starts = $1", event.starts)
