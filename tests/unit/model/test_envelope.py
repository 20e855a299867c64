"""Envelopes: the attributes that filters see."""

from __future__ import annotations

import pytest

from tutti.model.envelope import Envelope, is_json


def test_attributes_are_those_that_are_set() -> None:
    small = Envelope("1", "/s", "T", datacontenttype=None)
    assert small.attributes() == {"specversion": "1.0", "id": "1", "source": "/s", "type": "T"}
    full = Envelope("1", "/s", "T", b"", "2026-01-01T00:00:00Z", "text/plain", "urn:x", "order/1", {"tenant": "acme"})
    assert full.attributes() == {
        "specversion": "1.0",
        "id": "1",
        "source": "/s",
        "type": "T",
        "time": "2026-01-01T00:00:00Z",
        "datacontenttype": "text/plain",
        "dataschema": "urn:x",
        "subject": "order/1",
        "tenant": "acme",
    }


def test_two_envelopes_do_not_share_their_extensions() -> None:
    one, other = Envelope("1", "/s", "T"), Envelope("2", "/s", "T")
    one.extensions["tenant"] = "acme"
    assert other.extensions == {}


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        ("application/json", True),
        ("Text/JSON ; charset=utf-8", True),
        ("application/vnd.acme+json", True),
        ("application/jsonlines", False),
        ("text/plain", False),
        ("", False),
    ],
)
def test_what_is_json(content_type: str, expected: bool) -> None:
    assert is_json(content_type) is expected
    assert Envelope("1", "/s", "T", datacontenttype=content_type).holds_json is expected


def test_nothing_declared_counts_as_json() -> None:
    assert Envelope("1", "/s", "T", datacontenttype=None).holds_json
