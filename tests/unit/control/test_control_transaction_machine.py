"""The manager: what it sends and how much, whom it answers, and what its successor does."""

from __future__ import annotations

from typing import Literal

import pytest

from tests.unit.control.small_world import DEADLINE, TX, Habits, World
from tutti.control.transaction import messages as t
from tutti.control.transaction.life import Stage
from tutti.control.transaction.machine import Transaction
from tutti.errors import InvariantViolated
from tutti.limits import JOURNAL_RETRY_SECONDS
from tutti.model.messages import (
    Begin,
    Decide,
    Ended,
    Inquiry,
    Invite,
    Join,
    Prepare,
    Received,
    Send,
    Ticked,
    To,
    Vote,
    WakeAt,
)
from tutti.model.transaction import CensusRule, Decision, Member, TransactionRecord, member_hash

MEMBERS = (Member("h1", "k1"), Member("h2", "k2"))


def group(*members: Member) -> Transaction:
    return Transaction(t.Plan(TX, "Meeting", DEADLINE, "m1", group="g", members=members or MEMBERS))


def working(*members: Member) -> Transaction:
    machine = group(*members)
    (register, _) = machine.step(t.Started(0.0))
    assert isinstance(register, t.Register)
    assert t.Opened(members or MEMBERS) in machine.step(t.Registered(0.0))
    assert machine.open
    return machine


def vote(machine: Transaction, number: int, value: Literal["yes", "no"] = "yes") -> list[t.Effect]:
    message = Vote(TX, 1, 1, f"h{number}", value, "why")
    effects = machine.step(Received(message, f"k{number}", 1.0))
    machine.check()
    return effects


def kinds(effects: list[t.Effect]) -> list[type]:
    return [type(effect) for effect in effects if not isinstance(effect, WakeAt)]


# What it costs


def messages(n: int, *, census: bool = False, last: bool = False) -> dict[str, int]:
    world = World(0, [Habits() for _ in range(n)], census=census, last=last, faults=False)
    world.run(20.0)
    world.check_end()
    assert world.decisions[TX].outcome == "commit"
    return dict(world.sent)


@pytest.mark.parametrize("n", [1, 2, 5, 20])
def test_a_standing_group_costs_n_and_3(n: int) -> None:
    sent = messages(n)
    assert sent.pop("ended") == n, "collected over transactions by the driver, so they are counted apart"
    assert sent == {"event": 1, "prepare": 1, "vote": n, "decide": 1}
    assert sum(sent.values()) == n + 3


@pytest.mark.parametrize("n", [1, 2, 5, 20])
def test_with_the_last_event_it_costs_n_and_2(n: int) -> None:
    sent = messages(n, last=True)
    assert sent.pop("ended") == n
    assert sum(sent.values()) == n + 2


@pytest.mark.parametrize("n", [1, 2, 5, 20])
def test_a_census_adds_n_and_2(n: int) -> None:
    sent = messages(n, census=True)
    assert sent.pop("ended") == n
    assert (sent["invite"], sent["join"], sent["begin"]) == (1, n, 1)
    assert sum(sent.values()) == (n + 3) + (n + 2)


@pytest.mark.parametrize("n", [1, 2, 5, 20])
def test_the_papers_way_of_counting(n: int) -> None:
    """Without broadcast a message to n members counts n times: BTP needs 7n, CALGT 5n; with broadcast 3n+4, 2n+3."""
    sent = messages(n)
    to_each = (sent["prepare"] + sent["decide"]) * n
    point_to_point = to_each + sent["vote"]
    assert point_to_point == 3 * n
    assert point_to_point < 5 * n < 7 * n
    with_census = messages(n, census=True)
    with_census.pop("ended")
    with_census.pop("event")  # the papers count the protocol only
    assert sum(with_census.values()) == 2 * n + 4
    assert sum(sent[kind] for kind in ("prepare", "vote", "decide")) == n + 2 < 2 * n + 3 < 3 * n + 4


def test_counting_costs_only_when_a_member_published() -> None:
    world = World(0, [Habits(), Habits(publishes=1.0)], faults=False)
    world.run(20.0)
    world.check_end()
    assert world.decisions[TX].outcome == "commit"
    assert world.sent["close"] >= 1
    assert world.sent["tally"] >= 2
    assert world.sent["event"] == 2


def test_deferred_reactions_are_closed_over_twice() -> None:
    world = World(0, [Habits(), Habits(defers=True, publishes=1.0)], faults=False)
    world.run(20.0)
    world.check_end()
    assert world.decisions[TX].outcome == "commit"
    assert world.sent["close"] == 2, "one round to end the work, one for what was deferred and what that published"


# Beginning


