"""What the own log holds: a no is said when it stands there, and not before."""

from __future__ import annotations

from tutti.control.participation.messages import LogFailed, LogWritten
from tutti.control.participation.notes import Notes
from tutti.limits import FINISH_RETRY_SECONDS
from tutti.model.transaction import ParticipantRecord

RECORD = ParticipantRecord("j1-a", "p1", "k1", "working", 1, 1, 60.0)


def test_without_a_no_an_answer_releases_nothing() -> None:
    notes = Notes()
    assert notes.write(RECORD).record == RECORD
    assert notes.answer(LogWritten(1, 1.0), 1.0) == ""
    assert not notes.there, "that is for the machine to say, which knows what was written"


def test_a_no_is_said_once_when_it_is_written() -> None:
    notes = Notes()
    notes.write_no(RECORD, "full")
    assert notes.there, "it may be in the log from now on"
    assert notes.answer(LogWritten(1, 1.0), 1.0) == "full"
    assert notes.unsaid == ""
    assert notes.answer(LogWritten(1, 1.0), 1.0) == ""


def test_a_no_waits_for_what_is_written_before_it() -> None:
    notes = Notes()
    notes.write(RECORD)
    notes.write_no(RECORD, "full")
    assert notes.answer(LogFailed(1, "busy", 1.0), 1.0) == "", "this was the answer to the yes"
    assert notes.wake_at is None
    assert notes.answer(LogWritten(1, 1.0), 1.0) == "full"


def test_a_no_that_could_not_be_written_is_written_again_after_a_pause() -> None:
    notes = Notes()
    written = notes.write_no(RECORD, "full")
    assert notes.answer(LogFailed(1, "busy", 1.0), 1.0) == ""
    assert notes.wake_at == 1.0 + FINISH_RETRY_SECONDS
    assert notes.tick(1.0) == []
    assert notes.tick(1.0 + FINISH_RETRY_SECONDS) == [written]
    assert notes.tick(9.0) == [], "once"
    assert notes.answer(LogWritten(1, 9.0), 9.0) == "full"
