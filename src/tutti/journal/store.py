"""A small database that tasks write to: one scribe for writes, in groups, and one for questions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from tutti.errors import JournalUnreachable
from tutti.journal.rows import Rows
from tutti.journal.scribe import Scribe, Session
from tutti.limits import JOURNAL_GROUP_MAX_COUNT

_Result = TypeVar("_Result")


class SqlStore:
    """`prepare` creates or checks the tables and returns the database's id; it blocks."""

    def __init__(
        self,
        *,
        prepare: Callable[[], str],
        writer: Callable[[], Session],
        reader: Callable[[], Session],
        writers: int,
        readers: int,
    ) -> None:
        self._prepare = prepare
        self._new = (writer, reader)
        self._threads = (writers, readers)
        self._id = ""
        self._scribes: tuple[Scribe, Scribe] | None = None

    async def start(self) -> None:
        if self._scribes is not None:
            return
        self._id = await asyncio.to_thread(self._prepare)
        (writer, reader), (writers, readers) = self._new, self._threads
        self._scribes = (
            Scribe(writer, name="write", threads=writers, group=JOURNAL_GROUP_MAX_COUNT),
            Scribe(reader, name="read", threads=readers, group=1),
        )

    async def close(self) -> None:
        scribes, self._scribes = self._scribes, None
        for scribe in scribes or ():
            await asyncio.to_thread(scribe.end)

    async def now(self) -> float:
        return await self._ask(lambda rows: rows.now)

    async def _write(self, statements: Callable[[Rows], _Result]) -> _Result:
        return await self._running()[0].do(statements)

    async def _ask(self, statements: Callable[[Rows], _Result]) -> _Result:
        return await self._running()[1].do(statements)

    def _running(self) -> tuple[Scribe, Scribe]:
        if self._scribes is None:
            raise JournalUnreachable("this journal was not started here, or was closed", hint="await journal.start()")
        return self._scribes
