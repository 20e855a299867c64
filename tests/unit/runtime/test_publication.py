"""What a call may say of its event: checked before anything is sent."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import tutti
from tutti.runtime.publication import PLAIN, Options, Stamp, moment_text


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"id": ""}, "id"),
        ({"subject": ""}, "subject"),
        ({"priority": 99}, "priority"),
        ({"lifetime": 0.0}, "lifetime"),
        ({"lifetime": float("nan")}, "lifetime"),
        ({"attributes": {"txid": "1"}}, "reserved"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(tutti.TuttiError, match=says):
        Options(**options).check()


def test_options_that_headers_would_not_show() -> None:
    assert PLAIN.says_nothing
    assert Options(timeout=3.0).says_nothing
    assert not Options(id="1").says_nothing
    assert not Options(traceparent="00-1").says_nothing


@pytest.mark.parametrize("seconds", [0.0, 1.25, 1_700_000_000.000_5, -0.5, -204_000_000.75])
def test_a_stamp_is_the_moment_it_is_made_from(seconds: float) -> None:
    text = Stamp().text(seconds)
    assert abs(datetime.fromisoformat(text).timestamp() - seconds) < 0.000_002


def test_a_moment_keeps_its_zone() -> None:
    assert moment_text(datetime(2026, 1, 1, tzinfo=UTC)) == "2026-01-01T00:00:00Z"
    assert moment_text(datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=2)))) == "2026-01-01T00:00:00+02:00"
    with pytest.raises(tutti.DeclarationError, match="time zone"):
        moment_text(datetime(2026, 1, 1))  # noqa: DTZ001 that is the mistake
