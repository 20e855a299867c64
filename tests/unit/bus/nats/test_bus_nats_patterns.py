from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutti.bus.nats.patterns import disjoint, matches, overlap, parsed, widened

tokens = st.sampled_from("ab")
subjects = st.lists(tokens, min_size=1, max_size=4).map(tuple)
patterns = st.builds(
    lambda start, end: (*start, *end),
    st.lists(st.sampled_from("ab*"), max_size=3),
    st.sampled_from([(">",), ("*",), ("a",)]),
)


@pytest.mark.parametrize(
    ("pattern", "subject", "expected"),
    [
        ("a", "a", True), ("a", "b", False), ("a", "a.b", False), ("a.b", "a", False), ("*", "a", True),
        ("*", "a.b", False), (">", "a", True), (">", "a.b", True), ("a.>", "a", False), ("a.>", "a.b.c", True),
        ("*.b", "a.b", True), ("a.*.c", "a.b.c", True), ("a.*.c", "a.b.d", False),
    ],
)  # fmt: skip
def test_what_matches(pattern: str, subject: str, expected: bool) -> None:
    assert matches(parsed(pattern), parsed(subject)) is expected


@given(patterns, patterns, subjects)
def test_overlap_and_widening_agree_with_matching(
    one: tuple[str, ...], other: tuple[str, ...], subject: tuple[str, ...]
) -> None:
    if matches(one, subject) and matches(other, subject):
        assert overlap(one, other)
    if matches(one, subject) or matches(other, subject):
        assert matches(widened(one, other), subject)


@given(st.lists(patterns, max_size=5), subjects)
def test_disjoint_patterns_lose_nothing_and_do_not_overlap(
    given_patterns: list[tuple[str, ...]], subject: tuple[str, ...]
) -> None:
    result = [parsed(pattern) for pattern in disjoint(".".join(pattern) for pattern in given_patterns)]
    assert sum(matches(pattern, subject) for pattern in result) <= 1
    if any(matches(pattern, subject) for pattern in given_patterns):
        assert any(matches(pattern, subject) for pattern in result)


def test_what_does_not_overlap_stays_as_it_is() -> None:
    assert disjoint(["b.>", "a.b", "a.c"]) == ("a.b", "a.c", "b.>")
    assert disjoint(["a.b", "a.>", "a.b"]) == ("a.>",)
    assert disjoint(["*.b", "a.>"]) == ("*.>",)
