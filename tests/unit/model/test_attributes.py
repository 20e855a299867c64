"""Context attributes: which names and values users may set."""

from __future__ import annotations

from typing import Any

import pytest

from tutti.errors import InvalidEvent
from tutti.limits import EXTENSION_MAX_CHARACTERS, EXTENSIONS_MAX_COUNT
from tutti.model import attributes
from tutti.model.attributes import check_own, is_extension_name, is_text, is_timestamp, sequence_text


def test_users_may_set_their_own() -> None:
    check_own({"tenant": "acme", "traceparent": "00-1-2-01", "note": "Euro € 😀", "x1": ""})


@pytest.mark.parametrize("name", sorted(attributes.RESERVED))
def test_reserved_names(name: str) -> None:
    with pytest.raises(InvalidEvent, match=f"'{name}' is reserved"):
        check_own({name: "1"})


def test_the_two_reserved_for_time_and_heartbeat_are_among_them() -> None:
    assert {"timeaccuracy", "heartbeat"} <= attributes.RESERVED


@pytest.mark.parametrize("name", ["sequence", "partitionkey", "expirytime", "priority", "replyto"])
def test_names_that_tutti_sets(name: str) -> None:
    with pytest.raises(InvalidEvent, match=f"'{name}' is set by Tutti"):
        check_own({name: "1"})


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("id", "1", "cannot name"),
        ("data", "1", "cannot name"),
        ("specversion", "1", "cannot name"),
        ("Tenant", "1", "cannot name"),
        ("my_tenant", "1", "cannot name"),
        ("", "1", "cannot name"),
        ("x" * 21, "1", "cannot name"),
        ("é", "1", "cannot name"),
        ("tenant", 5, "not a text"),
        ("tenant", None, "not a text"),
        ("tenant", "a\nb", "control character"),
        ("tenant", "\x85", "control character"),
        ("tenant", "\ud800", "control character"),
        ("tenant", "\uffff", "control character"),
        ("tenant", "\U0010fffe", "control character"),
        ("tenant", "x" * (EXTENSION_MAX_CHARACTERS + 1), "1025 characters"),
    ],
)
def test_what_users_may_not_set(name: str, value: Any, says: str) -> None:
    with pytest.raises(InvalidEvent, match=says):
        check_own({name: value})


def test_not_too_many() -> None:
    check_own({f"x{i}": "" for i in range(EXTENSIONS_MAX_COUNT)})
    with pytest.raises(InvalidEvent, match="33 extension attributes"):
        check_own({f"x{i}": "" for i in range(EXTENSIONS_MAX_COUNT + 1)})


def test_sequences_compare_as_texts() -> None:
    numbers = [1, 2, 9, 10, 99, 100, 2**63 - 1]
    texts = [sequence_text(number) for number in numbers]
    assert texts == sorted(texts)
    assert [int(text) for text in texts] == numbers


@pytest.mark.parametrize(
    "text",
    [
        "2018-04-05T17:31:00Z",
        "2018-04-05t17:31:00z",
        "2018-04-05T17:31:00.123456789+02:00",
        "1990-12-31T23:59:60Z",
        "0001-01-01T00:00:00-23:59",
    ],
)
def test_timestamps(text: str) -> None:
    assert is_timestamp(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2018-04-05",
        "2018-04-05T17:31:00",
        "2018-04-05 17:31:00Z",
        "2018-13-05T17:31:00Z",
        "2018-04-05T24:00:00Z",
        "2018-04-05T17:31:00.Z",
        "2018-04-05T17:31:00+2:00",
        "٢018-04-05T17:31:00Z",
        "2018-04-05T17:31:00Z\n",
    ],
)
def test_no_timestamps(text: str) -> None:
    assert not is_timestamp(text)


def test_texts_and_names() -> None:
    assert is_text("Euro € 😀 \u00a0")
    assert not is_text("\x7f")
    assert is_extension_name("a")
    assert not is_extension_name("time")
