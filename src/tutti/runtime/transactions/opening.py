"""Where the journal is, and the key that signs for it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

from tutti.errors import DeclarationError
from tutti.journal import Journal
from tutti.journal.sqlite import SqliteJournal
from tutti.resources import Resource
from tutti.runtime.context import Context
from tutti.runtime.transactions.coordinator import Coordinator
from tutti.runtime.transactions.keys import SigningKey, keep_journal_key

JOURNAL_FILE: Final = "journal.sqlite"
KEY_FILE: Final = "journal.key"
_POSTGRES: Final = ("postgresql://", "postgres://")


def coordinator_opener(
    journal: str | Path | None, folder: Path, resources: Sequence[Resource[Any]]
) -> Callable[[Context], Awaitable[Coordinator]]:
    """`journal`: a folder, or the URL of a PostgreSQL; None: it lives no longer than the process, for tests. `folder`
    has the key where the journal itself is no folder."""
    if "://" in str(journal) and not str(journal).startswith(_POSTGRES):
        raise DeclarationError(
            f"{str(journal).partition('://')[0]}:// is no place for a journal", hint="name a folder, or postgresql://…"
        )

    async def open_coordinator(context: Context) -> Coordinator:
        known = {one.name: one for one in resources}
        if journal is None:
            passing = PassingJournal(Path(tempfile.mkdtemp(prefix="tutti-")), clock=context.clock.wall)
            coordinator = Coordinator(context, passing, SigningKey.fresh(), known)
        else:
            place = folder if str(journal).startswith(_POSTGRES) else Path(journal)
            place.mkdir(parents=True, exist_ok=True)
            key = keep_journal_key(place / KEY_FILE)
            coordinator = Coordinator(context, open_journal(journal, place), key, known)
        await coordinator.start()
        return coordinator

    return open_coordinator


def open_journal(journal: str | Path, folder: Path) -> Journal:
    """Not started. The drivers of databases are loaded only where they are used."""
    if str(journal).startswith(_POSTGRES):
        from tutti.journal.postgres import PostgresJournal  # noqa: PLC0415  as said

        return PostgresJournal(str(journal))
    return SqliteJournal(folder / JOURNAL_FILE)


class PassingJournal(SqliteJournal):
    """In a folder of its own, which goes with it."""

    def __init__(self, folder: Path, *, clock: Callable[[], float]) -> None:
        super().__init__(folder / JOURNAL_FILE, clock=clock)
        self._folder = folder

    async def close(self) -> None:
        await super().close()
        shutil.rmtree(self._folder, ignore_errors=True)
