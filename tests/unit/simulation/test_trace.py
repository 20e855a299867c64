"""What happened, for people and for comparison."""

from __future__ import annotations

from tutti.model.messages import Vote
from tutti.simulation.trace import Trace


def made() -> Trace:
    trace = Trace()
    trace.note(1.0, "s0", "j1-1", Vote("j1-1", 1, 1, "m", "yes"))
    trace.note(2.0, "s1", "j1-2", "x" * 200)
    trace.note(3.0, "world", "", "the faults stop")
    return trace


def test_lines_are_short_and_leave_out_what_is_empty() -> None:
    first, second, third = made().lines()
    assert first == "    1.000  s0       j1-1   Vote(epoch=1, round=1, member='m', value='yes', deferred=False)"
    assert second.endswith("x" * 200), "words are given as they are"
    assert third.endswith("the faults stop")


def test_one_transaction_and_the_world_around_it() -> None:
    trace = made()
    assert len(trace) == 3
    assert [entry.where for entry in trace.entries("j1-1")] == ["s0", "world"]
    assert trace.lines(tx="j1-1", last=1) == trace.lines()[-1:]
    assert trace.lines(last=0) == []


def test_the_digest_is_that_of_everything() -> None:
    trace = made()
    assert trace.digest() == made().digest()
    trace.note(3.0, "world", "", "")
    assert trace.digest() != made().digest()
