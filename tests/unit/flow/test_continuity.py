"""Each rule of continuity, by an example."""

from __future__ import annotations

import pytest

from tutti.errors import InvariantViolated
from tutti.flow.continuity import CONTINUOUS, Continuity, Gap, Repeat, Unproven


def test_numbers_that_rise_by_one_are_continuous_on_every_subject_for_itself() -> None:
    continuity = Continuity()
    verdicts = [continuity.observe("p", subject, n, n) for n in (1, 2, 3) for subject in ("a", "b")]
    verdicts.append(continuity.observe("q", "a", 1, 9))
    assert set(verdicts) == {CONTINUOUS}


def test_a_gap_names_what_is_missing_and_is_reported_once() -> None:
    continuity = Continuity()
    continuity.observe("p", "a", 1, 1)
    assert continuity.observe("p", "a", 5, 2) == Gap("p", "a", 2, 4)
    assert continuity.observe("p", "a", 6, 3) == CONTINUOUS


def test_a_number_that_comes_again_is_a_repeat_and_moves_nothing() -> None:
    continuity = Continuity()
    for n in (1, 2, 3):
        continuity.observe("p", "a", n, n)
    assert continuity.observe("p", "a", 3, 7) == Repeat("p", "a", 3)
    assert continuity.observe("p", "a", 1, 8) == Repeat("p", "a", 1)
    assert continuity.observe("p", "a", 4, 9) == CONTINUOUS


def test_reading_the_same_place_of_the_log_again_says_nothing_new() -> None:
    continuity = Continuity()
    for n in (1, 2, 3):
        continuity.observe("p", "a", n, n)
    assert continuity.observe("p", "a", 1, 1) == CONTINUOUS
    assert continuity.observe("p", "a", 3, 3) == CONTINUOUS
    assert continuity.observe("p", "a", 4, 4) == CONTINUOUS


@pytest.mark.parametrize(
    ("previous", "verdict"),
    [(6, CONTINUOUS), (3, Gap("p", "a", 4, 6)), (0, Gap("p", "a", 1, 6)), (None, CONTINUOUS)],
)
def test_a_first_sight_above_one_is_unproven_until_somebody_looked_back(previous: int | None, verdict: object) -> None:
    continuity = Continuity()
    assert continuity.observe("p", "a", 7, 1) == Unproven("p", "a", 7)
    assert continuity.observe("p", "a", 8, 2) == CONTINUOUS
    assert continuity.resolve("p", "a", previous) == verdict
    assert continuity.resolve("p", "a", 0) == CONTINUOUS, "it counts once"


def test_resolving_what_nobody_asked_about_is_harmless() -> None:
    continuity = Continuity()
    assert continuity.resolve("p", "a", 0) == CONTINUOUS
    continuity.observe("p", "a", 1, 1)
    assert continuity.resolve("p", "a", 0) == CONTINUOUS


def test_who_was_not_heard_of_for_longest_is_forgotten_first() -> None:
    continuity = Continuity(limit=4)
    continuity.observe("steady", "a", 1, 1)
    for n in range(2, 50):
        assert continuity.observe(f"passing {n}", "a", 1, n) == CONTINUOUS
        assert continuity.observe("steady", "a", n, n) == CONTINUOUS
        continuity.check()
        assert len(continuity) <= 4
    assert continuity.observe("passing 2", "a", 2, 99) == Unproven("passing 2", "a", 2)


def test_a_limit_without_room_is_refused() -> None:
    with pytest.raises(InvariantViolated, match="two generations"):
        Continuity(limit=1)
