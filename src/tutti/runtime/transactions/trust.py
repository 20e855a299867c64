"""Whom do we believe when somebody speaks as a manager?

A namespace has one journal: that of the data folder, or a PostgreSQL that several hosts share. Its id and public key
stand in the bus's state, under `journal`, written once by whoever begins the first transaction; nobody replaces them.
Whoever does not want to believe the first that writes there pins the key (`tutti.connect(trusted=…)`); in a data folder
with the journal's key that is done already.
"""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from tutti.bus.port import Transport
from tutti.errors import Conflict, JournalUnfit, Unreadable
from tutti.model.decoding import UNDECODABLE

log = logging.getLogger("tutti.transactions")

_RECORD: Final = "journal"


class JournalRecord(msgspec.Struct, frozen=True):
    """The journal of a namespace. `key` is public: what managers say is signed with its other half."""

    id: str
    key: str
    format: int = 1  # of this record


class Trust:
    """Read once; from then on it does not change while the process lives, whatever the state says. `pinned`: the key by
    configuration; then the state is not asked whom to believe."""

    def __init__(self, transport: Transport, pinned: str = "") -> None:
        self._transport = transport
        self._pinned = pinned
        self._known: JournalRecord | None = None

    @property
    def key(self) -> str:
        """Of the journal; empty while there is none."""
        return self._pinned or (self._known.key if self._known is not None else "")

    @property
    def journal(self) -> str:
        return self._known.id if self._known is not None else ""

    async def load(self) -> str:
        """The key, looked up if it is not known yet."""
        if self._known is None:
            entry = await self._transport.state_get(_RECORD)
            self._known = _decoded(entry.value) if entry is not None else None
            if self._known is not None and self._known.key != self.key:
                log.warning("the bus names a journal (%s) whose key is not the one that is trusted", self._known.id)
        return self.key

    async def declare(self, journal: str, key: str) -> None:
        """This is the journal of the namespace, unless another one was before."""
        await self.load()
        if self._known is None:
            mine = JournalRecord(journal, key)
            try:
                await self._transport.state_put(_RECORD, msgspec.json.encode(mine), expected=0)
                self._known = mine
            except Conflict:
                await self.load()
        if (self.journal, self.key) != (journal, key):
            raise JournalUnfit(
                f"the transactions of this namespace are decided by journal {self.journal}, and this is {journal}"
                if self.journal != journal
                else f"the key of journal {journal} is not the one that this namespace knows",
                hint="name the same journal in all processes (`tutti.connect(journal=…)`), or another namespace",
            )


def _decoded(value: bytes) -> JournalRecord:
    try:
        return msgspec.json.decode(value, type=JournalRecord)
    except UNDECODABLE as error:
        raise Unreadable(f"the record {_RECORD} is unreadable: {error}", hint="who else writes there?") from error
