from __future__ import annotations

import pytest

from tutti.control.census import Called, Census, Effect, Settled, Stage, Unsettled, Withdrawn
from tutti.errors import DeclarationError
from tutti.model.messages import Dismiss, Invite, Join, Received, Send, Ticked, To, Vote
from tutti.model.transaction import CensusRule, member_hash

TX = "j1-a"
INVITE = Invite(TX, "Meeting", {"subject": "DSOnline"}, 5.0)


def census(rule: CensusRule) -> Census:
    machine = Census(rule, INVITE)
    assert machine.step(Called(0.0)) == [Send(INVITE, To.CANDIDATES)]
    return machine


def join(machine: Census, number: int, *, name: str = "", signer: str = "", offer: object = None) -> list[Effect]:
    message = Join(TX, f"p{number}", f"k{number}", offer, name)
    effects = machine.step(Received(message, signer or f"k{number}", 1.0))
    machine.check()
    return effects


def members(effects: list[Effect]) -> list[str]:
    return [m.hash for e in effects if isinstance(e, Settled) for m in e.members]


def hashes(*numbers: int) -> list[str]:
    return [member_hash(TX, f"p{number}") for number in numbers]


def failed(effects: list[Effect]) -> str:
    return next(e.reason for e in effects if isinstance(e, Unsettled))


def test_the_first_at_most_win() -> None:
    machine = census(CensusRule(at_least=1, at_most=2, within=5.0))
    assert join(machine, 1) == []
    assert members(join(machine, 2)) == hashes(1, 2)
    assert join(machine, 3) == []
    assert machine.wake_at is None


def test_without_at_most_it_lasts_its_time() -> None:
    machine = census(CensusRule(at_least=1, within=5.0))
    join(machine, 1)
    join(machine, 2)
    assert machine.step(Ticked(4.9)) == []
    assert members(machine.step(Ticked(5.0))) == hashes(1, 2)


def test_too_few_fail_and_are_told_and_the_replies_are_kept() -> None:
    machine = census(CensusRule(at_least=2, within=5.0))
    join(machine, 1, offer={"rooms": 1})
    told, outcome = machine.step(Ticked(5.0))
    assert told == Send(Dismiss(TX, "1 joined, 2 were wanted"), To.CANDIDATES)
    assert isinstance(outcome, Unsettled)
    assert [reply.offer for reply in outcome.replies] == [{"rooms": 1}]
    assert machine.stage is Stage.FAILED


def test_a_join_counts_once() -> None:
    machine = census(CensusRule(at_least=2, at_most=2))
    join(machine, 1)
    assert join(machine, 1) == []
    assert machine.step(Received(Join(TX, "p9", "k1"), "k1", 1.0)) == [], "the same key under another pseudonym"
    assert machine.step(Received(Join(TX, "p1", "k9"), "k9", 1.0)) == [], "the same pseudonym with another key"
    assert machine.stage is Stage.INVITING


@pytest.mark.parametrize("signer", ["", "k2", "stranger"])
def test_a_join_is_signed_with_its_own_key(signer: str) -> None:
    machine = census(CensusRule(at_least=1, at_most=1))
    assert machine.step(Received(Join(TX, "p1", "k1"), signer, 1.0)) == []
    assert members(join(machine, 1)) == hashes(1)


def test_other_transactions_and_other_messages_do_not_matter() -> None:
    machine = census(CensusRule(at_least=1, at_most=1))
    assert machine.step(Received(Join("j1-b", "p1", "k1"), "k1", 1.0)) == []
    assert machine.step(Received(Vote(TX, 1, 1, "h", "yes"), "k1", 1.0)) == []


def test_named_participants_keep_their_places() -> None:
    machine = census(CensusRule(at_least=1, at_most=2, named=frozenset({"rooms"})))
    join(machine, 1)
    assert join(machine, 2) == [], "the second place is kept"
    assert members(join(machine, 3, name="rooms")) == hashes(1, 3)


def test_when_all_named_are_there_nobody_waits() -> None:
    machine = census(CensusRule(at_least=1, named=frozenset({"rooms", "tickets"})))
    assert join(machine, 1, name="rooms") == []
    assert members(join(machine, 2, name="tickets")) == hashes(1, 2)


def test_a_named_one_that_is_missing_fails_it() -> None:
    machine = census(CensusRule(at_least=1, named=frozenset({"rooms"})))
    join(machine, 1)
    assert failed(machine.step(Ticked(5.0))) == "these did not join: rooms"


def test_the_predicate_sees_the_offers() -> None:
    rule = CensusRule(at_least=1, at_most=2, predicate=lambda offers: sum(offer.data for offer in offers) >= 10)
    good, bad = census(rule), census(rule)
    join(good, 1, offer=4)
    assert members(join(good, 2, offer=6)) == hashes(1, 2)
    join(bad, 1, offer=4)
    assert failed(join(bad, 2, offer=5)) == "the condition on the offers does not hold"


def test_the_publisher_says_who_is_vital() -> None:
    machine = census(CensusRule(at_least=1, at_most=2, vital=lambda offer: offer.name != "printer"))
    join(machine, 1)
    settled = join(machine, 2, name="printer")[0]
    assert isinstance(settled, Settled)
    assert [member.vital for member in settled.members] == [True, False]


def test_a_withdrawn_census_tells_those_who_joined() -> None:
    machine = census(CensusRule())
    join(machine, 1)
    told, outcome = machine.step(Withdrawn("changed my mind"))
    assert isinstance(told, Send)
    assert isinstance(outcome, Unsettled)
    assert machine.step(Ticked(9.0)) == []


def test_keys_for_wrapping_are_passed_on_by_hash() -> None:
    machine = census(CensusRule(at_least=1, at_most=1))
    (settled,) = machine.step(Received(Join(TX, "p1", "k1", wrap="w1"), "k1", 1.0))
    assert isinstance(settled, Settled)
    assert settled.wraps == {member_hash(TX, "p1"): "w1"}


def test_a_rule_that_nobody_can_meet_is_refused() -> None:
    with pytest.raises(DeclarationError):
        Census(CensusRule(at_least=3, at_most=2), INVITE)


@pytest.mark.parametrize("part", ["predicate", "vital"])
@pytest.mark.parametrize("named", [frozenset(), frozenset({"ada"})])
def test_a_rule_that_raises_fails_the_census(part: str, named: frozenset[str]) -> None:
    def judge(offered: object) -> bool:
        raise ZeroDivisionError("oops")

    machine = census(CensusRule(at_most=None if named else 1, named=named, **{part: judge}))  # type: ignore[arg-type]  # one of two
    assert failed(join(machine, 1, name="ada")) == "the rule of the census raised ZeroDivisionError: oops"
    assert machine.stage is Stage.FAILED
