"""Where subscribers of this process write down what they voted: beside the journal, in a database of its own."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from tutti.errors import DeclarationError
from tutti.journal import ParticipantLog
from tutti.journal.sqlite import SqliteParticipantLog

OpenLog = Callable[[], Awaitable[ParticipantLog]]
FILE = "participants.db"


def log_opener(place: str | Path | None) -> OpenLog:
    """`place`: a folder for SQLite, or postgresql://… where instances of a subscriber run on several hosts. None: a
    folder that is removed with the log, for a bus in memory, which forgets everything else too."""

    async def open_log() -> ParticipantLog:
        log = _log_at(place)
        await log.start()
        return log

    return open_log


def _log_at(place: str | Path | None) -> ParticipantLog:
    if place is None:
        return PassingLog(Path(tempfile.mkdtemp(prefix="tutti-")))
    text = str(place)
    if text.startswith(("postgresql://", "postgres://")):
        from tutti.journal.postgres import PostgresParticipantLog  # noqa: PLC0415  no driver is loaded by accident

        return PostgresParticipantLog(text)
    if "://" in text:
        raise DeclarationError(
            f"{text.partition('://')[0]}:// is no place for a journal", hint="name a folder, or postgresql://…"
        )
    folder = Path(place)
    folder.mkdir(parents=True, exist_ok=True)
    return SqliteParticipantLog(folder / FILE)


class PassingLog(SqliteParticipantLog):
    """In a folder of its own, which goes with it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / FILE)
        self._folder = folder

    async def close(self) -> None:
        await super().close()
        shutil.rmtree(self._folder, ignore_errors=True)
