"""Who belongs to a standing group: one record for each member, in the bus's state, under `group.<group>.<subscriber>`.

It says all that a manager must know before it begins a transaction with the group, and nothing secret: whoever holds
the keys' other halves has them in its own log. The record outlives the member's processes; `instance` changes with
each of them.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tutti.errors import Unreadable
from tutti.model.decoding import UNDECODABLE
from tutti.model.transaction import Member, member_hash

GROUP: Final = "group"  # the first token of the records' keys


class Enrolment(msgspec.Struct, frozen=True):
    """One member. `pseudonym` gives its hash in each transaction; what it says is signed with `key`; payload keys are
    wrapped for `wrap`. `handles` are the names of the event types that it gets. `instance` sends heartbeats while the
    member can act; empty: nobody acts for it now. `vital` is what the member itself thinks; a publisher may differ."""

    group: str
    subscriber: str
    type: str  # the name of the transaction type
    pseudonym: str
    key: str
    wrap: str
    handles: tuple[str, ...] = ()
    vital: bool = True
    instance: str = ""
    since: float = 0.0  # seconds since the epoch: when it enrolled
    format: int = 1  # of this record

    @property
    def record_key(self) -> str:
        return enrolment_key(self.group, self.subscriber)

    def member(self, tx: str, *, vital: bool | None = None) -> Member:
        """The member that it is in a transaction."""
        chosen = self.vital if vital is None else vital
        return Member(member_hash(tx, self.pseudonym), self.key, chosen, self.subscriber, self.instance)


def enrolment_key(group: str, subscriber: str) -> str:
    """Both are names that people chose, so they are tokens as they are."""
    return f"{GROUP}.{group}.{subscriber}"


def group_prefix(group: str) -> str:
    """What the keys of all its members begin with, for `Transport.state_list`."""
    return f"{GROUP}.{group}"


def encode_enrolment(enrolment: Enrolment) -> bytes:
    return msgspec.json.encode(enrolment)


def decode_enrolment(key: str, value: bytes) -> Enrolment:
    try:
        return msgspec.json.decode(value, type=Enrolment)
    except UNDECODABLE as error:
        raise Unreadable(
            f"the record {key} is unreadable: {error}", hint="somebody else wrote it: let the member enrol again"
        ) from error
