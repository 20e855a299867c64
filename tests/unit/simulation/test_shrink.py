"""A smaller scenario that breaks the same rule."""

from __future__ import annotations

import pytest

from tutti.simulation.planted import BUGS, unchecked
from tutti.simulation.run import play
from tutti.simulation.shrink import shrink, size


@pytest.mark.parametrize("name", ["a decision before its row", "anybody may say abort"])
def test_what_is_left_still_breaks_the_rule(name: str) -> None:
    (bug,) = (bug for bug in BUGS if bug.name == name)
    scenario = unchecked(1)
    with bug.plant():
        failure = play(scenario)[0].failure
        assert failure is not None
        smaller = shrink(scenario, failure.invariant)
        again = play(smaller)[0].failure
        assert shrink(scenario, failure.invariant) == smaller, "the same each time"
    assert again is not None
    assert again.invariant == failure.invariant
    assert size(smaller)[0] <= 2 < size(scenario)[0]
    assert size(smaller)[1] <= 2 < size(scenario)[1]
    assert play(smaller)[0].failure is None, "without the bug it is as it should be"


def test_another_rule_does_not_count() -> None:
    scenario = unchecked(1)
    assert shrink(scenario, "agreement") == scenario
