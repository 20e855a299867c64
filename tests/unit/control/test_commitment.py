from __future__ import annotations

from typing import Literal

import pytest

from tutti.control.commitment import (
    ABORT_WAIT_SECONDS,
    OWN,
    Ballot,
    Commitment,
    Effect,
    Excluded,
    Reopened,
    Stage,
    Wanted,
)
from tutti.control.transaction.messages import (
    AbortRequested,
    Broken,
    DecideInJournal,
    Enlisted,
    Fenced,
    Finished,
    FinishOwn,
    JournalDecided,
    JournalFailed,
    MemberLost,
    Met,
    OwnFinished,
    OwnPrepared,
    OwnPrepareFailed,
    PrepareOwn,
    RecordEnded,
    Required,
)
from tutti.limits import DECISION_REPEAT_SECONDS, JOURNAL_RETRY_SECONDS, PREPARE_REPEAT_SECONDS, SILENCE_SECONDS
from tutti.model.messages import Decide, Ended, Prepare, Received, Send, Ticked, To, Vote
from tutti.model.transaction import Decision, Member

TX, EPOCH, DEADLINE = "j1-a", 2, 60.0
MEMBERS = (Member("h1", "k1"), Member("h2", "k2"), Member("h3", "k3", vital=False))
PREPARE = Prepare(TX, EPOCH, 1, {"manager": {"A": 1}}, DEADLINE)


def voting(*, wanted: bool = True, minimum: int = 0, members: tuple[Member, ...] = MEMBERS) -> Commitment:
    machine = Commitment(TX, EPOCH, members, deadline=DEADLINE, minimum=minimum)
    machine.step(Wanted(wanted, 0.0))
    assert machine.step(Ballot(PREPARE, 0.0)) == [Send(PREPARE, To.MEMBERS)]
    return machine


Value = Literal["yes", "no", "open"]


def vote(
    machine: Commitment,
    member: str,
    value: Value = "yes",
    *,
    epoch: int = EPOCH,
    number: int = 1,
    signer: str | None = None,
    now: float = 1.0,
) -> list[Effect]:
    key = "k" + member[1:] if signer is None else signer
    effects = machine.step(Received(Vote(TX, epoch, number, member, value, "why"), key, now))
    machine.check()
    return effects


def proposal(effects: list[Effect]) -> Decision | None:
    return next((effect.decision for effect in effects if isinstance(effect, DecideInJournal)), None)


def committed() -> Commitment:
    machine = voting()
    for member in MEMBERS:
        vote(machine, member.hash)
    machine.step(JournalDecided(Decision(TX, "commit", EPOCH), 2.0))
    return machine


def test_commit_is_proposed_with_the_last_yes_and_announced_after_the_row() -> None:
    machine = voting()
    assert vote(machine, "h1") == []
    assert vote(machine, "h2") == []
    effects = vote(machine, "h3")
    row = Decision(TX, "commit", EPOCH)
    assert effects == [DecideInJournal(row)], "nothing else leaves before the row stands"
    assert machine.step(JournalDecided(row, 2.0)) == [Send(Decide(TX, EPOCH, "commit"), To.MEMBERS)]


def test_what_stands_is_announced_though_something_else_was_proposed() -> None:
    machine = voting()
    for member in MEMBERS:
        vote(machine, member.hash)
    effects = machine.step(JournalDecided(Decision(TX, "abort", 3, reason="the operator"), 2.0))
    assert effects == [Send(Decide(TX, EPOCH, "abort", reason="the operator"), To.MEMBERS)]


@pytest.mark.parametrize(
    ("signer", "epoch", "number"),
    [("k2", EPOCH, 1), ("", EPOCH, 1), ("x", EPOCH, 1), (None, EPOCH - 1, 1), (None, EPOCH + 1, 1), (None, EPOCH, 0)],
)
def test_a_yes_counts_only_from_its_member_for_this_epoch_and_round(
    signer: str | None, epoch: int, number: int
) -> None:
    machine = voting()
    vote(machine, "h2")
    vote(machine, "h3")
    assert vote(machine, "h1", signer=signer, epoch=epoch, number=number) == []
    assert proposal(vote(machine, "h1")) == Decision(TX, "commit", EPOCH)


