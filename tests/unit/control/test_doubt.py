"""The three states of doubt, each by name: joined without begin, working without prepare, voted without decision."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tutti.control.doubt import Doubt, Effect, GaveUp, Knowledge, Settled, Stage, Stuck, Waiting, recovery_answer
from tutti.limits import DOUBT_TRIES_COUNT
from tutti.model.messages import (
    MANAGER,
    Begin,
    Decide,
    DoubtState,
    Inquiry,
    Message,
    Prepare,
    Received,
    Relay,
    Send,
    Standing,
    Ticked,
    To,
    Vote,
)
from tutti.model.transaction import Decision

TX = "j1-a"


def doubting(state: DoubtState) -> Doubt:
    machine = Doubt(TX, "h1", "inbox")
    machine.step(Waiting(state, 5.0, 0.0))
    return machine


def wait(machine: Doubt) -> list[Effect]:
    assert machine.wake_at is not None
    effects = machine.step(Ticked(machine.wake_at))
    machine.check()
    return effects


def ask(state: DoubtState, to: To) -> Send:
    return Send(Inquiry(TX, "h1", state, "inbox"), to)


def exhaust(machine: Doubt) -> list[Effect]:
    for _ in range(DOUBT_TRIES_COUNT):
        assert all(isinstance(effect, Send) for effect in wait(machine))
    return wait(machine)


@pytest.mark.parametrize("state", ["joined", "working", "voted"])
def test_peers_are_asked_first_then_the_journal(state: DoubtState) -> None:
    machine = doubting(state)
    assert machine.step(Ticked(4.9)) == []
    assert wait(machine) == [ask(state, To.MEMBERS)]
    assert wait(machine) == [ask(state, To.MEMBERS), ask(state, To.RECOVERY)]


def test_joined_without_begin_gives_up() -> None:
    assert isinstance(exhaust(doubting("joined"))[0], GaveUp)


def test_working_without_prepare_gives_up() -> None:
    assert isinstance(exhaust(doubting("working"))[0], GaveUp)


def test_voted_without_decision_never_gives_up() -> None:
    machine = doubting("voted")
    for _ in range(100):
        assert ask("voted", To.MEMBERS) in wait(machine)


def test_pauses_grow_to_a_limit() -> None:
    machine = doubting("voted")
    times = []
    for _ in range(20):
        wait(machine)
        times.append(machine.wake_at or 0.0)
    gaps = [b - a for a, b in pairwise(times)]
    assert gaps == sorted(gaps)
    assert gaps[-1] == gaps[-2]


def test_news_begins_the_patience_anew_and_an_answer_ends_it() -> None:
    machine = doubting("working")
    machine.step(Waiting("working", 5.0, 4.0))
    assert machine.step(Ticked(5.0)) == []
    machine.step(Settled())
    assert machine.step(Ticked(100.0)) == []
    assert machine.stage is Stage.CONTENT


def test_undecided_means_that_the_manager_lives() -> None:
    machine = doubting("working")
    for _ in range(3 * DOUBT_TRIES_COUNT):
        assert all(isinstance(effect, Send) for effect in wait(machine))
        assert machine.step(Received(Standing(TX, "undecided"), MANAGER, 0.0)) == []


def test_unknown_frees_who_has_not_voted_and_nobody_else() -> None:
    working, voted = doubting("working"), doubting("voted")
    wait(working)
    wait(voted)
    unknown = Received(Standing(TX, "unknown"), MANAGER, 0.0)
    assert isinstance(working.step(unknown)[0], GaveUp)
    assert isinstance(voted.step(unknown)[0], Stuck)
    assert voted.step(unknown) == [], "said once"
    assert ask("voted", To.RECOVERY) in wait(voted)


@pytest.mark.parametrize("signer", ["", "key of a peer"])
def test_only_the_journal_can_say_so(signer: str) -> None:
    machine = doubting("working")
    wait(machine)
    assert machine.step(Received(Standing(TX, "unknown"), signer, 0.0)) == []
    assert machine.step(Received(Vote(TX, 1, 1, "h", "yes"), signer, 0.0)) == []


def knowing(*messages: Message, signer: str = MANAGER) -> Knowledge:
    knowledge = Knowledge(TX)
    for message in messages:
        knowledge.remember(Received(message, signer, 0.0, type(message).__name__.encode()))
    return knowledge


ALL = (Begin(TX, 1, ("h1",), 9.0), Prepare(TX, 1, 1, {}, 9.0), Decide(TX, 1, "commit"))


@pytest.mark.parametrize(
    ("state", "told"),
    [("joined", (b"Begin", b"Prepare", b"Decide")), ("working", (b"Prepare", b"Decide")), ("voted", (b"Decide",))],
)
def test_who_is_asked_passes_on_verbatim_what_the_asker_lacks(state: DoubtState, told: tuple[bytes, ...]) -> None:
    assert knowing(*ALL).answer(Inquiry(TX, "h2", state, "i")) == Relay(TX, told)


def test_who_knows_nothing_says_nothing() -> None:
    assert knowing(ALL[0]).answer(Inquiry(TX, "h2", "voted", "i")) is None


def test_what_the_manager_did_not_sign_is_not_passed_on() -> None:
    assert knowing(*ALL, signer="a peer").answer(Inquiry(TX, "h2", "joined", "i")) is None


def test_no_row_is_undecided_never_aborted() -> None:
    assert recovery_answer(TX, known=True, decision=None) == Standing(TX, "undecided")
    assert recovery_answer(TX, known=False, decision=None) == Standing(TX, "unknown")
    row = Decision(TX, "commit", 2, excluded=("h2",))
    assert recovery_answer(TX, known=True, decision=row) == Decide(TX, 2, "commit", excluded=("h2",))
