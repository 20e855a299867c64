from __future__ import annotations

import pytest

from tutti.control.closing import (
    ChildBegan,
    ChildDone,
    Closed,
    Closing,
    Closure,
    Dropped,
    Effect,
    Published,
    Stage,
    StillOpen,
    Unclosable,
    WorkEnded,
)
from tutti.errors import InvariantViolated
from tutti.limits import CLOSE_REPEAT_SECONDS
from tutti.model.messages import Close, Done, Received, Send, Tally, Ticked, To
from tutti.model.transaction import Counts, Member

TX, EPOCH = "j1-a", 3
MEMBERS = (Member("h1", "k1"), Member("h2", "k2", vital=False))


def closure(*published: str) -> Closure:
    machine = Closure(TX, EPOCH, MEMBERS)
    for event_type in published:
        machine.step(Published(event_type))
    return machine


def counting(*published: str) -> Closure:
    machine = closure(*published)
    machine.step(Closing(0.0))
    assert machine.step(StillOpen(1.0)) == [Send(Close(TX, EPOCH, 2), To.MEMBERS)]
    return machine


def tally(
    machine: Closure,
    member: str,
    received: Counts,
    *,
    sent: dict[str, int] | None = None,
    turn: int = 1,
    deferred: bool = False,
    handles: tuple[str, ...] = ("A", "B"),
) -> list[Effect]:
    message = Tally(TX, EPOCH, machine.round, member, turn, sent or {}, received, handles, deferred)
    effects = machine.step(Received(message, "k" + member[1:], 2.0))
    machine.check()
    return effects


def test_without_children_it_costs_nothing() -> None:
    machine = closure("A", "A", "B")
    assert machine.number_of("A") == 2
    assert machine.step(Closing(0.0)) == [Closed(1, {"manager": {"A": 2, "B": 1}}, work_ended=False)]


def test_children_are_waited_for_and_named() -> None:
    machine = closure("A")
    machine.step(ChildBegan("print"))
    machine.step(ChildBegan("mail"))
    assert machine.step(Closing(0.0)) == []
    assert machine.waiting_for() == ("child print", "child mail")
    assert machine.step(ChildDone("print", 1.0)) == []
    assert machine.step(ChildDone("print", 1.0)) == []
    assert machine.step(Received(Done(TX, EPOCH, "h1", "mail"), "k2", 1.0)) == [], "not its key"
    assert machine.step(Received(Done(TX, EPOCH - 1, "h1", "mail"), "k1", 1.0)) == [], "an older epoch"
    assert machine.step(Received(Done(TX, EPOCH, "h1", "mail"), "k1", 1.0)) != []


def test_counting_ends_when_everybody_received_what_everybody_sent() -> None:
    machine = counting("A")
    assert tally(machine, "h1", {"manager": {"A": 1}}, sent={"B": 1}) == []
    assert machine.waiting_for() == ("counts of h1", "counts of h2"), "h1 has not received its own B yet"
    assert tally(machine, "h2", {"manager": {"A": 1}}) == []
    assert tally(machine, "h1", {"manager": {"A": 1}, "h1": {"B": 1}}, sent={"B": 1}, turn=2) == []
    counts = {"manager": {"A": 1}, "h1": {"B": 1}}
    assert tally(machine, "h2", counts, turn=2) == [Closed(2, counts, work_ended=False)]


def test_types_that_a_member_does_not_handle_do_not_count_for_it() -> None:
    machine = counting("A", "B")
    tally(machine, "h1", {"manager": {"A": 1}}, handles=("A",))
    (closed,) = tally(machine, "h2", {"manager": {"B": 1}}, handles=("B",))
    assert isinstance(closed, Closed)


