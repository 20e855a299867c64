"""Where the journal is, and the key that signs for it."""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

from tutti.journal import Journal
from tutti.resources import Resource
from tutti.runtime.context import Context
from tutti.runtime.transactions.coordinator import Coordinator
from tutti.runtime.transactions.keys import keep_journal_key

JOURNAL_FILE: Final = "journal.sqlite"
KEY_FILE: Final = "journal.key"
_POSTGRES: Final = ("postgresql://", "postgres://")


def coordinator_opener(
    journal: str | Path | None, folder: Path, resources: Sequence[Resource[Any]]
) -> Callable[[Context], Awaitable[Coordinator]]:
    """`journal`: a folder, or the URL of a PostgreSQL; None: it lives no longer than the process, for tests. `folder`
    has the key where the journal itself is no folder."""

    async def open_coordinator(context: Context) -> Coordinator:
        place = Path(tempfile.mkdtemp(prefix="tutti-journal-")) if journal is None else folder
        if journal is not None and not str(journal).startswith(_POSTGRES):
            place = Path(journal)
        place.mkdir(parents=True, exist_ok=True)
        key = keep_journal_key(place / KEY_FILE)
        coordinator = Coordinator(context, open_journal(journal, place), key, {one.name: one for one in resources})
        await coordinator.start()
        return coordinator

    return open_coordinator


def open_journal(journal: str | Path | None, folder: Path) -> Journal:
    """Not started. The drivers of databases are loaded only where they are used."""
    if journal is not None and str(journal).startswith(_POSTGRES):
        from tutti.journal.postgres import PostgresJournal  # noqa: PLC0415  as said

        return PostgresJournal(str(journal))
    from tutti.journal.sqlite import SqliteJournal  # noqa: PLC0415  as said

    return SqliteJournal(folder / JOURNAL_FILE)
