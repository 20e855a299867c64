"""Continuity and duplicates against the plainest model of each: a list of everything there ever was."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tutti.flow.continuity import CONTINUOUS, Continuity, Gap, Repeat, Unproven
from tutti.flow.duplicates import Duplicates

steps = st.lists(st.tuples(st.sampled_from("pq"), st.sampled_from("ab"), st.integers(1, 9)), max_size=60)


@settings(max_examples=200)
@given(steps)
def test_every_number_is_seen_or_reported(script: list[tuple[str, str, int]]) -> None:
    continuity = Continuity()
    seen: dict[tuple[str, str], set[int]] = {}
    reported: dict[tuple[str, str], set[int]] = {}
    for position, (publisher, subject, number) in enumerate(script, 1):
        key = (publisher, subject)
        numbers = seen.setdefault(key, set())
        missing = reported.setdefault(key, set())
        verdict = continuity.observe(publisher, subject, number, position)
        continuity.check()
        match verdict:
            case Gap():
                missing.update(range(verdict.first_missing, verdict.last_missing + 1))
            case Unproven():
                assert not numbers
                assert number > 1
                missing.update(range(1, number))  # nothing was ever stored before it
                assert continuity.resolve(publisher, subject, 0) == Gap(publisher, subject, 1, number - 1)
            case Repeat():
                assert number <= max(numbers)
            case _:
                assert number == max(numbers, default=0) + 1
        numbers.add(number)
        assert set(range(1, max(numbers) + 1)) <= numbers | missing, "a number neither seen nor reported"
        assert not any(n in missing for n in range(max(numbers), 10)), "reported what has not come yet"


@settings(max_examples=200)
@given(st.integers(2, 6), st.lists(st.sampled_from("abcdefgh"), max_size=60))
def test_a_small_memory_reports_no_gap_that_is_not_there(limit: int, publishers: list[str]) -> None:
    continuity = Continuity(limit)
    last: dict[str, int] = {}
    for position, publisher in enumerate(publishers, 1):
        number = last[publisher] = last.get(publisher, 0) + 1
        verdict = continuity.observe(publisher, "s", number, position)
        continuity.check()
        assert len(continuity) <= limit
        assert verdict in (CONTINUOUS, Unproven(publisher, "s", number))
        recent = list(dict.fromkeys(reversed(publishers[: position - 1])))[: limit // 2]
        assert verdict == CONTINUOUS or publisher not in recent, "forgot one of the latest"


@settings(max_examples=200)
@given(
    st.integers(1, 6),
    st.floats(0.5, 5.0),
    st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from([0.0, 0.1, 0.5, 1.0, 3.0])), max_size=60),
)
def test_duplicates_are_those_of_the_window(limit: int, window: float, script: list[tuple[str, float]]) -> None:
    duplicates = Duplicates(limit, window)
    now = 0.0
    fresh: list[tuple[float, str]] = []  # everything that was new, ever
    for identity, later in script:
        now += later
        expected = any(i == identity and at > now - window for at, i in fresh[-limit:])
        assert duplicates.seen(identity, now) == expected
        duplicates.check()
        if not expected:
            fresh.append((now, identity))
