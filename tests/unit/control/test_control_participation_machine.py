"""A participant, from its invitation to its end."""

from __future__ import annotations

import pytest

from tutti.control.participation import messages as p
from tutti.control.participation.life import Stage
from tutti.control.participation.machine import Participation
from tutti.errors import InvariantViolated
from tutti.limits import FINISH_RETRY_SECONDS
from tutti.model.messages import (
    MANAGER,
    Begin,
    Close,
    Decide,
    Dismiss,
    Ended,
    Inquiry,
    Join,
    Message,
    Prepare,
    Received,
    Relay,
    Send,
    Standing,
    Tally,
    Ticked,
    To,
    Vote,
    WakeAt,
)
from tutti.model.transaction import Consumed, Counts, LogState, ParticipantRecord, member_hash

TX, DEADLINE, PATIENCE = "j1-a", 60.0, 5.0
ME = member_hash(TX, "p1")
E1, E2 = Consumed("manager", "A", 1, 11), Consumed("manager", "A", 2, 12)


def part(*, compensatable: bool = False, early_commit: bool = False, group: str = "") -> p.Part:
    return p.Part(TX, "p1", "k1", "inbox", DEADLINE, ("A",), compensatable, early_commit, group, patience=PATIENCE)


def tell(machine: Participation, message: Message, *, signer: str = MANAGER, now: float = 1.0) -> list[p.Effect]:
    return seen(machine, Received(message, signer, now, type(message).__name__.encode()))


def seen(machine: Participation, given: p.Input) -> list[p.Effect]:
    effects = machine.step(given)
    machine.check()
    return [effect for effect in effects if not isinstance(effect, WakeAt)]


def joined() -> Participation:
    machine = Participation(part())
    assert seen(machine, p.Accepted(0.0, offer=3)) == [Send(Join(TX, "p1", "k1", 3), To.MANAGER)]
    return machine


def working(its: p.Part | None = None) -> Participation:
    machine = Participation(its or part())
    seen(machine, p.Accepted(0.0))
    assert tell(machine, Begin(TX, 1, (ME,), DEADLINE)) == []
    return machine


def handle(machine: Participation, event: Consumed = E1) -> list[p.Effect]:
    assert seen(machine, p.Arrived(event, 1.0)) == [p.Handle(event, 1, commit=machine._work.early)]
    return seen(machine, p.Handled(event, 1.0))


def prepare(number: int = 1, counts: Counts | None = None, *, epoch: int = 1, work_ended: bool = False) -> Prepare:
    return Prepare(TX, epoch, number, {"manager": {"A": 1}} if counts is None else counts, DEADLINE, work_ended)


def yes(number: int = 1) -> Send:
    return Send(Vote(TX, 1, number, ME, "yes"), To.MANAGER)


def voted(its: p.Part | None = None) -> Participation:
    machine = working(its)
    handle(machine)
    tell(machine, prepare())
    seen(machine, p.Prepared(1, 1.0))
    if machine.stage is Stage.LOGGING:
        assert seen(machine, p.LogWritten(1, 1.0)) == [yes()]
    assert machine.stage is Stage.VOTED
    return machine


def no(effects: list[p.Effect]) -> str:
    return next(
        e.message.reason
        for e in effects
        if isinstance(e, Send) and isinstance(e.message, Vote) and e.message.value == "no"
    )


# Joining


def test_who_is_not_on_the_list_never_joined() -> None:
    machine = joined()
    assert tell(machine, Begin(TX, 1, ("others",), DEADLINE)) == [p.Forget()]
    assert tell(machine, prepare()) == []
    assert tell(machine, Decide(TX, 1, "commit")) == []


@pytest.mark.parametrize(
    "order", [Begin(TX, 1, (ME,), 9.0), Begin(TX, 1, (), 9.0), Dismiss(TX, "x"), Decide(TX, 1, "abort")]
)
def test_only_the_manager_begins_or_dismisses(order: Message) -> None:
    machine = joined()
    assert tell(machine, order, signer="k1") == []
    assert machine.stage is Stage.JOINED


def test_an_event_before_the_begin_waits_for_it() -> None:
    machine = joined()
    assert seen(machine, p.Arrived(E1, 0.5)) == []
    assert tell(machine, Begin(TX, 1, (ME,), DEADLINE)) == [p.Handle(E1, 1)]


