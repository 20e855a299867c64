"""Each rule of the partitions, by an example."""

from __future__ import annotations

import pytest

from tutti.errors import InvariantViolated
from tutti.flow.partitions import (
    NOBODY,
    Begin,
    Claim,
    Denied,
    Drain,
    Drained,
    Effect,
    Granted,
    Input,
    LeaseRecord,
    Leaving,
    Lost,
    Observed,
    Partitions,
    Refused,
    Release,
    Renew,
    Ticked,
    fair_shares,
)
from tutti.limits import LEASE_MARGIN_SECONDS, LEASE_RENEW_SECONDS, LEASE_TTL_SECONDS

HOLDS_SECONDS = LEASE_TTL_SECONDS - LEASE_MARGIN_SECONDS


class Driver:
    """One instance called `me`, with one partition unless more are wanted."""

    def __init__(self, count: int = 1) -> None:
        self.machine = Partitions("me", count)

    def step(self, given: Input) -> list[Effect]:
        effects = self.machine.step(given)
        self.machine.check()
        return effects

    def observe(self, now: float, *records: LeaseRecord, members: tuple[str, ...] = ("me",)) -> list[Effect]:
        return self.step(Observed(now, members, records))

    def take(self, now: float = 0.0, revision: int = 1) -> None:
        """Partition 0 becomes ours, with epoch 1."""
        assert self.observe(now) == [Claim(0, 1, 0)]
        assert self.step(Granted(0, revision, now)) == [Begin(0, 1)]


def test_a_free_partition_is_claimed_and_begun_when_granted() -> None:
    drive = Driver()
    assert drive.observe(0.0) == [Claim(0, 1, 0)]
    assert not drive.machine.may_run(0, 0.0)
    assert drive.observe(0.1) == [], "one write at a time"
    assert drive.step(Granted(0, 5, 0.0)) == [Begin(0, 1)]
    assert drive.machine.may_run(0, 0.2)
    assert drive.machine.held() == (0,)
    assert drive.machine.epoch(0) == 1


def test_a_lease_holds_from_when_it_was_sent() -> None:
    drive = Driver()
    drive.observe(10.0)
    drive.step(Ticked(11.0))
    drive.step(Granted(0, 5, 10.0))
    assert drive.machine.may_run(0, 10.0 + HOLDS_SECONDS - 0.01)
    assert not drive.machine.may_run(0, 10.0 + HOLDS_SECONDS)


def test_it_is_renewed_in_time_and_with_the_same_epoch() -> None:
    drive = Driver()
    drive.take()
    assert drive.step(Ticked(LEASE_RENEW_SECONDS - 0.01)) == []
    assert drive.step(Ticked(LEASE_RENEW_SECONDS)) == [Renew(0, 1, 1)]
    assert drive.step(Granted(0, 2, LEASE_RENEW_SECONDS)) == []
    assert drive.machine.may_run(0, LEASE_RENEW_SECONDS + HOLDS_SECONDS - 0.01)


def test_a_foreign_lease_is_left_alone_until_it_was_unchanged_for_its_time() -> None:
    drive = Driver()
    assert drive.observe(0.0, LeaseRecord(0, "you", 4, 9)) == []
    assert drive.observe(2.0, LeaseRecord(0, "you", 4, 10)) == []
    assert drive.observe(2.0 + LEASE_TTL_SECONDS - 0.01, LeaseRecord(0, "you", 4, 10)) == []
    assert drive.observe(2.0 + LEASE_TTL_SECONDS, LeaseRecord(0, "you", 4, 10)) == [Claim(0, 5, 10)]


def test_a_released_lease_is_claimed_at_once() -> None:
    drive = Driver()
    assert drive.observe(0.0, LeaseRecord(0, NOBODY, 4, 9)) == [Claim(0, 5, 9)]


def test_after_a_denial_nothing_is_written_before_the_next_observation() -> None:
    drive = Driver()
    drive.observe(0.0)
    assert drive.step(Denied(0)) == []
    assert drive.step(Ticked(1.0)) == []
    assert drive.observe(1.1, LeaseRecord(0, "you", 1, 3)) == []


