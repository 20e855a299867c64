"""Each rule of the window for duplicates, by an example."""

from __future__ import annotations

import pytest

from tutti.errors import InvariantViolated
from tutti.flow.duplicates import Duplicates


def test_an_identity_is_new_once() -> None:
    duplicates = Duplicates()
    assert [duplicates.seen(i, 0.0) for i in ("a", "b", "a", "a", "b")] == [False, False, True, True, True]


def test_it_is_forgotten_when_its_time_is_over_and_a_repeat_does_not_prolong_it() -> None:
    duplicates = Duplicates(window=10.0)
    assert not duplicates.seen("a", 0.0)
    assert duplicates.seen("a", 9.0)
    assert not duplicates.seen("a", 10.0)
    assert len(duplicates) == 1


def test_the_oldest_make_room() -> None:
    duplicates = Duplicates(limit=2)
    for identity in ("a", "b", "c"):
        duplicates.seen(identity, 0.0)
        duplicates.check()
    assert duplicates.seen("c", 0.0)
    assert duplicates.seen("b", 0.0)
    assert not duplicates.seen("a", 0.0)


def test_time_does_not_run_backwards() -> None:
    duplicates = Duplicates(window=10.0)
    duplicates.seen("a", 100.0)
    assert not duplicates.seen("b", 5.0)
    duplicates.check()
    assert duplicates.seen("b", 109.0)


def test_a_window_for_nothing_is_refused() -> None:
    with pytest.raises(InvariantViolated, match="at least one"):
        Duplicates(limit=0)
