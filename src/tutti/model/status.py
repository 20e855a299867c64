"""A transaction's status as it stands on the log: the one record that says which events count from now on.

A status names its events exactly, as ranges of sequences per stream. Where these need more than
`STATUS_EVENTS_MAX_BYTES`, they are split into manifest records, published before the decision, and the status refers to
them with the count and a digest of the whole: a reader never takes half of it for all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal

import msgspec

from tutti.errors import InvalidMessage, InvariantViolated, invariant
from tutti.limits import STATUS_EVENTS_MAX_BYTES
from tutti.model.transaction import Scope

PublishedStatus = Literal["work_ended", "committed", "aborted"]  # `active` stays in the journal


class Span(msgspec.Struct, frozen=True, array_like=True):
    """Events of one stream: ascending (first, last), both included, that neither overlap nor touch."""

    stream: str
    ranges: tuple[tuple[int, int], ...]


class InlineEvents(msgspec.Struct, frozen=True, tag_field="kind", tag="inline"):
    spans: tuple[Span, ...] = ()


class ManifestReference(msgspec.Struct, frozen=True, array_like=True):
    """Where a manifest record stands."""

    stream: str
    sequence: int


class ManifestEvents(msgspec.Struct, frozen=True, tag_field="kind", tag="manifest"):
    manifests: tuple[ManifestReference, ...]
    count: int
    digest: str


NamedEvents = InlineEvents | ManifestEvents


class TransactionStatus(msgspec.Struct, frozen=True):
    """`closing` counts the closings of the work from 1: a second `work_ended` names only the events since the first."""

    tx: str
    status: PublishedStatus
    events: NamedEvents = InlineEvents()
    closing: int = 1
    reason: str = ""
    version: int = 1
    scope: Scope = "public"  # outsiders need not look for the events of a private one


_encoder: Final = msgspec.json.Encoder()


def spans_of(sequences: Mapping[str, Iterable[int]]) -> tuple[Span, ...]:
    """The one form of a set of events: streams in order, ranges in order, neighbours joined."""
    return tuple(Span(stream, ranges) for stream in sorted(sequences) if (ranges := _ranges(sequences[stream])))


def _ranges(sequences: Iterable[int]) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    for sequence in sorted(set(sequences)):
        if found and found[-1][1] == sequence - 1:
            found[-1] = (found[-1][0], sequence)
        else:
            found.append((sequence, sequence))
    return tuple(found)


def sequences_of(spans: Iterable[Span]) -> Iterator[tuple[str, int]]:
    """Every event as (stream, sequence), in order."""
    for span in spans:
        for first, last in span.ranges:
            yield from ((span.stream, sequence) for sequence in range(first, last + 1))


def count_of(spans: Iterable[Span]) -> int:
    return sum(last - first + 1 for span in spans for first, last in span.ranges)


def digest_of(spans: tuple[Span, ...]) -> str:
    return hashlib.sha256(_encoder.encode(spans)).hexdigest()


def size_of(spans: tuple[Span, ...]) -> int:
    """In bytes, as it stands in a status."""
    return len(_encoder.encode(spans))


def manifests_of(spans: tuple[Span, ...], *, max_bytes: int = STATUS_EVENTS_MAX_BYTES) -> list[tuple[Span, ...]]:
    """The parts to publish as manifest records; together they are `spans`. Empty where a status holds them itself."""
    if size_of(spans) <= max_bytes:
        return []
    parts: list[tuple[Span, ...]] = []
    for span in spans:
        # A range has at most two numbers of 20 digits; 46 bytes with its marks. A stream's name counts once a part.
        room = (max_bytes - len(_encoder.encode(span.stream)) - 16) // 46
        invariant(room > 0, f"{max_bytes} bytes hold no range of stream {span.stream!r}")
        parts += [(Span(span.stream, span.ranges[at : at + room]),) for at in range(0, len(span.ranges), room)]
    return parts


def named(spans: tuple[Span, ...], manifests: tuple[ManifestReference, ...] = ()) -> NamedEvents:
    """What a status carries for these events: themselves, or references to the manifests that were published."""
    if manifests:
        return ManifestEvents(manifests, count_of(spans), digest_of(spans))
    return InlineEvents(spans)


def rejoined(events: ManifestEvents, parts: Iterable[tuple[Span, ...]]) -> tuple[Span, ...]:
    """The spans of all manifests, in their order; raises if anything is missing, doubled or changed."""
    ranges: dict[str, list[tuple[int, int]]] = {}
    for part in parts:
        for span in part:
            ranges.setdefault(span.stream, []).extend(span.ranges)
    spans = tuple(Span(stream, tuple(ranges[stream])) for stream in sorted(ranges))
    if (count_of(spans), digest_of(spans)) != (events.count, events.digest):
        raise InvalidMessage(
            f"the manifests name {count_of(spans)} events where the status counts {events.count}, or other ones",
            hint="the log was changed: `tutti doctor` compares it with the journal",
        )
    return spans


def checked(status: TransactionStatus) -> TransactionStatus:
    """Before it is written anywhere: it is small enough, and its events are in the one form."""
    match status.events:
        case InlineEvents(spans=spans):
            if (size := size_of(spans)) > STATUS_EVENTS_MAX_BYTES:
                raise InvariantViolated(
                    f"the status {status.status} of {status.tx} names its events in {size:,} bytes",
                    hint=f"above {STATUS_EVENTS_MAX_BYTES:,} bytes publish `manifests_of` them and refer to these",
                )
            for span in spans:
                _check_ranges(status, span)
        case ManifestEvents(manifests=manifests, count=count):
            invariant(manifests and count > 0, f"the status of {status.tx} refers to no manifests, or to empty ones")
    invariant(status.closing >= 1, f"closings of {status.tx} are counted from 1, not {status.closing}")
    return status


def _check_ranges(status: TransactionStatus, span: Span) -> None:
    before = -1
    for first, last in span.ranges:
        invariant(
            before + 1 < first <= last, f"the status of {status.tx} names {first}–{last} of {span.stream} out of order"
        )
        before = last