def test_nothing_begins_before_the_journal_knows() -> None:
    rule = CensusRule(1, 1, 5.0)
    machine = Transaction(t.Plan(TX, "Meeting", DEADLINE, "m1", census=rule))
    assert isinstance(machine.step(t.Started(0.0))[0], Send)
    effects = machine.step(Received(Join(TX, "p1", "k1", wrap="w1"), "k1", 1.0))
    hashed = member_hash(TX, "p1")
    register = effects[0]
    assert isinstance(register, t.Register)
    assert (register.record.members, register.record.keys, register.record.minimum) == ((hashed,), ("k1",), 1)
    assert register.wraps == {hashed: "w1"}
    assert kinds(effects) == [t.Register]
    opened = machine.step(t.Registered(1.0, {hashed: b"wrapped"}))
    assert kinds(opened) == [t.Opened, Send]
    assert opened[1] == Send(Begin(TX, 1, (hashed,), DEADLINE, {hashed: b"wrapped"}), To.MEMBERS)


def test_a_census_that_fails_says_so_with_the_replies() -> None:
    machine = Transaction(t.Plan(TX, "Meeting", DEADLINE, "m1", census=CensusRule(2, None, 5.0)))
    machine.step(t.Started(0.0))
    machine.step(Received(Join(TX, "p1", "k1"), "k1", 1.0))
    effects = machine.step(Ticked(5.0))
    failed = next(effect for effect in effects if isinstance(effect, t.CensusFailed))
    assert [reply.pseudonym for reply in failed.replies] == ["p1"]
    assert machine.stage is Stage.FAILED
    answer = machine.step(t.CommitRequested(1, 1.0, 6.0))
    assert answer == [t.Answer(1, t.Aborted("there is no such transaction"))]


def test_abort_during_the_census_withdraws_it() -> None:
    machine = Transaction(t.Plan(TX, "Meeting", DEADLINE, "m1", census=CensusRule(2, None, 5.0)))
    machine.step(t.Started(0.0))
    effects = machine.step(t.AbortRequested(1, "changed my mind", 1.0))
    assert t.Answer(1, t.Aborted("changed my mind")) in effects


def test_a_journal_that_fails_at_registration_is_asked_again_until_the_deadline() -> None:
    machine = group()
    register = machine.step(t.Started(0.0))[0]
    machine.step(t.JournalFailed("unreachable", 0.0))
    assert register in machine.step(Ticked(JOURNAL_RETRY_SECONDS))
    assert t.CensusFailed in kinds(machine.step(Ticked(DEADLINE)))


def test_what_happens_before_the_registration_counts_after_it() -> None:
    machine = group()
    machine.step(t.Started(0.0))
    assert kinds(machine.step(t.MemberLost("h1", 0.1))) == []
    effects = machine.step(t.Registered(0.2))
    assert t.DecideInJournal in kinds(effects)


# Working and committing


def test_events_are_numbered_by_type_and_must_be_stored() -> None:
    machine = working()
    assert machine.step(t.Publishing("e1", "A", 0.0)) == [t.Publish("e1", "A", 1)]
    assert machine.step(t.Publishing("e2", "B", 0.0)) == [t.Publish("e2", "B", 1)]
    assert machine.step(t.Publishing("e3", "A", 0.0)) == [t.Publish("e3", "A", 2)]
    machine.step(t.CommitRequested(1, 9.0, 0.0))
    machine.step(t.Stored("e1", 0.5))
    machine.step(t.Stored("e2", 0.5))
    vote(machine, 1)
    assert kinds(vote(machine, 2)) == []
    assert machine.waiting_for() == ("event e3",)
    assert kinds(machine.step(t.Stored("e3", 1.0))) == [t.DecideInJournal]


def test_an_event_that_was_not_stored_aborts() -> None:
    machine = working()
    machine.step(t.Publishing("e1", "A", 0.0))
    assert t.DecideInJournal in kinds(machine.step(t.NotStored("e1", "the stream is full", 1.0)))


def test_the_last_event_carries_the_prepare() -> None:
    machine = working()
    effects = machine.step(t.Publishing("e1", "A", 0.0, last=True))
    prepare = Prepare(TX, 1, 1, {"manager": {"A": 1}}, DEADLINE, group="g")
    assert effects[0] == t.Publish("e1", "A", 1, prepare)
    assert not machine.open
    with pytest.raises(InvariantViolated):
        machine.step(t.Publishing("e2", "A", 0.0))


def test_with_children_at_work_the_last_event_carries_nothing() -> None:
    machine = working()
    machine.step(t.ChildBegan("print"))
    assert t.Publish("e1", "A", 1) in machine.step(t.Publishing("e1", "A", 0.0, last=True))
    effects = machine.step(t.ChildDone("print", 1.0))
    assert any(isinstance(e, Send) and isinstance(e.message, Prepare) for e in effects)


def committing() -> Transaction:
    machine = working()
    machine.step(t.CommitRequested(1, 9.0, 0.0))
    vote(machine, 1)
    return machine


def test_commit_is_answered_when_the_row_stands() -> None:
    machine = committing()
    assert kinds(vote(machine, 2)) == [t.DecideInJournal]
    effects = machine.step(t.JournalDecided(Decision(TX, "commit", 1), 2.0))
    assert kinds(effects) == [t.Answer, Send]
    assert effects[0] == t.Answer(1, t.Committed())
    assert t.Answer(2, t.Committed()) in machine.step(t.AbortRequested(2, "too late", 3.0))


