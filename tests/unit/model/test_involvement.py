"""An event's place in its transaction, as extension attributes."""

from __future__ import annotations

import pytest

from tutti.errors import InvalidEvent
from tutti.model import attributes
from tutti.model.involvement import Involvement, involvement_of
from tutti.model.transaction import PUBLISHER

FULL = Involvement("j-r-1", PUBLISHER, 3, "private", "ns.control.manager.j-r", 2, 1234.5678901, "venues", "j-r-0", 3)


@pytest.mark.parametrize("place", [FULL, Involvement("j-r-1", "a1b2", 1, "public", "c", 1, 99.5)])
def test_it_is_read_as_it_was_written(place: Involvement) -> None:
    assert involvement_of(place.extensions()) == place


def test_an_event_outside_transactions_has_no_place() -> None:
    assert involvement_of({"traceparent": "x"}) is None


def test_what_is_not_needed_is_not_sent() -> None:
    extensions = Involvement("j-r-1", PUBLISHER, 1, "public", "c", 1, 99.5).extensions()
    assert attributes.TX_GROUP not in extensions
    assert attributes.TX_PARENT not in extensions


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        (attributes.TX_SEQUENCE, None, "does not say its place"),
        (attributes.TX_SEQUENCE, "-1", "does not say its place"),
        (attributes.TX_SEQUENCE, "one", "does not say its place"),
        (attributes.TX_SCOPE, None, "does not say its place"),
        (attributes.TX_SCOPE, "secret", "does not say its place"),
        (attributes.TX_PUBLISHER, None, "does not say its place"),
        (attributes.TX_EPOCH, None, "does not name its manager"),
        (attributes.TX_EPOCH, "first", "does not name its manager"),
        (attributes.TX_ATTEMPTS, "often", "does not name its manager"),
        (attributes.TX_DEADLINE, None, "does not name its manager"),
        (attributes.TX_DEADLINE, "soon", "does not name its manager"),
    ],
)
def test_half_a_place_is_refused_and_shown(name: str, value: str | None, complaint: str) -> None:
    extensions = FULL.extensions()
    del extensions[name]
    if value is not None:
        extensions[name] = value
    with pytest.raises(InvalidEvent, match=complaint) as caught:
        involvement_of(extensions)
    assert "j-r-1" in caught.value.what
