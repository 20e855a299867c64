"""Where the journal is, and the key that signs for it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from tutti.errors import DeclarationError, JournalUnfit
from tutti.journal import Journal
from tutti.journal.sqlite import SqliteJournal
from tutti.resources import Resource
from tutti.runtime.context import Context
from tutti.runtime.transactions.coordinator import Coordinator
from tutti.runtime.transactions.keys import SigningKey, keep_journal_key, read_journal_key

JOURNAL_FILE: Final = "journal.sqlite"
KEY_FILE: Final = "journal.key"
_POSTGRES: Final = ("postgresql://", "postgres://")


class CoordinatorOpener:
    """`journal`: a folder, or the URL of a PostgreSQL; None: it lives no longer than the process, for tests. `folder`
    has the key where the journal itself is no folder."""

    def __init__(self, journal: str | Path | None, folder: Path, resources: Sequence[Resource[Any]] = ()) -> None:
        self._on_server = str(journal).startswith(_POSTGRES)
        if "://" in str(journal) and not self._on_server:
            raise DeclarationError(
                f"{str(journal).partition('://')[0]}:// is no place for a journal",
                hint="name a folder, or postgresql://…",
            )
        self._journal = journal
        self._place = folder if self._on_server or journal is None else Path(journal)
        self._resources = {one.name: one for one in resources}

    def exists(self) -> bool:
        """Whether there is a journal that this process can speak for. Does not make one."""
        place = self._place
        return (
            self._journal is not None
            and (place / KEY_FILE).exists()
            and (self._on_server or (place / JOURNAL_FILE).exists())
        )

    def public_key(self) -> str:
        """Of that journal; empty if there is none."""
        return read_journal_key(self._place / KEY_FILE).public if self.exists() else ""

    async def __call__(self, context: Context) -> Coordinator:
        if self._journal is None:
            passing = PassingJournal(Path(tempfile.mkdtemp(prefix="tutti-")), clock=context.clock.wall)
            coordinator = Coordinator(context, passing, SigningKey.fresh(), self._resources)
        else:
            key = self._key()
            coordinator = Coordinator(context, open_journal(self._journal, self._place), key, self._resources)
        await coordinator.start()
        return coordinator

    def _key(self) -> SigningKey:
        try:
            self._place.mkdir(parents=True, exist_ok=True)
            return keep_journal_key(self._place / KEY_FILE)
        except (OSError, ValueError) as error:  # ValueError: such a path cannot be
            raise JournalUnfit(
                f"the journal's key cannot be kept in {str(self._place)!r}: {error}",
                hint="name a folder that this process may write to, on a disk with room",
            ) from error


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