def test_joined_without_begin_asks_then_forgets_and_later_says_no() -> None:
    machine = joined()
    asked = seen(machine, Ticked(PATIENCE))
    assert asked == [Send(Inquiry(TX, ME, "joined", "inbox"), To.MEMBERS)]
    now = PATIENCE
    while machine.stage is Stage.JOINED:
        now += 1.0
        seen(machine, Ticked(now))
    assert machine.stage is Stage.FORGOTTEN
    assert no(tell(machine, Begin(TX, 1, (ME,), DEADLINE)))
    assert no(tell(machine, prepare()))


def test_a_dismissed_census_is_forgotten() -> None:
    assert tell(joined(), Dismiss(TX, "too few")) == [p.Forget()]


# Working


def test_events_are_handled_one_at_a_time_and_once() -> None:
    machine = working()
    assert seen(machine, p.Arrived(E1, 1.0)) == [p.Handle(E1, 1)]
    assert seen(machine, p.Arrived(E1, 1.0)) == []
    assert seen(machine, p.Arrived(E2, 1.0)) == []
    assert seen(machine, p.Handled(E2, 1.0)) == [], "not the one at work"
    assert seen(machine, p.Handled(E1, 1.0)) == [p.Handle(E2, 1)]


def test_a_handler_that_fails_votes_no_at_once_and_undoes() -> None:
    machine = working()
    seen(machine, p.Arrived(E1, 1.0))
    effects = seen(machine, p.HandlerFailed(E1, "no room", 1.0))
    assert effects == [Send(Vote(TX, 1, 0, ME, "no", "no room"), To.MANAGER), p.RollbackResources((1,))]
    assert seen(machine, p.ResourcesFinished("abort", 1.0)) == []
    assert no(tell(machine, prepare())) == "no room", "asked again, it is said again"
    ended = tell(machine, Decide(TX, 1, "abort"))
    assert ended == [Send(Ended(TX, ME, "abort"), To.MANAGER), p.Forget()]


def test_a_group_member_writes_its_no_down() -> None:
    machine = Participation(part(group="g"))
    seen(machine, p.Enrolled(0.0))
    effects = seen(machine, p.AbortSet("not today", 1.0))
    assert isinstance(effects[0], p.WriteLog)
    assert effects[0].record.state == "working"


def test_set_abort_counts_until_the_vote_and_not_after() -> None:
    assert no(seen(working(), p.AbortSet("not today", 1.0))) == "not today"
    assert seen(voted(), p.AbortSet("not today", 1.0)) == []


def test_missing_events_are_fetched_and_gone_ones_abort() -> None:
    machine = working()
    assert tell(machine, prepare(counts={"manager": {"A": 2, "B": 7}})) == [p.Fetch("manager", "A", (1, 2))]
    assert tell(machine, prepare(counts={"manager": {"A": 2, "B": 7}})) == [], "once"
    assert seen(machine, p.Arrived(E1, 1.0)) == [p.Handle(E1, 1)]
    assert no(seen(machine, p.EventGone("manager", "A", 2, 1.0)))


def test_working_without_prepare_asks_then_aborts() -> None:
    machine = working()
    assert seen(machine, Ticked(1.0 + PATIENCE)) == [Send(Inquiry(TX, ME, "working", "inbox"), To.MEMBERS)]
    assert no(tell(machine, Standing(TX, "unknown"), now=9.0))


def test_the_deadline_ends_work() -> None:
    assert no(seen(working(), Ticked(DEADLINE))) == "the deadline has passed"


def test_only_a_handler_at_work_publishes() -> None:
    machine = working()
    with pytest.raises(InvariantViolated):
        machine.step(p.Publishing("r", "B"))
    seen(machine, p.Arrived(E1, 1.0))
    assert seen(machine, p.Publishing("r", "B")) == [p.Publish("r", "B", 1)]


# Voting