def test_an_abort_is_answered_with_its_reason() -> None:
    machine = committing()
    vote(machine, 2, "no")
    effects = machine.step(t.JournalDecided(Decision(TX, "abort", 1, reason="h2: why"), 2.0))
    assert t.Answer(1, t.Aborted("h2: why")) in effects


def test_after_its_time_out_a_commit_is_unchecked_and_may_be_said_again() -> None:
    machine = committing()
    machine.step(Ticked(1.0))
    assert t.Answer(1, t.Unchecked(("vote of h2",))) in machine.step(Ticked(9.0))
    assert kinds(vote(machine, 2)) == [], "nobody waits for a commit"
    assert kinds(machine.step(t.CommitRequested(2, 1.0, 10.0))) == [t.DecideInJournal]


def test_a_commit_that_does_not_wait_is_answered_at_once() -> None:
    machine = working()
    machine.step(t.ChildBegan("print"))
    assert t.Answer(1, t.Unchecked(("child print",))) in machine.step(t.CommitRequested(1, 0.0, 0.0))


def test_a_lost_publisher_aborts() -> None:
    assert kinds(working().step(t.PublisherLost(1.0))) == [t.DecideInJournal]


def test_the_deadline_holds_even_if_everybody_forgot_it() -> None:
    machine = working()
    assert t.DecideInJournal in kinds(machine.step(Ticked(DEADLINE)))


def test_a_fenced_manager_answers_and_falls_silent() -> None:
    machine = committing()
    effects = machine.step(t.Fenced(2.0))
    assert effects[0] == t.Answer(1, t.Unchecked(("another manager, which has taken over",)))
    assert vote(machine, 2) == []
    assert machine.step(Received(Inquiry(TX, "h1", "voted", "i"), "k1", 3.0)) == []
    assert kinds(machine.step(t.CommitRequested(2, 1.0, 3.0))) == [t.Answer]


def test_members_in_doubt_are_told_what_was_said() -> None:
    machine = committing()
    question = Received(Inquiry(TX, "h2", "working", "inbox2"), "k2", 1.0)
    (told,) = machine.step(question)
    assert isinstance(told, Send)
    assert (type(told.message), told.to, told.inbox) == (Prepare, To.INBOX, "inbox2")
    vote(machine, 2)
    assert machine.step(question) == [], "deciding: nothing may be said"
    machine.step(t.JournalDecided(Decision(TX, "commit", 1), 2.0))
    assert machine.step(question) == [Send(Decide(TX, 1, "commit"), To.INBOX, "inbox2")]


def test_other_transactions_do_not_matter() -> None:
    machine = committing()
    assert machine.step(Received(Vote("j1-other", 1, 1, "h2", "no"), "k2", 1.0)) == []
    assert machine.step(Received(Invite(TX, "Meeting", None, 1.0), "", 1.0)) == []


# Succession

RECORD = TransactionRecord(TX, "Meeting", DEADLINE, "m1", 1, ("h1", "h2"), ("h1",), ("k1", "k2"), ("calendar",))


def test_a_successor_announces_what_stands() -> None:
    row = Decision(TX, "commit", 1, excluded=("h2",))
    machine = Transaction.recovered(RECORD, row, 2)
    effects = machine.step(t.Started(0.0))
    assert effects[:2] == [t.FinishOwn("commit"), Send(Decide(TX, 2, "commit", excluded=("h2",)), To.MEMBERS)]
    machine.check()


def test_a_successor_aborts_what_is_undecided_by_the_same_row() -> None:
    machine = Transaction.recovered(RECORD, None, 2)
    row = Decision(TX, "abort", 2, reason="its manager is gone")
    assert kinds(machine.step(t.Started(0.0))) == [t.DecideInJournal]
    standing = Decision(TX, "commit", 1)
    effects = machine.step(t.JournalDecided(standing, 1.0))
    assert row != standing
    assert Send(Decide(TX, 2, "commit"), To.MEMBERS) in effects, "the predecessor was quicker"


def test_a_successor_knows_whose_heartbeat_is_whose() -> None:
    """A member of a census that died before it voted has lost its key: nobody will report its end."""
    members = (Member("h1", "k1", instance="i1"), Member("h2", "k2", instance="i2"))
    machine = group(*members)
    (register, _) = machine.step(t.Started(0.0))
    assert isinstance(register, t.Register)
    heir = Transaction.recovered(register.record, Decision(TX, "abort", 1), 2)
    assert [(member.hash, member.instance) for member in heir.members] == [("h1", "i1"), ("h2", "i2")]
    heir.step(t.Started(0.0))
    heir.step(Received(Ended(TX, "h1", "abort"), "k1", 1.0))
    assert t.Finished("abort") in heir.step(t.MemberLost("h2", 3.0))


def test_a_record_of_an_earlier_version_names_no_instances() -> None:
    heir = Transaction.recovered(RECORD, None, 2)
    assert [member.instance for member in heir.members] == ["", ""]
