"""Group commit, with a session that counts and fails when it is told to."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from tutti.errors import AnswerLost, JournalError, JournalUnreachable, UnknownTransaction
from tutti.journal.rows import Row, Rows
from tutti.journal.scribe import Scribe

PATIENCE = 10.0


class FakeRows:
    now = 1.0
    lock = ""

    def __init__(self) -> None:
        self.pending: list[object] = []

    def all(self, statement: str, *values: object) -> list[Row]:
        raise NotImplementedError

    def one(self, statement: str, *values: object) -> Row | None:
        raise NotImplementedError

    def run(self, statement: str, *values: object) -> int:  # noqa: ARG002  it only remembers
        self.pending += values
        return 1


class DatabaseDown(Exception):
    pass


class FakeSession:
    """Commits go to `committed`, one list for each; `gate` holds the first commit back."""

    def __init__(self, *, fail: str = "") -> None:
        self.rows: FakeRows = FakeRows()
        self.committed: list[list[object]] = []
        self.fail = fail
        self.lost = False
        self.closed = False
        self.gate = threading.Event()
        self.gate.set()
        self.reached = threading.Event()

    def begin(self) -> None:
        if self.fail == "begin":
            self.lost = True
            raise DatabaseDown
        self.rows.pending = []

    def commit(self) -> None:
        self.reached.set()
        assert self.gate.wait(PATIENCE)
        if self.fail == "commit":
            raise DatabaseDown
        self.committed.append(self.rows.pending)

    def rollback(self) -> None:
        self.rows.pending = []

    def close(self) -> None:
        self.closed = True

    def explained(self, error: Exception, *, committing: bool) -> JournalError | None:
        if not isinstance(error, DatabaseDown):
            return None
        return AnswerLost("lost") if committing else JournalUnreachable("down")


def writing(value: object, *, refused: Exception | None = None) -> Callable[[Rows], object]:
    def statements(rows: Rows) -> object:
        rows.run("", value)
        if refused is not None:
            raise refused
        return value

    return statements


async def held(session: FakeSession, scribe: Scribe) -> asyncio.Task[object]:
    """A first write that stays in its commit: what is asked for now waits behind it."""
    session.gate.clear()
    first = asyncio.ensure_future(scribe.do(writing("first")))
    assert await asyncio.to_thread(session.reached.wait, PATIENCE)
    return first


async def test_who_waits_together_is_written_together() -> None:
    session = FakeSession()
    scribe = Scribe(lambda: session, name="test", threads=1, group=100)
    first = await held(session, scribe)
    others = [asyncio.ensure_future(scribe.do(writing(n))) for n in range(50)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in (first, *others)), "nobody is answered before the commit"
    session.gate.set()
    assert await first == "first"
    assert await asyncio.gather(*others) == list(range(50))
    assert session.committed == [["first"], list(range(50))]
    await asyncio.to_thread(scribe.end)
    assert session.closed


async def test_a_group_has_its_limit() -> None:
    session = FakeSession()
    scribe = Scribe(lambda: session, name="test", threads=1, group=3)
    first = await held(session, scribe)
    others = [asyncio.ensure_future(scribe.do(writing(n))) for n in range(7)]
    await asyncio.sleep(0)
    session.gate.set()
    await asyncio.gather(first, *others)
    assert [len(group) for group in session.committed] == [1, 3, 3, 1]
    await asyncio.to_thread(scribe.end)


@pytest.mark.parametrize("refusal", [UnknownTransaction("no"), ValueError("a bug")])
async def test_of_a_group_only_the_refused_one_is_refused(refusal: Exception) -> None:
    session = FakeSession()
    scribe = Scribe(lambda: session, name="test", threads=1, group=100)
    first = await held(session, scribe)
    wrong = [writing(n, refused=refusal if n == 2 else None) for n in range(5)]
    others = [asyncio.ensure_future(scribe.do(statements)) for statements in wrong]
    await asyncio.sleep(0)
    session.gate.set()
    found = await asyncio.gather(*others, return_exceptions=True)
    await first
    assert isinstance(found[2], type(refusal))
    assert [one for one in found if not isinstance(one, Exception)] == [0, 1, 3, 4]
    assert session.committed == [["first"], [0], [1], [3], [4]]
    await asyncio.to_thread(scribe.end)


async def test_a_commit_without_answer_is_no_refusal() -> None:
    session = FakeSession(fail="commit")
    scribe = Scribe(lambda: session, name="test", threads=1, group=100)
    first = await held(session, scribe)
    others = [asyncio.ensure_future(scribe.do(writing(n))) for n in range(3)]
    await asyncio.sleep(0)
    session.gate.set()
    found = await asyncio.gather(first, *others, return_exceptions=True)
    assert [type(one) for one in found] == [AnswerLost] * 4
    assert len({id(one) for one in found[1:]}) == 3, "each task raises an exception of its own"
    session.fail = ""
    assert await scribe.do(writing("again")) == "again"
    await asyncio.to_thread(scribe.end)


async def test_without_connection_nothing_is_tried_one_by_one() -> None:
    session = FakeSession(fail="begin")
    scribe = Scribe(lambda: session, name="test", threads=1, group=100)
    found = await asyncio.gather(*(scribe.do(writing(n)) for n in range(3)), return_exceptions=True)
    assert [type(one) for one in found] == [JournalUnreachable] * 3
    await asyncio.to_thread(scribe.end)


async def test_a_caller_that_gave_up_stops_nobody() -> None:
    session = FakeSession()
    scribe = Scribe(lambda: session, name="test", threads=1, group=100)
    first = await held(session, scribe)
    impatient, patient = (asyncio.ensure_future(scribe.do(writing(n))) for n in range(2))
    await asyncio.sleep(0)
    impatient.cancel()
    session.gate.set()
    assert await patient == 1
    await first
    assert session.committed[1] == [0, 1], "what was asked for is written all the same"
    await asyncio.to_thread(scribe.end)


async def test_the_end_waits_for_what_was_asked() -> None:
    session = FakeSession()
    scribe = Scribe(lambda: session, name="test", threads=1, group=1)
    first = await held(session, scribe)
    others = [asyncio.ensure_future(scribe.do(writing(n))) for n in range(5)]
    await asyncio.sleep(0)
    ending = asyncio.ensure_future(asyncio.to_thread(scribe.end))
    session.gate.set()
    await asyncio.gather(first, ending, *others)
    assert len(session.committed) == 6
    with pytest.raises(JournalUnreachable, match="closed"):
        await scribe.do(writing("late"))


async def test_several_threads_share_the_work_and_all_end() -> None:
    sessions: list[FakeSession] = []

    def session() -> FakeSession:
        sessions.append(FakeSession())
        return sessions[-1]

    scribe = Scribe(session, name="test", threads=3, group=2)
    assert await asyncio.gather(*(scribe.do(writing(n)) for n in range(60))) == list(range(60))
    await asyncio.to_thread(scribe.end)
    assert len(sessions) == 3
    assert all(one.closed for one in sessions)
    assert sum(len(group) for one in sessions for group in one.committed) == 60