def test_prepare_then_log_then_vote() -> None:
    machine = working()
    handle(machine)
    assert tell(machine, prepare()) == [p.PrepareResources(1)]
    (write,) = seen(machine, p.Prepared(1, 1.0))
    assert isinstance(write, p.WriteLog)
    assert (write.record.state, write.record.consumed, write.record.branches) == ("voted", (E1,), (1,))
    assert seen(machine, p.LogWritten(9, 1.0)) == []
    assert seen(machine, p.LogWritten(1, 1.0)) == [yes()]


def test_a_compensatable_one_commits_its_work_with_its_log() -> None:
    machine = working(part(compensatable=True))
    handle(machine)
    (commit,) = tell(machine, prepare())
    assert isinstance(commit, p.CommitWork)
    assert commit.record.state == "voted"
    assert seen(machine, p.Prepared(1, 1.0)) == [yes()], "the same on the wire"


@pytest.mark.parametrize("order", [prepare(), Close(TX, 1, 2), Decide(TX, 1, "abort")])
def test_orders_of_others_change_nothing(order: Message) -> None:
    machine = working()
    handle(machine)
    assert tell(machine, order, signer="k1") == []
    assert machine.stage is Stage.WORKING


def test_an_older_epoch_or_round_changes_nothing() -> None:
    machine = working()
    handle(machine)
    tell(machine, Close(TX, 2, 2))
    assert tell(machine, prepare(3, epoch=1)) == []
    assert tell(machine, prepare(1, epoch=2)) == []
    assert machine.stage is Stage.WORKING


@pytest.mark.parametrize("failure", [p.PrepareFailed(1, "conflict", 1.0)])
def test_what_cannot_prepare_votes_no(failure: p.PrepareFailed) -> None:
    machine = working()
    handle(machine)
    tell(machine, prepare())
    assert no(seen(machine, failure)) == "conflict"


def test_a_log_that_fails_votes_no_and_rolls_back_what_was_prepared() -> None:
    machine = working()
    handle(machine)
    tell(machine, prepare())
    seen(machine, p.Prepared(1, 1.0))
    effects = seen(machine, p.LogFailed(1, "disk full", 1.0))
    assert [type(effect) for effect in effects] == [p.WriteLog, p.RollbackResources], "the yes may be on the disk"
    assert no(seen(machine, p.LogWritten(1, 1.0))) == "disk full"


def test_a_no_that_cannot_be_written_is_written_again_and_not_said() -> None:
    machine = working()
    handle(machine)
    tell(machine, prepare())
    seen(machine, p.Prepared(1, 1.0))
    written = seen(machine, p.LogFailed(1, "disk full", 1.0))[0]
    assert seen(machine, p.LogFailed(1, "disk full", 1.0)) == []
    assert seen(machine, Ticked(1.0 + FINISH_RETRY_SECONDS / 2)) == []
    assert written in seen(machine, Ticked(1.0 + FINISH_RETRY_SECONDS))
    assert no(seen(machine, p.LogWritten(1, 3.0))) == "disk full"


def test_who_published_is_still_open_and_reports() -> None:
    machine = working()
    seen(machine, p.Arrived(E1, 1.0))
    seen(machine, p.Publishing("r", "B"))
    (answer,) = tell(machine, prepare())
    assert answer == Send(Vote(TX, 1, 1, ME, "open"), To.MANAGER)
    assert tell(machine, prepare()) == [answer]
    assert tell(machine, Close(TX, 1, 2)) == [], "not idle"
    (report,) = seen(machine, p.Handled(E1, 1.0))
    tally = Tally(TX, 1, 2, ME, 1, {"B": 1}, {"manager": {"A": 1}}, ("A",))
    assert report == Send(tally, To.MANAGER)
    assert tell(machine, Close(TX, 1, 2)) == [report], "asked again, it is said again"
    assert tell(machine, prepare(2, {"manager": {"A": 1}, ME: {"B": 1}})) == [p.PrepareResources(1)]


def test_who_got_more_than_was_counted_is_still_open() -> None:
    machine = working()
    handle(machine)
    (answer,) = tell(machine, prepare(counts={"manager": {}}))
    assert answer == Send(Vote(TX, 1, 1, ME, "open"), To.MANAGER)


def test_deferred_events_are_handled_when_the_work_has_ended() -> None:
    machine = working()
    assert seen(machine, p.Arrived(E1, 1.0, deferred=True)) == []
    (answer,) = tell(machine, prepare())
    assert answer == Send(Vote(TX, 1, 1, ME, "open", deferred=True), To.MANAGER)
    assert tell(machine, Close(TX, 1, 2, work_ended=True)) == [p.Handle(E1, 1)]


