from __future__ import annotations

from tutti.control.participation.messages import Fetch, Handle, Part, Publish
from tutti.control.participation.work import Work
from tutti.model.messages import Close, Prepare, Send, Tally, To, Vote
from tutti.model.transaction import Consumed, Counts, ParticipantRecord

TX, ME = "j1-a", "h1"
A1 = Consumed("manager", "A", 1, 1)


def work(*, compensatable: bool = False, early: bool = False, record: ParticipantRecord | None = None) -> Work:
    return Work(Part(TX, "p1", "k1", "inbox", 60.0, ("A",), compensatable, early), ME, record)


def take(it: Work, event: Consumed = A1) -> None:
    it.receipt.take(event, deferred=False)
    it.release()


def ballot(counts: Counts, number: int = 1) -> Prepare:
    return Prepare(TX, 1, number, counts, 60.0)


def test_it_agrees_when_everything_counted_was_handled_and_published() -> None:
    it = work()
    take(it)
    assert it.go_on(1) == [Handle(A1, 1)]
    it.ask(ballot({"manager": {"A": 1}}))
    assert it.agrees()
    it.ask(ballot({"manager": {"A": 2}}))
    assert not it.agrees()
    assert it.go_on(1) == [Fetch("manager", "A", (2,))]
    assert it.go_on(1) == [], "fetched once"


def test_what_it_published_and_nobody_counted_keeps_it_open() -> None:
    it = work()
    assert it.publish("e", "B") == Publish("e", "B", 1)
    assert it.publish("f", "B") == Publish("f", "B", 2)
    it.ask(ballot({}))
    assert it.go_on(1) == [Send(Vote(TX, 1, 1, ME, "open"), To.MANAGER)]
    it.ask(ballot({ME: {"B": 2}}, 2))
    assert it.go_on(1) == []
    assert it.agrees()


def test_counts_of_its_own_that_it_does_not_know_contradict() -> None:
    it = work()
    it.ask(ballot({ME: {"B": 1}}))
    assert it.contradicts()


def test_a_report_is_repeated_only_if_asked_again_or_changed() -> None:
    it = work()
    it.ask(Close(TX, 1, 2))
    first = Send(Tally(TX, 1, 2, ME, 1, {}, {}, ("A",)), To.MANAGER)
    assert it.go_on(1) == [first]
    assert it.go_on(1) == []
    assert it.go_on(1, again=True) == [first]
    take(it)
    it.go_on(1)
    it.receipt.finish(A1)
    assert it.go_on(1) == [Send(Tally(TX, 1, 2, ME, 2, {}, {"manager": {"A": 1}}, ("A",)), To.MANAGER)]


def test_a_late_repetition_of_close_does_not_drop_the_prepare() -> None:
    it = work()
    it.ask(ballot({}, 2))
    it.ask(Close(TX, 1, 2))
    assert it.prepare is not None
    it.ask(Close(TX, 1, 3))
    assert it.prepare is None


def test_what_may_have_been_committed_is_suspected() -> None:
    early = work(compensatable=True, early=True)
    take(early)
    early.go_on(1)
    early.suspect()
    assert early.committed == [A1]
    early.complete(A1)
    assert early.committed == [A1], "once"
    at_the_vote = work(compensatable=True)
    at_the_vote.complete(A1)
    at_the_vote.suspect()
    assert at_the_vote.committed == [], "nothing is on its way"
    at_the_vote.get_ready()
    at_the_vote.suspect()
    assert at_the_vote.committed == [A1]


def test_a_branch_that_failed_is_none() -> None:
    it = work(compensatable=True)
    it.get_ready()
    it.fail()
    assert it.branches == ()


def test_it_is_what_it_wrote_down() -> None:
    it = work(compensatable=True)
    it.complete(A1)
    it.publish("e", "B")
    it.get_ready()
    record = it.record("voted", 1, 1, 60.0)
    again = work(compensatable=True, record=record)
    assert (again.sent, again.consumed, again.branches, again.committed) == ({"B": 1}, [A1], (1,), [A1])
    assert not again.receipt.is_new(A1)
