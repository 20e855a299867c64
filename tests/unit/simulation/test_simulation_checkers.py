"""Every checker by hand: a transaction as it should be, and for each rule a fact that breaks it."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec
import pytest

from tutti.control.transaction.messages import Aborted, Committed
from tutti.model.messages import MANAGER, Decide, Ended, Message, Prepare, Vote
from tutti.model.transaction import PUBLISHER, Consumed, Decision, Outcome, ParticipantRecord, TransactionRecord
from tutti.simulation import facts as f
from tutti.simulation.checkers import INVARIANTS, Judge, Violation

TX, A, B, C = "j1-1", "hash of a", "hash of b", "hash of c"
E1, E2 = Consumed(PUBLISHER, "Invitation", 1, 1), Consumed(PUBLISHER, "Invitation", 2, 2)
RECORD = TransactionRecord(TX, "Meeting", 60.0, "p0#1", 1, members=(A, B), vital=(A,), keys=("ka", "kb"))
COMMIT = Decision(TX, "commit", 1)
ABORT = Decision(TX, "abort", 1)
PREPARE = Prepare(TX, 1, 1, {PUBLISHER: {"Invitation": 1}}, 60.0)


def said(site: str, message: Message) -> f.Sent:
    return f.Sent(TX, site, message, MANAGER if site == "p0" else f"k{site}")


def vote(member: str, value: str = "yes") -> f.Sent:
    return said("s", msgspec.convert({"tx": TX, "epoch": 1, "round": 1, "member": member, "value": value}, Vote))


def ended(member: str, outcome: Outcome = "commit") -> f.Sent:
    return said("s", Ended(TX, member, outcome))


def log(member: str, state: str, key: str) -> f.Logged:
    named = {"tx": TX, "pseudonym": member, "key": key, "state": state, "epoch": 1, "round": 1, "deadline": 60.0}
    return f.Logged(TX, member, msgspec.convert({**named, "branches": [1]}, ParticipantRecord))


# A prepares and commits; B is compensatable, and shows its work before the decision.
JOINED_A = f.Joined(TX, A, "ka", "s0", ("Invitation",), compensatable=False)
JOINED_B = f.Joined(TX, B, "kb", "s1", ("Invitation",), compensatable=True)
BEGUN: Final[list[f.Fact]] = [f.Ordered(TX, (), 2), JOINED_A, JOINED_B, f.Registered(TX, RECORD)]
DEMANDED, FULFILLED = f.Demanded(TX, "event e0"), f.Fulfilled(TX, "event e0")
ASKED, ASKED_TO_VOTE = f.Asked(TX, 1, "commit"), said("p0", PREPARE)
LOGGED_A, LOGGED_B = log(A, "voted", "ka"), log(B, "voted", "kb")
PROPOSED, ROW = f.Proposed(TX, COMMIT), f.Decided(TX, COMMIT)
ANSWERED = f.Answered(TX, 1, Committed())
ANNOUNCED = said("p0", Decide(TX, 1, "commit"))
COMMITTED_A, APPLIED_A = f.Committed(TX, A, 1), f.Applied(TX, A, E1, prepared=True)
FINISHED = f.Finished(TX)
HAPPY: Final[list[f.Fact]] = [
    *BEGUN,
    DEMANDED,
    f.Stored(TX, E1),
    FULFILLED,
    ASKED,
    ASKED_TO_VOTE,
    f.Prepared(TX, A, 1),
    LOGGED_A,
    vote(A),
    f.Applied(TX, B, E1, prepared=False),
    LOGGED_B,
    vote(B),
    PROPOSED,
    ROW,
    ANSWERED,
    ANNOUNCED,
    COMMITTED_A,
    APPLIED_A,
    log(A, "committed", "ka"),
    ended(A),
    log(B, "committed", "kb"),
    ended(B),
    f.EndRecorded(TX, A, "commit"),
    f.EndRecorded(TX, B, "commit"),
    FINISHED,
]


def until(last: f.Fact) -> list[f.Fact]:
    """What happened before it."""
    return HAPPY[: HAPPY.index(last)]


def after(last: f.Fact) -> list[f.Fact]:
    return HAPPY[: HAPPY.index(last) + 1]


def without(*left_out: f.Fact) -> list[f.Fact]:
    return [fact for fact in HAPPY if fact not in left_out]


def row(outcome: Outcome = "commit", *excluded: str, epoch: int = 1) -> f.Decided:
    return f.Decided(TX, Decision(TX, outcome, epoch, excluded=excluded))


class Case(NamedTuple):
    """`facts` are as they should be; `wrong` is not. None: what is wrong shows at the end."""

    invariant: str
    facts: list[f.Fact]
    wrong: f.Fact | None
    words: str


UNDONE_B = f.Undone(TX, B, E1)
RESOLVED_A = f.OperatorResolved(TX, A, "abort")
CASES: Final = (
    Case("agreement", until(ROW), COMMITTED_A, "s0 commits, and the row says nothing yet"),
    Case("agreement", [*until(ROW), row("abort")], COMMITTED_A, "s0 commits, and the row says abort"),
    Case("agreement", after(ANNOUNCED), f.RolledBack(TX, A, 1), "s0 undoes its work, and the row says commit"),
    Case("agreement", after(ANNOUNCED), UNDONE_B, "s1 undoes its work, and the row says commit"),
    Case("agreement", [*until(PROPOSED), row("abort")], None, "s1 kept its work, and the row says abort"),
    Case(
        "agreement",
        [*HAPPY, f.Joined(TX, C, "kc", "s2", (), compensatable=True), f.Applied(TX, C, E2, prepared=False)],
        None,
        "s2 kept work in a transaction of which it is no member",
    ),
    Case("answers", until(ROW), ANSWERED, "the publisher hears committed, and the row says nothing yet"),
    Case("answers", after(ROW), f.Answered(TX, 1, Aborted("")), "hears aborted, and the row says commit"),
    Case("answers", after(ANSWERED), ANSWERED, "request 1 is answered twice"),
    Case("compensation", [*until(PROPOSED), row("abort"), UNDONE_B], UNDONE_B, "s1 undoes Invitation 1 twice"),
    Case("compensation", [*until(vote(B)), row("abort")], f.Undone(TX, B, E2), "Invitation 2, which it never did"),
    Case(
        "compensation",
        [*until(vote(B)), f.Applied(TX, B, E2, prepared=False), row("abort")],
        UNDONE_B,
        "s1 undoes Invitation 1 before Invitation 2, which came later",
    ),
    Case(
        "compensation",
        [*until(vote(B)), row("abort"), UNDONE_B],
        f.Applied(TX, B, E1, prepared=False),
        "s1 does Invitation 1 after it was undone",
    ),
    Case("counting", [*until(PROPOSED), f.Stored(TX, E2), PROPOSED], ROW, "and published were"),
    Case("ending", after(ANNOUNCED), ended(A), "reports its end, and a branch of it is still prepared"),
    Case("ending", [*until(PROPOSED), row("abort")], ended(B, "abort"), "that it is undone, and its work is there"),
    Case("ending", until(PROPOSED), ended(B), "reports a commit without a row"),
    Case("ending", until(ended(B)), FINISHED, "finished, and s1 has not ended"),
    Case("exactly once", after(APPLIED_A), APPLIED_A, "the work of s0 for Invitation 1 is done twice"),
    Case("exactly once", BEGUN, f.Applied(TX, A, E1, prepared=False), "s0 shows work that cannot be undone"),
    Case("exactly once", without(APPLIED_A), None, "s0 committed; it lacks [('manager', 'Invitation', 1)]"),
    Case("fencing", BEGUN, f.TakenOver(TX, 3), "epoch 3 follows 1"),
    Case("fencing", [*until(PROPOSED), f.TakenOver(TX, 2), PROPOSED], ROW, "a manager of epoch 1 decides in epoch 2"),
    Case("fencing", [*BEGUN, f.FencedOff(TX, "p0", 1)], ASKED_TO_VOTE, "p0 was fenced, and still speaks"),
    Case("heuristics", BEGUN, f.HeuristicShown(TX, A, "abort", None), "is shown, and nobody resolved anything"),
    Case(
        "heuristics",
        [*HAPPY, RESOLVED_A, f.HeuristicShown(TX, A, "abort", None)],
        None,
        "s0 was resolved to abort, the row says commit, and nobody compared them",
    ),
    Case(
        "heuristics",
        [*HAPPY, RESOLVED_A, f.HeuristicShown(TX, A, "abort", None), f.HeuristicShown(TX, A, "abort", "commit")],
        None,
        "s0 was resolved to abort, and its work is there",
    ),
    Case("liveness", BEGUN, None, "nobody decided it"),
    Case("liveness", without(FINISHED), None, "decided and never finished"),
    Case("liveness", [*HAPPY, f.Prepared(TX, A, 2)], None, "s0 has prepared branches left"),
    Case("liveness", [*HAPPY, LOGGED_B], None, "the log of s1 still says voted"),
    Case("membership", [BEGUN[0], JOINED_A], f.Registered(TX, RECORD), "nobody joined under that name with that key"),
    Case(
        "membership",
        [f.Ordered(TX, (), 3), JOINED_A, JOINED_B],
        f.Registered(TX, RECORD),
        "the work begins with too few members",
    ),
    Case(
        "membership",
        [f.Ordered(TX, (), 1, 1), JOINED_A, JOINED_B],
        f.Registered(TX, RECORD),
        "begins with 2 members, and 1 were to be accepted",
    ),
    Case(
        "membership",
        [f.Ordered(TX, (), 1), JOINED_A],
        f.Registered(TX, msgspec.structs.replace(RECORD, members=(A, A), keys=("ka", "ka"))),
        "somebody is on the list twice",
    ),
    Case("membership", BEGUN, row("abort", C), "are left out, and were no members"),
    Case("membership", after(ANNOUNCED), f.EndRecorded(TX, A, "commit"), "is written down, and it has not said so"),
    Case("stability", after(ROW), row("abort"), "a second row was written"),
    Case("stability", after(vote(A)), vote(A, "no"), "voted yes in round 1, and then no"),
    Case("stability", after(vote(A)), f.RolledBack(TX, A, 1), "s0 voted yes and undoes its work without a decision"),
    Case("strangers", BEGUN, f.Stirred(TX, "s0", "Decide", "", ("Send",)), "s0 does Send because of a Decide"),
    Case("strangers", BEGUN, f.Stirred(TX, "s0", "Decide", "x", ()), "s0 is in another state"),
    Case("validity", [*until(vote(B)), PROPOSED], ROW, "commit without a yes of s1 in round 1"),
    Case("validity", [*until(vote(A)), PROPOSED], row("commit", A), "commit without s0, which is vital"),
    Case("validity", [*until(vote(B)), PROPOSED], row("commit", B), "commit with too few members"),
    Case("validity", [f for f in until(ROW) if f != FULFILLED], ROW, "commit, and this is not done: event e0"),
    Case("validity", [f for f in until(PROPOSED) if f != ASKED], PROPOSED, "proposed, and nobody waits for one"),
    Case("validity", after(PROPOSED), row(epoch=2), "the row is of epoch 2; the last prepare was of epoch 1"),
    Case("write-ahead", until(ROW), ANNOUNCED, "p0 announces commit before there is a row"),
    Case("write-ahead", after(ROW), said("p0", Decide(TX, 1, "abort")), "p0 announces abort without ()"),
    Case("write-ahead", until(LOGGED_A), vote(A), "votes yes in round 1, and its log says nothing"),
)


def test_nobody_objects_to_what_is_as_it_should_be() -> None:
    judge = Judge()
    for fact in HAPPY:
        judge.observe(fact)
    judge.conclude()


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.invariant}: {case.words}")
def test_a_broken_rule_is_noticed(case: Case) -> None:
    judge = Judge()
    for fact in case.facts:
        judge.observe(fact)
    with pytest.raises(Violation) as found:
        judge.observe(case.wrong) if case.wrong is not None else judge.conclude()
    violation = found.value
    objections = list(_objections(judge, case))
    assert any(case.words in words for words in objections), objections
    assert violation.tx == TX


def _objections(judge: Judge, case: Case) -> list[str]:
    """Of this invariant alone: one fact may break several rules, and the judge names the first."""
    (invariant,) = (i for i in INVARIANTS if i.name == case.invariant)
    if case.wrong is None:
        return [words for _, words in invariant.conclude(judge.ledger)]
    return list(invariant.observe(judge.ledger, case.wrong)) if type(case.wrong) in invariant.watches else []


def test_every_invariant_has_a_case() -> None:
    assert {case.invariant for case in CASES} == {invariant.name for invariant in INVARIANTS}


def test_the_judge_enters_only_what_nobody_objects_to() -> None:
    judge = Judge()
    for fact in until(ROW):
        judge.observe(fact)
    with pytest.raises(Violation, match="agreement: s0 commits"):
        judge.observe(COMMITTED_A)
    assert A not in judge.ledger.committed


def test_what_an_operator_resolved_is_excused_once_it_is_shown() -> None:
    judge = Judge()
    for fact in [*until(ROW), RESOLVED_A, f.HeuristicShown(TX, A, "abort", None)]:
        judge.observe(fact)
    judge.observe(f.RolledBack(TX, A, 1))