def test_the_status_on_the_log_releases_them_too() -> None:
    machine = working()
    seen(machine, p.Arrived(E1, 1.0, deferred=True))
    assert seen(machine, p.WorkEnded(1.0)) == [p.Handle(E1, 1)]


def test_counts_with_events_of_mine_that_i_do_not_know_are_refused() -> None:
    machine = working()
    handle(machine)
    assert no(tell(machine, prepare(counts={"manager": {"A": 1}, ME: {"B": 1}})))


def test_a_later_round_takes_the_vote_back_and_is_a_further_branch() -> None:
    machine = voted()
    assert tell(machine, Close(TX, 1, 1)) == [], "not a later round"
    assert seen(machine, p.Arrived(E2, 1.0)) == [], "held: it has voted"
    assert tell(machine, Close(TX, 1, 2)) == [p.Handle(E2, 2)]
    seen(machine, p.Handled(E2, 1.0))
    assert tell(machine, prepare(2, {"manager": {"A": 2}})) == [p.PrepareResources(2)]
    seen(machine, p.Prepared(2, 1.0))
    assert seen(machine, p.LogWritten(2, 1.0)) == [yes(2)]
    assert tell(machine, Decide(TX, 1, "commit")) == [p.CommitResources((1, 2))]


def test_a_question_that_comes_while_the_vote_is_prepared_is_answered_after_it() -> None:
    machine = working()
    handle(machine)
    tell(machine, prepare())
    assert tell(machine, Close(TX, 1, 2)) == []
    seen(machine, p.Prepared(1, 1.0))
    effects = seen(machine, p.LogWritten(1, 1.0))
    assert effects[0] == yes()
    assert isinstance(effects[1], Send)
    assert isinstance(effects[1].message, Tally)


# After the vote


def test_asked_again_the_vote_is_said_again() -> None:
    assert tell(voted(), prepare()) == [yes()]


def test_after_yes_it_only_asks() -> None:
    machine = voted()
    now = 1.0
    for _ in range(50):
        now += 10.0
        asked = seen(machine, Ticked(now))
        assert all(isinstance(e, Send) and isinstance(e.message, Inquiry) for e in asked)
    assert isinstance(tell(machine, Standing(TX, "unknown"), now=now)[0], p.Stuck)
    assert machine.stage is Stage.VOTED


@pytest.mark.parametrize("signer", ["", "k1", "stranger"])
@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_only_the_manager_decides(outcome: str, signer: str) -> None:
    machine = voted()
    order = Decide(TX, 1, "commit" if outcome == "commit" else "abort")
    assert tell(machine, order, signer=signer) == []
    assert machine.stage is Stage.VOTED


def test_commit() -> None:
    machine = voted()
    assert tell(machine, Decide(TX, 1, "commit")) == [p.CommitResources((1,))]
    assert seen(machine, p.ResourcesFinished("abort", 2.0)) == [], "the answer to something else"
    closed, ended, forget = seen(machine, p.ResourcesFinished("commit", 2.0))
    assert isinstance(closed, p.CloseLog)
    assert (closed.record.state, ended, forget) == ("committed", Send(Ended(TX, ME, "commit"), To.MANAGER), p.Forget())
    assert tell(machine, Decide(TX, 1, "commit")) == [ended], "told again, it reports again"
    assert machine.outcome == "commit"


def test_abort_rolls_back() -> None:
    assert tell(voted(), Decide(TX, 1, "abort")) == [p.RollbackResources((1,))]


def test_who_is_left_out_aborts_though_the_others_commit() -> None:
    assert tell(voted(), Decide(TX, 1, "commit", excluded=(ME,))) == [p.RollbackResources((1,))]


def test_abort_compensates_what_was_committed() -> None:
    machine = voted(part(compensatable=True))
    assert tell(machine, Decide(TX, 1, "abort")) == [p.RollbackResources((1,))]
    effects = seen(machine, p.ResourcesFinished("abort", 2.0))
    news = Send(Ended(TX, ME, "abort", "compensating"), To.MANAGER)
    assert effects == [p.RunCompensator(E1, 1), news]
    assert Send(Ended(TX, ME, "abort"), To.MANAGER) in seen(machine, p.Compensated(E1, 3.0))


