"""Statuses name their events exactly."""

from __future__ import annotations

import pytest

from tutti.errors import InvalidMessage, InvariantViolated
from tutti.limits import STATUS_EVENTS_MAX_BYTES
from tutti.model.status import (
    InlineEvents,
    ManifestEvents,
    ManifestReference,
    Span,
    TransactionStatus,
    checked,
    count_of,
    manifests_of,
    named,
    rejoined,
    sequences_of,
    size_of,
    spans_of,
)


def test_neighbours_are_joined_and_order_does_not_matter() -> None:
    spans = spans_of({"b": [7], "a": [5, 3, 4, 9, 3], "c": []})
    assert spans == (Span("a", ((3, 5), (9, 9))), Span("b", ((7, 7),)))
    assert list(sequences_of(spans)) == [("a", 3), ("a", 4), ("a", 5), ("a", 9), ("b", 7)]
    assert count_of(spans) == 5


def test_a_thousand_events_in_a_row_are_a_few_bytes() -> None:
    assert size_of(spans_of({"events": range(10**12, 10**12 + 1_000)})) < 60


def test_what_fits_needs_no_manifest() -> None:
    assert manifests_of(spans_of({"events": range(1, 2_000, 2)})) == []


def test_manifests_hold_everything_and_each_fits() -> None:
    spans = spans_of({"a": range(1, 60_000, 2), "b": range(10**15, 10**15 + 40_000, 3)})
    parts = manifests_of(spans)
    assert len(parts) > 1
    assert all(size_of(part) <= STATUS_EVENTS_MAX_BYTES for part in parts)
    references = tuple(ManifestReference("a", 70_000 + n) for n in range(len(parts)))
    events = named(spans, references)
    assert isinstance(events, ManifestEvents)
    assert events.count == count_of(spans)
    assert rejoined(events, parts) == spans
    assert checked(TransactionStatus("j-1", "committed", events)).events == events


@pytest.mark.parametrize("change", ["missing", "doubled", "changed", "swapped"])
def test_half_a_manifest_is_never_taken_for_all(change: str) -> None:
    spans = spans_of({"a": range(1, 60_000, 2)})
    parts = manifests_of(spans)
    events = named(spans, (ManifestReference("a", 1),))
    assert isinstance(events, ManifestEvents)
    match change:
        case "missing":
            parts = parts[1:]
        case "doubled":
            parts = [*parts, parts[0]]
        case "changed":
            first, *others = parts[0][0].ranges
            parts[0] = (Span("a", ((first[0] + 1, first[1] + 1), *others)),)
        case _:
            parts[0], parts[1] = parts[1], parts[0]
    with pytest.raises(InvalidMessage, match="manifests name"):
        rejoined(events, parts)


def test_too_many_events_inline_are_refused_before_they_are_written() -> None:
    status = TransactionStatus("j-1", "committed", InlineEvents(spans_of({"a": range(1, 60_000, 2)})))
    with pytest.raises(InvariantViolated, match="publish `manifests_of` them"):
        checked(status)


@pytest.mark.parametrize("ranges", [((5, 4),), ((1, 3), (3, 5)), ((1, 3), (4, 5)), ((9, 9), (1, 1))])
def test_ranges_out_of_order_are_refused(ranges: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(InvariantViolated, match="out of order"):
        checked(TransactionStatus("j-1", "aborted", InlineEvents((Span("a", ranges),))))


def test_empty_manifests_and_closings_are_refused() -> None:
    with pytest.raises(InvariantViolated):
        checked(TransactionStatus("j-1", "aborted", ManifestEvents((), 0, "")))
    with pytest.raises(InvariantViolated):
        checked(TransactionStatus("j-1", "work_ended", closing=0))
