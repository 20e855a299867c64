"""Policies: what they default to, and what is refused when it is declared."""

from __future__ import annotations

from typing import Any

import pytest

from tutti.errors import DeclarationError
from tutti.model.policy import Backoff, Batch, Policy


def test_defaults() -> None:
    policy = Policy()
    assert (policy.attempts, policy.concurrency, policy.in_flight, policy.priority) == (5, 1, 1000, 0)
    assert (policy.lifetime, policy.handler_timeout, policy.batch) == (None, 30.0, None)
    assert policy.backoff == Backoff(first=0.1, factor=2.0, most=30.0)


def test_extremes_that_make_sense() -> None:
    Policy(attempts=1, handler_timeout=None, lifetime=0.001, priority=9, in_flight=1)
    Policy(concurrency=10, in_flight=100, batch=Batch(most=10, wait=0))
    Backoff(first=0, factor=1, most=0)


@pytest.mark.parametrize(
    ("kind", "values", "says"),
    [
        (Policy, {"attempts": 0}, "attempts is 0"),
        (Policy, {"attempts": 2.0}, "attempts is 2.0"),
        (Policy, {"attempts": True}, "attempts is True"),
        (Policy, {"concurrency": 0}, "concurrency is 0"),
        (Policy, {"in_flight": -1}, "in_flight is -1"),
        (Policy, {"in_flight": 5, "concurrency": 6}, "in_flight is 5, but .* ask for 6 events"),
        (Policy, {"in_flight": 19, "concurrency": 2, "batch": Batch(10)}, "ask for 20 events"),
        (Policy, {"priority": 10}, "priority is 10"),
        (Policy, {"priority": -1}, "priority is -1"),
        (Policy, {"lifetime": 0}, "lifetime is 0"),
        (Policy, {"lifetime": float("nan")}, "lifetime is nan"),
        (Policy, {"handler_timeout": -1.0}, "handler_timeout is -1.0"),
        (Policy, {"handler_timeout": float("inf")}, "handler_timeout is inf"),
        (Policy, {"handler_timeout": "30"}, "handler_timeout is '30'"),
        (Backoff, {"first": -0.1}, "backoff.first is -0.1"),
        (Backoff, {"factor": 0.5}, "backoff.factor is 0.5"),
        (Backoff, {"factor": float("nan")}, "backoff.factor is nan"),
        (Backoff, {"first": 10, "most": 5}, "backoff.most .* is below backoff.first"),
        (Batch, {"most": 0}, "batch.most is 0"),
        (Batch, {"most": 1, "wait": -1}, "batch.wait is -1"),
    ],
)
def test_what_cannot_work(kind: Any, values: dict[str, Any], says: str) -> None:
    with pytest.raises(DeclarationError, match=says) as caught:
        kind(**values)
    assert caught.value.hint