def test_commit_of_a_compensatable_one_needs_nothing_more() -> None:
    effects = tell(voted(part(compensatable=True)), Decide(TX, 1, "commit"))
    assert Send(Ended(TX, ME, "commit"), To.MANAGER) in effects


def test_an_early_commit_is_compensated_also_before_the_vote() -> None:
    machine = working(part(compensatable=True, early_commit=True))
    handle(machine)
    seen(machine, p.AbortSet("no", 1.0))
    assert p.RunCompensator(E1, 1) in seen(machine, p.ResourcesFinished("abort", 2.0))


def test_what_may_have_been_committed_is_compensated_too() -> None:
    machine = working(part(compensatable=True))
    handle(machine)
    tell(machine, prepare())
    tell(machine, Decide(TX, 1, "abort"))
    assert p.RunCompensator(E1, 1) in seen(machine, p.ResourcesFinished("abort", 2.0))


def test_a_commit_without_our_yes_is_not_for_us() -> None:
    machine = working()
    handle(machine)
    assert tell(machine, Decide(TX, 1, "commit")) == []


def test_an_operator_may_finish_and_is_compared_with_the_decision() -> None:
    machine = voted()
    assert seen(machine, p.Resolved("abort", 2.0)) == [p.RecordHeuristic("abort", None), p.RollbackResources((1,))]
    seen(machine, p.ResourcesFinished("abort", 2.0))
    assert machine.stage is Stage.RESOLVED
    effects = tell(machine, Decide(TX, 1, "commit"))
    assert effects[0] == p.RecordHeuristic("abort", "commit")
    assert Send(Ended(TX, ME, "abort", "heuristic"), To.MANAGER) in effects
    assert seen(working(), p.Resolved("abort", 2.0)) == [], "only in doubt"


def test_who_is_asked_by_a_peer_passes_on_the_decision() -> None:
    machine = voted()
    tell(machine, Decide(TX, 1, "commit"))
    question = Inquiry(TX, "h2", "voted", "inbox2")
    assert tell(machine, question, signer="k2") == [Send(Relay(TX, (b"Decide",)), To.INBOX, "inbox2")]
    assert tell(machine, Inquiry(TX, ME, "voted", "inbox"), signer="k1") == [], "its own"


# After a crash


def record(state: LogState, *, compensatable: bool = False) -> ParticipantRecord:
    branches = () if state == "working" else (1,)
    return ParticipantRecord(TX, "p1", "k1", state, 1, 1, DEADLINE, compensatable, consumed=(E1,), branches=branches)


def test_a_yes_survives_and_asks_at_once() -> None:
    machine = Participation.recovered(part(), record("voted"))
    machine.step(p.Recovered(10.0))
    assert seen(machine, Ticked(10.0)) == [Send(Inquiry(TX, ME, "voted", "inbox"), To.MEMBERS)]
    assert tell(machine, prepare()) == [yes()], "the vote did not change"
    assert tell(machine, Decide(TX, 1, "commit")) == [p.CommitResources((1,))]


def test_who_had_refused_asks_for_the_decision_and_then_closes_its_log() -> None:
    """The manager may have ended the transaction without it; the row would stay until a minute after the deadline."""
    machine = Participation.recovered(part(group="g"), record("working"))
    machine.step(p.Recovered(10.0))
    machine.step(p.ResourcesFinished("abort", 10.0))
    asked = seen(machine, Ticked(10.0 + part().patience))
    assert asked == [Send(Inquiry(TX, ME, "working", "inbox"), To.MEMBERS)]
    closed = tell(machine, Decide(TX, 1, "abort"))
    assert [type(effect) for effect in closed if isinstance(effect, p.CloseLog)] == [p.CloseLog]


def test_what_was_committed_early_and_not_voted_for_is_undone() -> None:
    its = part(compensatable=True, early_commit=True)
    machine = Participation.recovered(its, record("working", compensatable=True))
    assert no(seen(machine, p.Recovered(10.0)))
    assert p.RunCompensator(E1, 1) in seen(machine, p.ResourcesFinished("abort", 11.0))


