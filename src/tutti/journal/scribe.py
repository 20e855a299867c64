"""Threads that write down what tasks ask for, as many at a time as are waiting, with one sync for all of them.

A group is one database transaction. If one of its members is refused, or fails, the group is rolled back and everybody
in it is written alone: who is refused learns why, and the others do not notice. Nobody is answered before the commit.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

from tutti.errors import JournalError, JournalUnreachable, TuttiError
from tutti.journal.rows import Rows
from tutti.limits import JOURNAL_GROUP_MAX_COUNT

_Result = TypeVar("_Result")


class Session(Protocol):
    """One connection, used by one thread. After any error it must still be possible to `begin`."""

    @property
    def rows(self) -> Rows:
        """Of the transaction that is open."""

    def begin(self) -> None:
        """Open a transaction and read the clock; connects, or connects again, where that is needed."""

    def commit(self) -> None: ...

    def rollback(self) -> None:
        """Never raises."""

    def close(self) -> None: ...

    def explained(self, error: Exception, *, committing: bool) -> JournalError | None:
        """What a database's error means; None if it is none. `committing`: whether the commit was under way."""

    @property
    def lost(self) -> bool:
        """Whether the connection is gone: then the rest of the group fails too, and at once."""


class Job:
    """One request, and where its answer goes."""

    __slots__ = ("_future", "loop", "statements")

    def __init__(self, statements: Callable[[Rows], Any]) -> None:
        self.statements = statements
        self.loop = asyncio.get_running_loop()
        self._future: asyncio.Future[Any] = self.loop.create_future()

    def __await__(self) -> Any:
        return self._future.__await__()

    def settle(self, result: Any, error: Exception | None) -> None:
        """In its own loop."""
        if self._future.done():
            return
        if error is not None:
            self._future.set_exception(error)
        else:
            self._future.set_result(result)

    def fail(self, error: Exception) -> None:
        _tell([(self, None, error)])


Settled = tuple[Job, Any, Exception | None]


def _tell(settled: list[Settled]) -> None:
    """Each event loop is woken once for all of its jobs: waking costs more than the answer."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Settled]] = {}
    for one in settled:
        by_loop.setdefault(one[0].loop, []).append(one)
    for loop, answers in by_loop.items():
        with contextlib.suppress(RuntimeError):  # it has ended: nobody waits any more
            loop.call_soon_threadsafe(_settle, answers)


def _settle(answers: list[Settled]) -> None:
    for job, result, error in answers:
        job.settle(result, error)


_END: Final = None


class Scribe:
    """`threads` threads, each with a session of its own, take jobs from one queue."""

    def __init__(self, session: Callable[[], Session], *, name: str, threads: int, group: int) -> None:
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._session = session
        self._group = min(group, JOURNAL_GROUP_MAX_COUNT)
        self._ended = False
        self._threads = [
            threading.Thread(target=self._work, name=f"tutti-journal-{name}-{n}", daemon=True) for n in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    async def do(self, statements: Callable[[Rows], _Result]) -> _Result:
        if self._ended:
            raise JournalUnreachable("this journal was closed here", hint="start it again, or open it anew")
        job = Job(statements)
        self._jobs.put(job)
        result: _Result = await job
        return result

    def end(self) -> None:
        """Blocks until everything that was asked for is done."""
        self._ended = True
        self._jobs.put(_END)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        session = self._session()
        try:
            while jobs := self._next():
                write_group(session, jobs)
        finally:
            self._jobs.put(_END)  # for the next thread
            session.close()

    def _next(self) -> list[Job]:
        """Whoever waits, up to the size of a group; empty at the end."""
        first = self._jobs.get()
        if first is _END:
            return []
        jobs = [first]
        while len(jobs) < self._group:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                break
            if job is _END:
                self._jobs.put(_END)
                break
            jobs.append(job)
        return jobs


def write_group(session: Session, jobs: list[Job]) -> None:
    """One transaction for all, or one for each. Any error belongs to the callers that wait, so none ends the thread."""
    try:
        session.begin()
        results = [job.statements(session.rows) for job in jobs]
    except Exception as error:  # noqa: BLE001  see above
        session.rollback()
        _failed(session, jobs, error)
        return
    try:
        session.commit()
    except Exception as error:  # noqa: BLE001  see above
        session.rollback()
        meaning = session.explained(error, committing=True) or error
        for job in jobs:
            job.fail(_copied(meaning))
        return
    _tell([(job, result, None) for job, result in zip(jobs, results, strict=True)])


def _failed(session: Session, jobs: list[Job], error: Exception) -> None:
    meaning = error if isinstance(error, TuttiError) else session.explained(error, committing=False) or error
    if len(jobs) == 1 or session.lost:
        for job in jobs:
            job.fail(_copied(meaning))
        return
    for job in jobs:
        write_group(session, [job])


def _copied(error: Exception) -> Exception:
    """Each waiting task raises its own: an exception that several raise collects the tracebacks of all."""
    if not isinstance(error, TuttiError):
        return error
    copy = type(error).__new__(type(error), *error.args)
    copy.__dict__.update(error.__dict__)
    copy.__cause__ = error.__cause__
    return copy
