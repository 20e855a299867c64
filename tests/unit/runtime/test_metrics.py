"""Counters and latencies in the form that Prometheus reads."""

from __future__ import annotations

import re

from tutti.runtime.metrics import HELP, LATENCY_BUCKETS_SECONDS, Metrics


def test_a_counter_is_the_same_however_its_labels_are_ordered() -> None:
    metrics = Metrics()
    metrics.counter("tutti_handled_total", subscriber="a", subscription="b").value += 2
    metrics.counter("tutti_handled_total", subscription="b", subscriber="a").value += 1
    assert metrics.total("tutti_handled_total") == 3


def test_totals_are_of_the_counters_with_these_labels() -> None:
    metrics = Metrics()
    for name, count in (("a", 1), ("b", 2)):
        metrics.counter("tutti_dead_total", subscriber=name).value += count
    assert metrics.total("tutti_dead_total", subscriber="b") == 2
    assert metrics.total("tutti_dead_total") == 3
    assert metrics.total("tutti_other_total") == 0


def test_the_text_is_prometheus_own() -> None:
    metrics = Metrics()
    metrics.counter("tutti_dead_total", subscriber='a"b\\c\nd').value += 4
    metrics.histogram("tutti_handle_seconds").observe(0.003)
    metrics.histogram("tutti_handle_seconds").observe(99)
    text = metrics.text()
    assert f"# HELP tutti_dead_total {HELP['tutti_dead_total']}\n# TYPE tutti_dead_total counter\n" in text
    assert 'tutti_dead_total{subscriber="a\\"b\\\\c\\nd"} 4\n' in text
    assert 'tutti_handle_seconds_bucket{le="0.0025"} 0\n' in text
    assert 'tutti_handle_seconds_bucket{le="0.005"} 1\n' in text
    assert 'tutti_handle_seconds_bucket{le="10.0"} 1\n' in text
    assert 'tutti_handle_seconds_bucket{le="+Inf"} 2\n' in text
    assert "tutti_handle_seconds_sum 99.003000\ntutti_handle_seconds_count 2\n" in text
    line = re.compile(r'(# .*|[a-z_]+(\{([a-z]+="(\\.|[^"\\])*",?)+\})? [0-9.]+)')
    assert all(line.fullmatch(found) for found in text.splitlines())


def test_a_latency_on_a_bound_belongs_below_it() -> None:
    histogram = Metrics().histogram("tutti_publish_seconds")
    histogram.observe(LATENCY_BUCKETS_SECONDS[3])
    assert histogram.counts[3] == 1
    assert histogram.count == 1


def test_every_name_has_a_sentence_and_every_family_one_head() -> None:
    metrics = Metrics()
    for name in HELP:
        for subscriber in ("a", "b"):
            (metrics.histogram if name.endswith("_seconds") else metrics.counter)(name, subscriber=subscriber)
    heads = re.findall(r"# TYPE (\S+)", metrics.text())
    assert sorted(heads) == sorted(HELP)