def test_nobody_outside_the_list_votes() -> None:
    machine = voting()
    values: tuple[Value, ...] = ("yes", "no", "open")
    for value in values:
        assert vote(machine, "h9", value) == []
    assert machine.stage is Stage.VOTING


@pytest.mark.parametrize(("signer", "epoch"), [("k2", EPOCH), ("", EPOCH), (None, EPOCH - 1)])
@pytest.mark.parametrize("value", ["no", "open"])
def test_neither_no_nor_open_of_a_forger_counts(value: Value, signer: str | None, epoch: int) -> None:
    machine = voting()
    assert vote(machine, "h1", value, signer=signer, epoch=epoch) == []
    assert machine.stage is Stage.VOTING


def test_a_vote_counts_once_and_does_not_change() -> None:
    machine = voting()
    vote(machine, "h1")
    assert vote(machine, "h1", "no") == []
    assert vote(machine, "h1", "open") == []
    assert machine.stage is Stage.VOTING


def test_an_open_of_an_earlier_round_does_not_matter() -> None:
    machine = voting()
    assert vote(machine, "h1", "open", number=0) == []
    assert machine.stage is Stage.VOTING


@pytest.mark.parametrize("round_number", [0, 1])
def test_the_no_of_a_vital_member_aborts_at_once(round_number: int) -> None:
    machine = voting()
    row = proposal(vote(machine, "h1", "no", number=round_number))
    assert row is not None
    assert (row.outcome, row.reason) == ("abort", "h1: why")


def test_an_early_no_needs_no_prepare() -> None:
    machine = Commitment(TX, EPOCH, MEMBERS, deadline=DEADLINE)
    row = proposal(vote(machine, "h1", "no", number=0))
    assert row is not None
    assert row.outcome == "abort"
    assert vote(Commitment(TX, EPOCH, MEMBERS, deadline=DEADLINE), "h1", "no", signer="k2") == []


def test_the_no_of_another_one_leaves_it_out() -> None:
    machine = voting()
    assert vote(machine, "h3", "no") == [Excluded("h3", "why")]
    vote(machine, "h1")
    assert proposal(vote(machine, "h2")) == Decision(TX, "commit", EPOCH, excluded=("h3",))


def test_its_silence_leaves_it_out_too_but_not_before_its_time() -> None:
    machine = voting()
    vote(machine, "h1")
    assert vote(machine, "h2") == []
    machine.step(Ticked(PREPARE_REPEAT_SECONDS))
    effects = machine.step(Ticked(SILENCE_SECONDS))
    assert effects[0] == Excluded("h3", "it did not vote in time")
    assert proposal(effects) == Decision(TX, "commit", EPOCH, excluded=("h3",))


def test_a_yes_that_comes_after_that_changes_nothing() -> None:
    machine = voting()
    vote(machine, "h3", "no")
    assert vote(machine, "h3") == []
    machine.check()


def test_the_minimum_holds_at_the_vote() -> None:
    row = proposal(vote(voting(minimum=3), "h3", "no"))
    assert row is not None
    assert (row.outcome, row.reason) == ("abort", "too few members are left")


def test_a_group_smaller_than_the_minimum_never_commits() -> None:
    machine = voting(minimum=4)
    for member in MEMBERS:
        assert vote(machine, member.hash) == []


def test_the_loss_of_a_vital_member_counts_as_no_unless_it_voted() -> None:
    machine = voting()
    vote(machine, "h1")
    assert machine.step(MemberLost("h1", 2.0)) == []
    assert machine.step(MemberLost("h9", 2.0)) == []
    row = proposal(machine.step(MemberLost("h2", 2.0)))
    assert row is not None
    assert row.outcome == "abort"


