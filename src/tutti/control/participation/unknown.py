"""What a subscriber says about a transaction that it does not know: it never joined, has forgotten it, or crashed
before it wrote anything down. Nothing is prepared here, so the answers bind nobody.

It can answer only where it still has the key that the manager knows: as a member of a standing group, or from what the
driver kept of ended transactions. Otherwise the manager notices by the missing heartbeat."""

from __future__ import annotations

from tutti.model.messages import Begin, Close, Decide, Ended, ManagerMessage, Prepare, Send, To, Vote


def answer_unknown(message: ManagerMessage, member: str) -> Send | None:
    """A prepare for an unknown transaction is answered with no, and so is everything that leads to one; of a decided
    one nothing is left to end."""
    match message:
        case Begin() if member in message.members:
            return Send(
                Vote(message.tx, message.epoch, 0, member, "no", "the transaction is not known here"), To.MANAGER
            )
        case Close() | Prepare():
            no = Vote(message.tx, message.epoch, message.round, member, "no", "the transaction is not known here")
            return Send(no, To.MANAGER)
        case Decide():
            return Send(Ended(message.tx, member, message.outcome_for(member)), To.MANAGER)
        case _:
            return None
