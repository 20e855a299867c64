from __future__ import annotations

import time

import pytest

from tutti.filters.like import matcher_of, pattern_of


@pytest.mark.parametrize(
    ("pattern", "passing", "failing"),
    [
        ("abc", ["abc"], ["ab", "abcd", "ABC", ""]),
        ("", [""], ["a"]),
        ("%", ["", "anything"], []),
        ("%%", ["", "anything"], []),
        ("a%", ["a", "ab"], ["", "ba"]),
        ("%a", ["a", "ba"], ["", "ab"]),
        ("%a%", ["a", "bab"], ["", "b"]),
        ("a%a", ["aa", "aba"], ["a", "ab"]),
        ("a%b%c", ["abc", "azbc", "azzzbzzzc", "a%b%c", "abcbc"], ["ac", "", "abcd", "acb"]),
        ("_", ["a", "%"], ["", "ab"]),
        ("a_c", ["abc", "a_c"], ["ac", "abbc"]),
        ("_%_", ["ab", "abc"], ["a", ""]),
        ("%_b%", ["ab", "xxabxx", "bb"], ["b", "ba"]),
        ("%a_c%d_f%", ["-abc-def-", "abcdef"], ["ac-def", "def-abc"]),
        ("%ab_ab%", ["ababxab", "abxab"], ["abab"]),
        ("a\\%b", ["a%b"], ["ab", "axb", "a\\%b"]),
        ("a\\_b", ["a_b"], ["axb"]),
        ("ab\\c", ["ab\\c"], ["abc"]),
        ("a\\\\%", ["a\\%"], ["a\\", "a\\x"]),
        ("\\", ["\\"], [""]),
        (".%.%.", [".ab.cde.", "..."], ["ab.cde", ".."]),
        ("%\n%", ["a\nb"], ["ab"]),
        ("_é𝄞", ["xé𝄞"], ["é𝄞"]),
    ],
)
def test_patterns(pattern: str, passing: list[str], failing: list[str]) -> None:
    matches = matcher_of(pattern_of(pattern))
    assert [text for text in passing if not matches(text)] == []
    assert [text for text in failing if matches(text)] == []


def test_what_a_pattern_tells_of_its_texts() -> None:
    assert pattern_of("abc%d").prefix == "abc"
    assert pattern_of("a\\%b_%").prefix == "a%b"
    assert pattern_of("a\\%b").exact == "a%b"
    assert pattern_of("a_").exact is None
    assert pattern_of("a%").is_prefix
    assert not pattern_of("a%%").is_prefix
    assert not pattern_of("a_%").is_prefix


def test_only_what_is_looked_for_costs() -> None:
    text = "x" * 1_000
    assert pattern_of("a%b").cost(text) == 0
    assert pattern_of("%a%").cost(text) == 1_000
    assert pattern_of("%a_%" + "b_" * 100 + "%").cost(text) > 3_000


@pytest.mark.parametrize("pattern", ["%a" * 400 + "b", "%a_" * 200 + "%b", "%" + "a_" * 200 + "b%", "a%" * 400])
def test_hostile_patterns_take_linear_time(pattern: str) -> None:
    matches = matcher_of(pattern_of(pattern))
    start = time.process_time()
    matches("a" * 20_000)
    assert time.process_time() - start < 1.0
