"""How an event says that it belongs to a transaction: extension attributes, so that any CloudEvents consumer reads it.

What is not for others' eyes travels in headers of its own: the prepare that a last event carries (`PREPARE_HEADER`),
and the wrapped keys of a private transaction without a begin (`KEYS_HEADER`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from tutti.errors import InvalidEvent
from tutti.model import attributes
from tutti.model.transaction import Scope

PREPARE_HEADER: Final = "Tutti-Prepare"  # base64 of the encoded envelope
KEYS_HEADER: Final = "Tutti-Keys"  # base64 of msgpack: the payload key, wrapped for each member, by hash
SEALED: Final = "application/tutti-sealed"  # the content type of an encrypted payload: nonce, then cipher text

_SCOPES: Final[dict[str, Scope]] = {"private": "private", "public": "public"}


class Involvement(msgspec.Struct, frozen=True):
    """The event's place in its transaction. `publisher` is a member's hash, or PUBLISHER; `number` counts its events of
    this type there, from 1; `contact` is the subject of the manager; `attempts`: how often a handler may be
    tried before its member votes to abort."""

    tx: str
    publisher: str
    number: int
    scope: Scope
    contact: str
    epoch: int
    deadline: float
    group: str = ""
    parent: str = ""
    attempts: int = 1

    def extensions(self) -> dict[str, str]:
        found = {
            attributes.TX_ID: self.tx,
            attributes.TX_PUBLISHER: self.publisher,
            attributes.TX_SEQUENCE: attributes.sequence_text(self.number),
            attributes.TX_SCOPE: self.scope,
            attributes.TX_CONTACT: self.contact,
            attributes.TX_EPOCH: str(self.epoch),
            attributes.TX_DEADLINE: repr(self.deadline),
        }
        if self.group:
            found[attributes.TX_GROUP] = self.group
        if self.parent:
            found[attributes.TX_PARENT] = self.parent
        if self.attempts > 1:
            found[attributes.TX_ATTEMPTS] = str(self.attempts)
        return found


def involvement_of(extensions: Mapping[str, str]) -> Involvement | None:
    """None for an event outside transactions; `InvalidEvent` for one that only half says where it belongs."""
    tx = extensions.get(attributes.TX_ID)
    if tx is None:
        return None
    number = extensions.get(attributes.TX_SEQUENCE, "")
    scope = _SCOPES.get(extensions.get(attributes.TX_SCOPE, ""))
    publisher = extensions.get(attributes.TX_PUBLISHER, "")
    if not attributes.is_sequence(number) or scope is None or not publisher:
        raise InvalidEvent(f"an event of {tx} does not say its place in it: {_told(extensions)}", hint=_WHO)
    try:
        epoch, deadline = int(extensions[attributes.TX_EPOCH]), float(extensions[attributes.TX_DEADLINE])
        attempts = int(extensions.get(attributes.TX_ATTEMPTS, "1"))
    except (KeyError, ValueError):
        raise InvalidEvent(f"an event of {tx} does not name its manager: {_told(extensions)}", hint=_WHO) from None
    contact: str = extensions.get(attributes.TX_CONTACT, "")
    group, parent = extensions.get(attributes.TX_GROUP, ""), extensions.get(attributes.TX_PARENT, "")
    return Involvement(tx, publisher, int(number), scope, contact, epoch, deadline, group, parent, attempts)


_WHO: Final = "who else publishes on Tutti's subjects?"


def _told(extensions: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in sorted(extensions.items()) if name.startswith("tx")}
