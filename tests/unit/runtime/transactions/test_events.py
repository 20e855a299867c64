"""Events in transactions on the bus: what they carry, and who can read them."""

from __future__ import annotations

from typing import Annotated

import pytest

from tutti.bus.port import Record
from tutti.errors import InvalidEvent
from tutti.model.event import Event, event_type, key, routing
from tutti.model.involvement import KEYS_HEADER, PREPARE_HEADER, SEALED, Involvement
from tutti.model.subjects import Layout, partition_of
from tutti.model.transaction import PUBLISHER, Consumed, Scope
from tutti.runtime.transactions.events import (
    Composed,
    carried_key,
    carried_prepare,
    compose,
    draft,
    hear,
    opened,
    with_keys,
    with_prepare,
)
from tutti.runtime.transactions.keys import PayloadKey

LAYOUT = Layout("ns")


class Booked(Event, stream="rooms"):
    room: Annotated[str, routing, key]


class Other(Event):
    room: str


KIND = event_type(Booked)


def composed(scope: Scope, secret: PayloadKey | None, number: int = 3) -> Composed:
    place = Involvement("j-r-1", PUBLISHER, number, scope, LAYOUT.manager("j-r-1"), 1, 99.5)
    event = draft(KIND, Booked("FW26"))
    return compose(LAYOUT, event, place, source="/hotel/run", time="2026-11-18T12:00:00Z", key=secret)


def record(made: Composed, sequence: int = 7) -> Record:
    return Record(made.subject, made.headers, made.data, sequence)


def test_a_public_event_can_be_read_by_everybody() -> None:
    made = composed("public", None)
    assert made.subject == f"ns.tx.rooms.Booked.j-r-1.{partition_of('FW26')}.FW26"
    heard = hear(record(made))
    assert heard is not None
    assert heard.consumed == Consumed(PUBLISHER, "Booked", 3, 7)
    assert (heard.involvement.tx, heard.involvement.deadline) == ("j-r-1", 99.5)
    assert opened(heard, KIND, None) == Booked("FW26")


def test_a_private_one_only_with_the_key_and_only_in_its_place() -> None:
    secret = PayloadKey.fresh()
    made = composed("private", secret)
    assert b"FW26" not in made.data
    assert "FW26" not in made.subject + str(made.headers)
    heard = hear(record(made))
    assert heard is not None
    assert heard.envelope.datacontenttype == SEALED
    assert opened(heard, KIND, secret) == Booked("FW26")
    with pytest.raises(InvalidEvent, match="cannot be opened"):
        opened(heard, KIND, PayloadKey.fresh())
    with pytest.raises(InvalidEvent, match="key is not known"):
        opened(heard, KIND, None)
    moved = hear(record(Composed(made.subject, composed("private", secret, 4).headers, made.data)))
    assert moved is not None
    with pytest.raises(InvalidEvent, match="cannot be opened"):
        opened(moved, KIND, secret)


def test_what_is_not_sealed_is_not_taken_for_private() -> None:
    made = composed("public", None)
    headers = {**made.headers, "ce-txscope": "private"}
    heard = hear(record(Composed(made.subject, headers, made.data)))
    assert heard is not None
    with pytest.raises(InvalidEvent, match="is not sealed"):
        opened(heard, KIND, PayloadKey.fresh())


def test_nobody_publishes_in_a_private_transaction_without_its_key() -> None:
    with pytest.raises(InvalidEvent, match="key of the private transaction j-r-1"):
        composed("private", None)


def test_an_event_of_another_type_is_refused() -> None:
    heard = hear(record(composed("public", None)))
    assert heard is not None
    with pytest.raises(InvalidEvent, match="stands on the subject of Other"):
        opened(heard, event_type(Other), None)


def test_what_it_carries_besides_is_found_again() -> None:
    made = with_keys(with_prepare(composed("public", None), b"\x00prepare"), {"m1": b"wrapped"})
    told = record(made)
    assert (carried_prepare(told), carried_key(told, "m1"), carried_key(told, "m2")) == (
        b"\x00prepare",
        b"wrapped",
        b"",
    )


def test_nonsense_in_these_headers_carries_nothing() -> None:
    made = composed("public", None)
    told = Record(made.subject, {**made.headers, PREPARE_HEADER: "*", KEYS_HEADER: "AAAA"}, made.data)
    assert (carried_prepare(told), carried_key(told, "m1")) == (b"", b"")


def test_too_many_keys_are_refused_before_the_bus_does() -> None:
    with pytest.raises(InvalidEvent, match=r"the limit is 32,768"):
        with_keys(composed("public", None), {f"m{number}": b"k" * 80 for number in range(400)})


def test_an_event_outside_transactions_is_none_of_them() -> None:
    plain = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/x", "ce-type": "Booked"}
    assert hear(Record("ns.event.rooms.Booked._.1", plain, b"{}")) is None
