"""Transaction types: declared like events, with the list of events that they may publish."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tutti.errors import DeclarationError, InvalidEvent
from tutti.filters import Filter
from tutti.flow.matcher import Matcher, Seen
from tutti.model.event import Event, event_type
from tutti.model.txtype import TxMeta, TxType, advertised, is_transaction_type, transaction_type, tx_clashes


class Invitation(Event):
    room: str


class Cancellation(Event):
    room: str


class Meeting(TxType, events=[Invitation], version=2):
    subject: str
    starts: datetime


class Board(Meeting):
    chair: str = ""


class Talk(TxType, type="com.example.talk"):
    title: str


def test_it_has_a_name_fields_and_events() -> None:
    kind = transaction_type(Meeting)
    assert (kind.name, kind.token, kind.event_names) == ("Meeting", "Meeting", ("Invitation",))
    assert kind.kind.field_names == ("subject", "starts")
    assert transaction_type(Meeting("x", datetime.now(UTC))) is kind


def test_a_value_travels_as_plain_data_and_comes_back() -> None:
    value = Meeting("DSOnline", datetime(2026, 11, 18, tzinfo=UTC))
    kind = transaction_type(Meeting)
    assert kind.encode(value) == {"subject": "DSOnline", "starts": "2026-11-18T00:00:00Z"}
    assert kind.decode(kind.encode(value)) == value
    assert kind.decode(kind.kind.encode(value)) == value


def test_what_does_not_fit_is_refused_by_field() -> None:
    with pytest.raises(InvalidEvent, match="subject"):
        transaction_type(Meeting).decode({"subject": 1})
    with pytest.raises(InvalidEvent, match="carries object"):
        transaction_type(Meeting).decode(object())


def test_filters_see_its_fields() -> None:
    matcher = Matcher(Filter.parse("subject = 'DSOnline'"), None, Meeting)
    now = datetime.now(UTC)
    assert matcher.match(Seen(Meeting("DSOnline", now), {})) is not None
    assert matcher.match(Seen(Meeting("other", now), {})) is None


def test_events_are_inherited_unless_named() -> None:
    assert transaction_type(Board).event_names == ("Invitation",)
    assert transaction_type(Talk).event_names == ()
    assert transaction_type(Talk).name == "com.example.talk"


def test_other_events_are_refused_with_the_way_out() -> None:
    transaction_type(Meeting).check_event(event_type(Invitation))
    with pytest.raises(DeclarationError, match="Cancellation is not among the events of Meeting: Invitation") as found:
        transaction_type(Meeting).check_event(event_type(Cancellation))
    assert "events=[…, Cancellation]" in found.value.hint


@pytest.mark.parametrize("wrong", ["Invitation", TxType, Meeting])
def test_only_classes_of_events_can_be_its_events(wrong: object) -> None:
    with pytest.raises(DeclarationError, match="no class of events"):
        TxMeta("Wrong", (TxType,), {}, events=[wrong])  # type: ignore[list-item]  # that is the test


def test_what_belongs_to_stored_events_has_no_meaning_here() -> None:
    with pytest.raises(DeclarationError, match="stream= has no meaning"):
        TxMeta("Wrong", (TxType,), {}, stream="trades")


@pytest.mark.parametrize("wrong", [Invitation, TxType, int])
def test_other_classes_are_no_transaction_types(wrong: type) -> None:
    with pytest.raises(DeclarationError, match="no transaction type"):
        transaction_type(wrong)
    assert not is_transaction_type(wrong)


def test_its_advertisement_lists_its_events() -> None:
    record = advertised(transaction_type(Meeting))
    assert (record.type, record.version, record.events) == ("Meeting", 2, ("Invitation",))
    assert all(name in str(record.schema) for name in ("subject", "starts"))
    assert is_transaction_type(Meeting)


class Wider(TxType, type="Meeting", events=[Invitation, Cancellation], version=3):
    subject: str
    starts: datetime


class Poorer(TxType, type="Meeting", events=[], version=3):
    subject: str
    starts: datetime


class Silent(TxType, type="Meeting", events=[Invitation, Cancellation], version=2):
    subject: str
    starts: datetime


class Other(TxType, type="Meeting", events=[Invitation], version=3):
    subject: int
    starts: datetime


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        (Wider, ""),
        (Poorer, "Invitation was among its events, and is not any more"),
        (Silent, "it changed, but the version is still 2: declare version=3"),
        (Other, "subject"),
    ],
)
def test_what_may_change(changed: type, complaint: str) -> None:
    known, new = advertised(transaction_type(Meeting)), advertised(transaction_type(changed))
    for found in (tx_clashes(known, new), tx_clashes(new, known)):
        assert bool(found) == bool(complaint)
        assert complaint in " ".join(found) or complaint.startswith("it changed")
    assert tx_clashes(known, known) == ()
