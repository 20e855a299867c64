"""Which events concern a subscription."""

from __future__ import annotations

from collections.abc import Hashable

import tutti
from tutti.filters import Filter, Index
from tutti.flow.matcher import ALL, Matcher, Seen


class Step(tutti.Event):
    number: int


def seen(number: int, **attributes: str) -> Seen:
    return Seen(Step(number), attributes)


def test_without_a_filter_everything_passes() -> None:
    matcher = Matcher(None, None)
    assert matcher.open
    assert matcher.match(seen(1)) is ALL


def test_a_filter_sees_fields_and_attributes() -> None:
    matcher = Matcher(Filter.parse("number > 1 AND source = '/a'"), None)
    assert not matcher.open
    assert matcher.match(seen(2, source="/a")) is ALL
    assert matcher.match(seen(2, source="/b")) is None
    assert matcher.match(seen(1, source="/a")) is None


def test_an_error_turns_the_event_away_and_is_counted() -> None:
    matcher = Matcher(Filter.parse("number / 0 = 1"), None)
    assert matcher.match(seen(1)) is None
    assert matcher.errors == 1


def test_an_index_names_the_filters_that_match() -> None:
    index: Index[Hashable] = Index()
    index.add("small", "number < 10")
    index.add("two", "number = 2")
    matcher = Matcher(None, index)
    assert set(matcher.match(seen(2)) or ()) == {"small", "two"}
    assert matcher.match(seen(11)) is None
