"""Journal, key and participants' log as they are on this host: for whoever looks, and begins nothing.

Nothing is made where there is nothing. A host may have the journal (a publisher's), a log (a subscriber's), or both.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from tutti.errors import DeclarationError
from tutti.journal import Journal, ParticipantLog
from tutti.journal.sqlite import SqliteParticipantLog
from tutti.model.transaction import journal_of
from tutti.runtime.transactions.keys import SigningKey, read_journal_key
from tutti.runtime.transactions.opening import JOURNAL_FILE, KEY_FILE, open_journal
from tutti.runtime.transactions.own_log import FILE as LOG_FILE

_POSTGRES = ("postgresql://", "postgres://")


class Place(msgspec.Struct, frozen=True):
    """As `tutti.connect` finds them: `journal` is a folder, or postgresql://…; in `folder` is the key where the journal
    is no folder."""

    journal: str
    folder: Path

    @property
    def shared(self) -> bool:
        return self.journal.startswith(_POSTGRES)

    @property
    def key_file(self) -> Path:
        return (self.folder if self.shared else Path(self.journal)) / KEY_FILE

    def __str__(self) -> str:
        """Without user and password."""
        if not self.shared:
            return self.journal
        scheme, _, rest = self.journal.partition("://")
        return f"{scheme}://{rest.rpartition('@')[2]}"


class Books(msgspec.Struct):
    """What was found. `key` signs for the journal."""

    place: Place
    journal: Journal | None = None
    log: ParticipantLog | None = None
    key: SigningKey | None = None

    def journal_for(self, tx: str) -> Journal | None:
        """The journal that decides this transaction, if it is the one that is here."""
        named = journal_of(tx)
        return self.journal if self.journal is not None and self.journal.id == named else None


@contextlib.asynccontextmanager
async def opened(place: Place) -> AsyncIterator[Books]:
    """`DeclarationError` if there is neither a journal nor a log."""
    async with contextlib.AsyncExitStack() as stack:
        journal, log = _journal_at(place), _log_at(place)
        if journal is None and log is None:
            raise DeclarationError(
                f"there is no journal of transactions in {place}, and no participants' log",
                hint="name its folder, or postgresql://…, with --journal or TUTTI_JOURNAL; there is one as soon as a"
                " transaction has begun, or a subscriber that takes part has started",
            )
        books = Books(place, journal, log)
        for store in (journal, log):
            if store is not None:
                await store.start()
                stack.push_async_callback(store.close)
        with contextlib.suppress(FileNotFoundError):
            books.key = read_journal_key(place.key_file)
        yield books


def _journal_at(place: Place) -> Journal | None:
    if not place.shared and not (Path(place.journal) / JOURNAL_FILE).exists():
        return None
    return open_journal(place.journal, Path(place.journal))


def _log_at(place: Place) -> ParticipantLog | None:
    if place.shared:
        from tutti.journal.postgres import PostgresParticipantLog  # noqa: PLC0415  no driver is loaded by accident

        return PostgresParticipantLog(place.journal)
    if not (Path(place.journal) / LOG_FILE).exists():
        return None
    return SqliteParticipantLog(Path(place.journal) / LOG_FILE)