def test_what_somebody_else_took_is_lost() -> None:
    drive = Driver()
    drive.take()
    assert drive.observe(9.0, LeaseRecord(0, "you", 2, 7)) == [Lost(0)]
    assert not drive.machine.may_run(0, 0.0)
    assert drive.machine.epoch(0) is None


def test_a_denied_renewal_is_not_yet_a_loss() -> None:
    drive = Driver()
    drive.take()
    drive.step(Ticked(1.0))
    assert drive.step(Denied(0)) == []
    assert drive.machine.may_run(0, 1.1), "the earlier renewal still counts"
    assert drive.observe(1.2, LeaseRecord(0, "me", 1, 2)) == [], "it was stored after all; renewed when it is due again"
    assert drive.machine.may_run(0, HOLDS_SECONDS - 0.01)
    assert not drive.machine.may_run(0, HOLDS_SECONDS), "but nobody knows when it was stored"
    assert drive.step(Ticked(2.0)) == [Renew(0, 1, 2)]


def test_a_lease_that_ran_out_is_still_ours_to_renew() -> None:
    drive = Driver()
    drive.take()
    assert drive.observe(60.0, LeaseRecord(0, "me", 1, 1)) == [Renew(0, 1, 1)]
    assert not drive.machine.may_run(0, 60.0)
    assert drive.step(Granted(0, 2, 60.0)) == []
    assert drive.machine.may_run(0, 60.1)


def test_a_claim_whose_answer_was_lost_is_found_and_renewed_before_it_begins() -> None:
    drive = Driver()
    drive.observe(0.0)
    drive.step(Denied(0))
    assert drive.observe(1.0, LeaseRecord(0, "me", 1, 4)) == [Renew(0, 1, 4)]
    assert drive.step(Granted(0, 5, 1.0)) == [Begin(0, 1)]


def test_a_write_without_an_answer_counts_as_denied_and_its_late_answer_as_unsaid() -> None:
    drive = Driver()
    drive.observe(0.0)
    late = LEASE_TTL_SECONDS
    assert drive.observe(late) == [Claim(0, 1, 0)]
    assert drive.step(Granted(0, 1, 0.1)) == [], "the answer to the first claim"
    assert drive.step(Granted(0, 2, late)) == [Begin(0, 1)]


def test_a_grant_that_comes_too_late_is_worth_nothing() -> None:
    drive = Driver()
    drive.observe(0.0)
    drive.step(Ticked(HOLDS_SECONDS))
    assert drive.step(Granted(0, 1, 0.0)) == []
    assert drive.machine.held() == ()


def test_a_grant_that_was_overwritten_since_is_worth_nothing() -> None:
    drive = Driver()
    drive.observe(0.0)
    assert drive.observe(0.5, LeaseRecord(0, "you", 2, 8)) == []
    assert drive.step(Granted(0, 7, 0.0)) == []
    assert drive.machine.held() == ()


def test_the_excess_is_drained_and_released() -> None:
    drive = Driver(2)
    drive.observe(0.0)
    drive.step(Granted(0, 1, 0.0))
    drive.step(Granted(1, 2, 0.0))
    records = (LeaseRecord(0, "me", 1, 1), LeaseRecord(1, "me", 1, 2))
    assert drive.observe(0.5, *records, members=("me", "you")) == [Drain(1)]
    assert drive.machine.may_run(1, 0.6), "what runs may finish"
    assert drive.step(Ticked(1.0)) == [Renew(0, 1, 1), Renew(1, 1, 2)]
    assert drive.step(Drained(1)) == [], "the renewal is on its way"
    assert drive.step(Granted(1, 3, 1.0)) == [Release(1, 1, 3)]
    assert not drive.machine.may_run(1, 1.1)
    assert drive.step(Granted(1, 4, 1.0)) == []
    assert drive.machine.held() == (0,)


def test_a_denied_release_is_repeated_unless_it_was_stored() -> None:
    drive = Driver()
    drive.take()
    drive.step(Leaving())
    assert drive.step(Drained(0)) == [Release(0, 1, 1)]
    drive.step(Denied(0))
    assert not drive.machine.gone()
    assert drive.observe(0.5, LeaseRecord(0, "me", 1, 1)) == [Release(0, 1, 1)]
    drive.step(Denied(0))
    assert drive.observe(0.6, LeaseRecord(0, NOBODY, 1, 2)) == []
    assert drive.machine.gone()