@pytest.mark.parametrize(
    ("message", "signer"),
    [
        (Tally(TX, EPOCH, 2, "h2", 1, {}, {}, ()), "k1"),
        (Tally(TX, EPOCH, 2, "h2", 1, {}, {}, ()), ""),
        (Tally(TX, EPOCH, 2, "h9", 1, {}, {}, ()), "k9"),
        (Tally(TX, EPOCH - 1, 2, "h2", 1, {}, {}, ()), "k2"),
        (Tally(TX, EPOCH, 1, "h2", 1, {}, {}, ()), "k2"),
    ],
)
def test_reports_of_others_and_of_other_rounds_change_nothing(message: Tally, signer: str) -> None:
    machine = counting()
    tally(machine, "h1", {})
    assert machine.step(Received(message, signer, 2.0)) == []
    assert machine.stage is Stage.COUNTING


def test_an_older_report_does_not_replace_a_newer_one() -> None:
    machine = counting("A")
    tally(machine, "h1", {"manager": {"A": 1}}, turn=2)
    tally(machine, "h1", {}, turn=1)
    (closed,) = tally(machine, "h2", {"manager": {"A": 1}})
    assert isinstance(closed, Closed)


def test_deferred_events_end_the_work_and_are_counted_again() -> None:
    machine = counting("A")
    tally(machine, "h1", {"manager": {"A": 1}}, deferred=True)
    effects = tally(machine, "h2", {"manager": {"A": 1}})
    assert effects == [WorkEnded(), Send(Close(TX, EPOCH, 3, work_ended=True), To.MEMBERS)]
    tally(machine, "h1", {"manager": {"A": 1}})
    assert tally(machine, "h2", {"manager": {"A": 1}}) == [Closed(3, {"manager": {"A": 1}}, work_ended=True)]


def test_the_question_is_repeated() -> None:
    machine = counting()
    assert machine.step(Ticked(1.0)) == []
    assert machine.step(Ticked(1.0 + CLOSE_REPEAT_SECONDS)) == [Send(Close(TX, EPOCH, 2), To.MEMBERS)]


def test_who_was_dropped_is_not_waited_for() -> None:
    machine = counting("A")
    tally(machine, "h1", {"manager": {"A": 1}})
    (closed,) = machine.step(Dropped("h2", 2.0))
    assert isinstance(closed, Closed)


def test_what_a_dropped_member_published_cannot_be_taken_out() -> None:
    machine = counting("A")
    machine.step(Dropped("h2", 2.0))
    (failed,) = tally(machine, "h1", {"manager": {"A": 1}, "h2": {"B": 1}})
    assert isinstance(failed, Unclosable)
    assert machine.stage is Stage.FAILED


def test_with_nobody_left_closing_ends() -> None:
    machine = closure("A")
    machine.step(Closing(0.0))
    for member in MEMBERS:
        machine.step(Dropped(member.hash, 0.0))
    assert [type(effect) for effect in machine.step(StillOpen(1.0))] == [Send, Closed]


def test_after_closing_nothing_is_published_and_no_child_begins() -> None:
    machine = closure()
    machine.step(Closing(0.0))
    with pytest.raises(InvariantViolated):
        machine.step(Published("A"))
    with pytest.raises(InvariantViolated):
        machine.step(ChildBegan("late"))


def test_a_child_that_begins_while_counting_is_waited_for() -> None:
    machine = counting("A")
    machine.step(ChildBegan("print"))
    tally(machine, "h1", {"manager": {"A": 1}})
    assert tally(machine, "h2", {"manager": {"A": 1}}) == []
    assert machine.step(ChildDone("print", 3.0)) == [Closed(2, {"manager": {"A": 1}}, work_ended=False)]


def test_the_work_does_not_end_over_a_child() -> None:
    machine = counting("A")
    machine.step(ChildBegan("print"))
    tally(machine, "h1", {"manager": {"A": 1}}, deferred=True)
    assert tally(machine, "h2", {"manager": {"A": 1}}) == []
    assert machine.step(ChildDone("print", 3.0))[0] == WorkEnded()


def test_a_report_of_who_was_dropped_changes_nothing() -> None:
    machine = counting("A")
    machine.step(Dropped("h2", 2.0))
    assert tally(machine, "h2", {}, sent={"A": 7}) == []
    assert tally(machine, "h1", {"manager": {"A": 1}}) == [Closed(2, {"manager": {"A": 1}}, work_ended=False)]