def test_still_open_takes_the_round_back() -> None:
    machine = voting()
    vote(machine, "h1")
    vote(machine, "h3")
    assert vote(machine, "h2", "open") == [Reopened()]
    assert machine.wake_at == DEADLINE
    again = Prepare(TX, EPOCH, 3, {}, DEADLINE)
    machine.step(Ballot(again, 2.0))
    assert vote(machine, "h2", number=3) == []
    assert vote(machine, "h1", number=1) == [], "the votes of the first round are void"
    vote(machine, "h1", number=3)
    assert proposal(vote(machine, "h3", number=3)) is not None


def test_nothing_is_committed_behind_the_publishers_back() -> None:
    machine = voting(wanted=False)
    for member in MEMBERS:
        assert vote(machine, member.hash) == []
    assert proposal(machine.step(Wanted(wanted=True, now=2.0))) == Decision(TX, "commit", EPOCH)


def test_requirements_hold_the_commit_and_break_it() -> None:
    machine, broken = voting(), voting()
    for each in (machine, broken):
        each.step(Required("event e1"))
        for member in MEMBERS:
            assert vote(each, member.hash) == []
        assert each.waiting_for() == ("event e1",)
    assert proposal(machine.step(Met("event e1", 2.0))) == Decision(TX, "commit", EPOCH)
    row = proposal(broken.step(Broken("event e1", "refused", 2.0)))
    assert row == Decision(TX, "abort", EPOCH, reason="event e1: refused")


def test_own_resources_are_prepared_and_finished_with_the_others() -> None:
    machine = Commitment(TX, EPOCH, MEMBERS[:1], deadline=DEADLINE)
    machine.step(Enlisted("calendar"))
    machine.step(Wanted(wanted=True, now=0.0))
    assert machine.step(Ballot(PREPARE, 0.0)) == [PrepareOwn(), Send(PREPARE, To.MEMBERS)]
    assert vote(machine, "h1") == []
    assert machine.waiting_for() == (OWN,)
    row = proposal(machine.step(OwnPrepared(1.0)))
    assert row is not None
    assert machine.step(JournalDecided(row, 2.0))[0] == FinishOwn("commit")
    machine.step(Received(Ended(TX, "h1", "commit"), "k1", 2.0))
    assert machine.step(OwnFinished(2.0)) == [Finished("commit")]


def test_own_resources_that_cannot_prepare_abort() -> None:
    machine = voting()
    row = proposal(machine.step(OwnPrepareFailed("conflict", 1.0)))
    assert row is not None
    assert row.outcome == "abort"


def test_the_deadline_aborts() -> None:
    machine = voting()
    assert machine.wake_at is not None
    row = proposal(machine.step(Ticked(DEADLINE)))
    assert row == Decision(TX, "abort", EPOCH, reason="its deadline has passed")


def test_a_yes_after_the_deadline_does_not_commit() -> None:
    machine = voting()
    vote(machine, "h1")
    vote(machine, "h2")
    assert vote(machine, "h3", now=DEADLINE) == []


def test_a_prepare_that_was_carried_is_not_sent_but_repeated() -> None:
    machine = Commitment(TX, EPOCH, MEMBERS, deadline=DEADLINE)
    assert machine.step(Ballot(PREPARE, 0.0, carried=True)) == []
    assert machine.step(Ticked(0.5)) == []
    assert machine.step(Ticked(PREPARE_REPEAT_SECONDS)) == [Send(PREPARE, To.MEMBERS)]


def test_a_journal_that_does_not_answer_is_asked_the_same_again() -> None:
    machine = voting()
    effects = machine.step(AbortRequested(1, "the publisher", 1.0))
    machine.step(JournalFailed("unreachable", 1.0))
    assert machine.step(Ticked(1.0)) == []
    assert machine.step(Ticked(1.0 + JOURNAL_RETRY_SECONDS)) == effects
    assert machine.step(AbortRequested(2, "again", 2.0)) == []