def test_leaving_drains_everything_and_takes_nothing() -> None:
    drive = Driver(2)
    drive.observe(0.0)
    drive.step(Granted(0, 1, 0.0))
    assert drive.step(Leaving()) == [Drain(0)]
    assert drive.step(Granted(1, 2, 0.0)) == [Release(1, 1, 2)], "granted when we were about to leave"
    assert drive.step(Granted(1, 3, 0.0)) == []
    assert drive.step(Drained(0)) == [Release(0, 1, 1)]
    assert not drive.machine.gone()
    assert drive.step(Granted(0, 4, 0.0)) == []
    assert drive.machine.gone()
    assert drive.observe(1.0, LeaseRecord(0, NOBODY, 1, 4), LeaseRecord(1, NOBODY, 1, 3)) == []


def test_a_refused_beginning_comes_back_with_the_next_epoch() -> None:
    drive = Driver()
    drive.take()
    assert drive.step(Refused(0)) == [Lost(0)]
    assert drive.step(Refused(0)) == []
    assert drive.observe(0.5, LeaseRecord(0, "me", 1, 1)) == [Release(0, 1, 1)]
    drive.step(Granted(0, 2, 0.5))
    assert drive.observe(0.6, LeaseRecord(0, NOBODY, 1, 2)) == [Claim(0, 2, 2)]


def test_an_older_observation_is_ignored() -> None:
    drive = Driver()
    drive.take(revision=5)
    assert drive.observe(0.1) == []
    assert drive.observe(0.2, LeaseRecord(0, "you", 7, 4)) == []
    assert drive.machine.held() == (0,)


def test_a_record_that_stays_older_is_the_truth_and_the_epoch_does_not_go_back() -> None:
    drive = Driver()
    drive.observe(0.0, LeaseRecord(0, NOBODY, 6, 40))
    drive.step(Granted(0, 41, 0.0))
    assert drive.observe(0.5) == []
    assert drive.observe(1.5) == [Renew(0, 7, 41)]
    drive.step(Denied(0))
    assert drive.observe(2.5) == []
    assert drive.observe(0.5 + LEASE_TTL_SECONDS) == [Lost(0), Claim(0, 8, 0)]


@pytest.mark.parametrize("given", [Granted(0, 9, 0.0), Denied(0), Drained(0), Refused(0), Ticked(5.0)])
def test_answers_to_nothing_change_nothing(given: Input) -> None:
    drive = Driver()
    assert drive.step(given) == []
    drive.take(now=6.0)
    if not isinstance(given, Refused):
        assert drive.step(given) == []
        assert drive.machine.held() == (0,)


@pytest.mark.parametrize(
    ("members", "owners", "moved"),
    [
        (("a",), {}, 0),
        (("a", "b"), dict.fromkeys(range(8), "a"), 4),
        (("a", "b", "c"), {p: "ab"[p % 2] for p in range(8)}, 2),
        (("a", "c"), {p: "abc"[p % 3] for p in range(8)}, 0),
        (("a", "b", "c"), {0: "a", 1: "a", 2: "a", 3: "b", 4: "b", 5: "b", 6: "c", 7: "c"}, 0),
        (("a", "b", "c"), {0: "a", 1: "a", 2: "b", 3: "b", 4: "b", 5: "c", 6: "c", 7: "c"}, 0),
    ],
)
def test_shares_are_fair_and_little_moves(members: tuple[str, ...], owners: dict[int, str], moved: int) -> None:
    shares = fair_shares(members, owners, 8)
    sizes = [list(shares.values()).count(member) for member in members]
    assert sorted(shares) == list(range(8))
    assert max(sizes) - min(sizes) <= 1
    assert sum(owner in members and shares[p] != owner for p, owner in owners.items()) == moved


def test_nobody_there_nobody_served() -> None:
    assert fair_shares((), {0: "a"}, 8) == {}


def test_leases_that_cannot_be_kept_are_refused() -> None:
    with pytest.raises(InvariantViolated, match="renewed"):
        Partitions("me", ttl=1.0, renew=0.9, margin=0.2)
    with pytest.raises(InvariantViolated, match="id"):
        Partitions("")