def test_what_had_ended_only_reports() -> None:
    machine = Participation.recovered(part(), record("committed"))
    assert seen(machine, p.Recovered(10.0)) == []
    assert tell(machine, Decide(TX, 1, "commit")) == [Send(Ended(TX, ME, "commit"), To.MANAGER)]


def test_other_transactions_do_not_matter() -> None:
    assert tell(voted(), Decide("j1-other", 1, "abort")) == []


# In every stage


def stages() -> dict[Stage, Participation]:
    preparing, logging, refusing, refused = working(), working(), working(), working()
    for machine in (preparing, logging):
        handle(machine)
        tell(machine, prepare())
    seen(logging, p.Prepared(1, 1.0))
    for machine in (refusing, refused):
        seen(machine, p.AbortSet("no", 1.0))
    seen(refused, p.ResourcesFinished("abort", 1.0))
    committing, undoing, resolved = voted(), voted(), voted()
    seen(committing, p.Resolved("commit", 1.0))
    seen(undoing, p.Resolved("abort", 1.0))
    seen(resolved, p.Resolved("abort", 1.0))
    seen(resolved, p.ResourcesFinished("abort", 1.0))
    machines = (joined(), working(), preparing, logging, voted(), refusing, refused, committing, undoing, resolved)
    return {machine.stage: machine for machine in machines}


ORDERS: tuple[Message, ...] = (
    Begin(TX, 1, (ME,), DEADLINE),
    Begin(TX, 1, (), DEADLINE),
    Dismiss(TX, "forged"),
    Close(TX, 9, 9),
    prepare(9, epoch=9),
    Decide(TX, 9, "commit"),
    Decide(TX, 9, "abort"),
)


@pytest.mark.parametrize("stage", stages())
@pytest.mark.parametrize("order", ORDERS, ids=lambda order: type(order).__name__)
def test_no_stage_obeys_a_stranger(stage: Stage, order: Message) -> None:
    machine = stages()[stage]
    assert tell(machine, order, signer="stranger") == []
    assert machine.stage is stage
    seen(machine, p.ResourcesFinished("abort", 2.0))
    assert machine.stage is not Stage.ENDED, "it has learned no decision"


@pytest.mark.parametrize("stage", [Stage.JOINED, Stage.WORKING, Stage.PREPARING, Stage.LOGGING, Stage.VOTED])
def test_in_no_stage_an_event_counts_twice(stage: Stage) -> None:
    machine = stages()[stage]
    third = Consumed("manager", "A", 3, 13)
    seen(machine, p.Arrived(third, 1.0))
    seen(machine, p.Arrived(third, 1.0))
    if stage is Stage.JOINED:
        tell(machine, Begin(TX, 1, (ME,), DEADLINE))
    if stage in {Stage.PREPARING, Stage.LOGGING, Stage.VOTED}:
        seen(machine, p.Prepared(1, 1.0))
        seen(machine, p.LogWritten(1, 1.0))
        tell(machine, Close(TX, 1, 2))
    assert seen(machine, p.Handled(third, 1.0)) == [] or machine._work.receipt.idle
    assert machine._work.receipt.idle


@pytest.mark.parametrize("stage", [Stage.PREPARING, Stage.LOGGING])
def test_answers_for_another_branch_change_nothing(stage: Stage) -> None:
    machine = stages()[stage]
    assert seen(machine, p.Prepared(7, 1.0)) == []
    assert seen(machine, p.PrepareFailed(7, "x", 1.0)) == []
    assert seen(machine, p.LogFailed(7, "x", 1.0)) == []
    assert machine.stage is stage


def test_a_question_of_an_older_round_is_not_answered_with_counts() -> None:
    machine = working()
    tell(machine, Close(TX, 1, 3))
    assert tell(machine, Close(TX, 1, 2)) == []


def test_a_decision_learned_while_undoing_ends_it_there() -> None:
    machine = stages()[Stage.REFUSING]
    assert tell(machine, Decide(TX, 1, "abort")) == []
    assert Send(Ended(TX, ME, "abort"), To.MANAGER) in seen(machine, p.ResourcesFinished("abort", 2.0))
