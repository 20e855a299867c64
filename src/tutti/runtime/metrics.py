"""Counters and latencies, in Prometheus' text form.

A counter is an object with a number in it: the hot path adds one and pays for nothing else; names and labels are only
looked at when somebody reads.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

LATENCY_BUCKETS_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

_SHORTEST: Final = LATENCY_BUCKETS_SECONDS[0]

HELP: Final = {
    "tutti_published_total": "Events published and acknowledged",
    "tutti_publish_failures_total": "Events that were refused or whose outcome is unknown",
    "tutti_publish_seconds": "Time from publish() to the acknowledgement",
    "tutti_received_total": "Events that reached a subscription, before its filter",
    "tutti_handled_total": "Events whose handler returned",
    "tutti_failures_total": "Attempts in which a handler raised or timed out",
    "tutti_filtered_total": "Events that the subscription's filter turned away at the subscriber",
    "tutti_filter_errors_total": "Events for which the filter had an error (and therefore did not match)",
    "tutti_duplicates_total": "Events seen before and not handled again",
    "tutti_expired_total": "Events whose lifetime had ended before their turn",
    "tutti_dead_total": "Events that were dead-lettered",
    "tutti_missing_total": "Events that a publisher numbered and the log does not have",
    "tutti_dropped_total": "Best-effort events dropped because the subscriber was too slow",
    "tutti_handle_seconds": "Time a handler took",
    "tutti_lag_seconds": "Time from the storage of an event to the start of its handler, at most once a millisecond",
}

Labels = tuple[tuple[str, str], ...]


class Counter:
    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class Histogram:
    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(LATENCY_BUCKETS_SECONDS) + 1)
        self.total = 0.0

    def observe(self, seconds: float, times: int = 1) -> None:
        self.counts[0 if seconds <= _SHORTEST else bisect_left(LATENCY_BUCKETS_SECONDS, seconds)] += times
        self.total += seconds * times

    @property
    def count(self) -> int:
        return sum(self.counts)


class Metrics:
    """All counters and histograms of one bus."""

    def __init__(self) -> None:
        self._counters: dict[tuple[str, Labels], Counter] = {}
        self._histograms: dict[tuple[str, Labels], Histogram] = {}

    def counter(self, name: str, **labels: str) -> Counter:
        return self._counters.setdefault((name, tuple(sorted(labels.items()))), Counter())

    def histogram(self, name: str, **labels: str) -> Histogram:
        return self._histograms.setdefault((name, tuple(sorted(labels.items()))), Histogram())

    def total(self, name: str, **labels: str) -> int:
        """The sum over every counter of that name whose labels include these."""
        wanted = set(labels.items())
        return sum(c.value for (n, found), c in self._counters.items() if n == name and wanted <= set(found))

    def forget(self, **labels: str) -> None:
        """Drop every counter and histogram with these labels: what they counted is over."""
        gone = set(labels.items())
        self._counters = {key: found for key, found in self._counters.items() if not gone <= set(key[1])}
        self._histograms = {key: found for key, found in self._histograms.items() if not gone <= set(key[1])}

    def text(self) -> str:
        """What a Prometheus server scrapes."""
        return "\n".join([*self._counter_lines(), *self._histogram_lines(), ""])

    def _counter_lines(self) -> Iterator[str]:
        previous = ""
        for (name, labels), counter in sorted(self._counters.items()):
            if name != previous:
                yield from _head(name, "counter")
                previous = name
            yield f"{name}{_braces(labels)} {counter.value}"

    def _histogram_lines(self) -> Iterator[str]:
        previous = ""
        for (name, labels), histogram in sorted(self._histograms.items()):
            if name != previous:
                yield from _head(name, "histogram")
                previous = name
            seen = 0
            for bound, count in zip((*LATENCY_BUCKETS_SECONDS, float("inf")), histogram.counts, strict=True):
                seen += count
                limit = "+Inf" if bound == float("inf") else repr(bound)
                yield f"{name}_bucket{_braces((*labels, ('le', limit)))} {seen}"
            yield f"{name}_sum{_braces(labels)} {histogram.total:.6f}"
            yield f"{name}_count{_braces(labels)} {seen}"


def _head(name: str, kind: str) -> Iterator[str]:
    yield f"# HELP {name} {HELP.get(name, name)}"
    yield f"# TYPE {name} {kind}"


def _braces(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
