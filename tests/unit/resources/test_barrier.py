from __future__ import annotations

import sqlite3

import pytest

from tutti.errors import InvariantViolated
from tutti.resources import barrier
from tutti.resources.gid import BranchId
from tutti.resources.port import Admission

DIALECT = barrier.Dialect(barrier.TABLE, *barrier.SQLITE_BLOB, now="1.5")
BRANCH = BranchId("rooms", "j1-1", "calendar")


def test_the_statements_are_sql_and_do_what_they_say() -> None:
    database = sqlite3.connect(":memory:")
    database.execute(barrier.create_table(DIALECT))
    database.execute(barrier.create_table(DIALECT))
    entry = bytes(range(256))
    for step, inserted in ((1, 1), (1, 0), (-3, 1)):
        done = database.execute(barrier.insert(DIALECT, BRANCH, step, "work", word="done", entry=entry))
        assert done.rowcount == inserted
    database.execute(barrier.insert(DIALECT, BRANCH, 2, "work", word="void"))
    assert database.execute(barrier.select_word(DIALECT, BRANCH, 2, "work")).fetchall() == [("void",)]
    assert database.execute(barrier.select_completed(DIALECT, BRANCH)).fetchall() == [(-3, entry), (1, entry)]
    database.execute(barrier.insert(DIALECT, BRANCH, 1, "undo", word="done"))
    assert database.execute(barrier.select_completed(DIALECT, BRANCH)).fetchall() == [(-3, entry)]
    assert database.execute(barrier.select_unsettled(DIALECT, "rooms")).fetchall() == [("j1-1", "calendar")]
    assert database.execute(barrier.select_unsettled(DIALECT, "room")).fetchall() == []
    database.execute(barrier.delete(DIALECT, BRANCH))
    assert database.execute(barrier.select_unsettled(DIALECT, "rooms")).fetchall() == []
    database.close()


def test_an_outcome_marker_alone_is_not_unsettled_work() -> None:
    database = sqlite3.connect(":memory:")
    database.execute(barrier.create_table(DIALECT))
    database.execute(barrier.insert(DIALECT, BRANCH, 0, "outcome", word="commit"))
    assert database.execute(barrier.select_unsettled(DIALECT, "rooms")).fetchall() == []
    database.close()


def test_work_is_admitted_by_what_is_there() -> None:
    assert barrier.admitted_work(inserted=True, word=None) == Admission.RUN
    assert barrier.admitted_work(inserted=False, word="done") == Admission.REPEATED
    assert barrier.admitted_work(inserted=False, word="void") == Admission.LATE
    for word in (None, "", "commit"):
        with pytest.raises(InvariantViolated):
            barrier.admitted_work(inserted=False, word=word)


def test_compensation_is_admitted_by_what_was_there() -> None:
    assert barrier.admitted_undo(voided=True, inserted=False) == Admission.EMPTY
    assert barrier.admitted_undo(voided=False, inserted=True) == Admission.RUN
    assert barrier.admitted_undo(voided=False, inserted=False) == Admission.REPEATED


def test_an_outcome_is_one_of_two_words() -> None:
    assert barrier.outcome_of("commit") == "commit"
    assert barrier.outcome_of("abort") == "abort"
    with pytest.raises(InvariantViolated):
        barrier.outcome_of("maybe")