def test_the_decision_is_repeated_until_everybody_has_ended() -> None:
    machine = committed()
    decide = Send(Decide(TX, EPOCH, "commit"), To.MEMBERS)
    assert machine.step(Ticked(2.0 + DECISION_REPEAT_SECONDS)) == [decide]
    assert machine.step(Received(Ended(TX, "h1", "commit"), "k1", 4.0)) == [RecordEnded("h1", "commit")]
    assert machine.step(Received(Ended(TX, "h1", "commit"), "k1", 4.0)) == []
    assert machine.step(Received(Ended(TX, "h2", "commit"), "k1", 4.0)) == [], "not its key"
    assert machine.step(Received(Ended(TX, "h9", "commit"), "k9", 4.0)) == [], "a stranger"
    odd = Ended(TX, "h2", "abort", "heuristic")
    assert machine.step(Received(odd, "k2", 4.0)) == [RecordEnded("h2", "abort", "heuristic")]
    last = machine.step(Received(Ended(TX, "h3", "commit"), "k3", 4.0))
    assert last == [RecordEnded("h3", "commit"), Finished("commit")]
    assert machine.wake_at is None


def test_who_compensates_is_waited_for() -> None:
    machine = Commitment(TX, EPOCH, MEMBERS, deadline=DEADLINE)
    machine.step(JournalDecided(Decision(TX, "abort", EPOCH), 1.0))
    news = Received(Ended(TX, "h1", "abort", "compensating"), "k1", 2.0)
    assert machine.step(news) == [RecordEnded("h1", "abort", "compensating")]
    assert machine.step(news) == [], "it is said once"
    assert Finished("abort") not in machine.step(Ticked(2.0 + ABORT_WAIT_SECONDS)), "the others are not waited for"
    last = machine.step(Received(Ended(TX, "h1", "abort"), "k1", 3.0 + ABORT_WAIT_SECONDS))
    assert last == [RecordEnded("h1", "abort"), Finished("abort")]


def test_who_was_lost_while_it_compensated_may_have_lost_its_key() -> None:
    machine = Commitment(TX, EPOCH, MEMBERS, deadline=DEADLINE)
    machine.step(JournalDecided(Decision(TX, "abort", EPOCH), 1.0))
    machine.step(Received(Ended(TX, "h1", "abort", "compensating"), "k1", 2.0))
    effects = [effect for h in ("h1", "h2", "h3") for effect in machine.step(MemberLost(h, 3.0))]
    assert Finished("abort") in effects


def test_a_decision_never_changes() -> None:
    machine = committed()
    assert machine.step(JournalDecided(Decision(TX, "abort", EPOCH), 3.0)) == []
    assert machine.step(AbortRequested(1, "too late", 3.0)) == []
    assert vote(machine, "h1", "no") == []
    assert machine.decision == Decision(TX, "commit", EPOCH)


def test_a_fenced_manager_falls_silent() -> None:
    machine = voting()
    machine.step(Fenced(1.0))
    assert vote(machine, "h1", "no") == []
    assert machine.step(Ticked(DEADLINE)) == []
    assert machine.step(JournalDecided(Decision(TX, "commit", 3), 2.0)) == []


@pytest.mark.parametrize(("member", "signer", "epoch"), [("h9", "k9", EPOCH), ("h1", "k2", EPOCH), ("h1", "k1", 1)])
def test_an_early_no_of_others_changes_nothing(member: str, signer: str, epoch: int) -> None:
    machine = Commitment(TX, EPOCH, MEMBERS, deadline=DEADLINE)
    assert vote(machine, member, "no", number=0, signer=signer, epoch=epoch) == []
    assert machine.stage is Stage.IDLE


def test_an_early_no_of_who_is_left_out_is_said_once() -> None:
    machine = Commitment(TX, EPOCH, MEMBERS, deadline=DEADLINE)
    assert vote(machine, "h3", "no", number=0) == [Excluded("h3", "why")]
    assert vote(machine, "h3", "no", number=0) == []
