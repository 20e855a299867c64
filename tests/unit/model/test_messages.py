from __future__ import annotations

import msgspec
import pytest

from tutti.errors import InvalidMessage
from tutti.model.messages import (
    WIRE_VERSION,
    Begin,
    Close,
    Decide,
    Dismiss,
    Done,
    Ended,
    Envelope,
    Inquiry,
    Invite,
    Join,
    Message,
    Prepare,
    Relay,
    Standing,
    Tally,
    Vote,
    decode,
    decode_envelope,
    encode,
)

TX = "j1-abc"
EVERY: tuple[Message, ...] = (
    Invite(TX, "Meeting", {"subject": "DSOnline"}, 5.0, events=("Invitation",)),
    Join(TX, "p1", "key", offer={"rooms": 3}),
    Begin(TX, 1, ("h1", "h2"), 60.0, {"h1": b"wrapped"}),
    Dismiss(TX, "too few"),
    Close(TX, 1, 2, work_ended=True),
    Tally(TX, 1, 2, "h1", 1, {"Booked": 1}, {"manager": {"Invitation": 2}}, ("Invitation",)),
    Prepare(TX, 1, 1, {"manager": {"Invitation": 2}}, 60.0),
    Vote(TX, 1, 1, "h1", "yes"),
    Done(TX, 1, "h1", "print"),
    Decide(TX, 1, "commit", excluded=("h2",)),
    Ended(TX, "h1", "commit"),
    Inquiry(TX, "h1", "voted", "inbox"),
    Relay(TX, (b"envelope",)),
    Standing(TX, "undecided"),
)


@pytest.mark.parametrize("message", EVERY, ids=lambda m: type(m).__name__)
def test_every_message_comes_back_as_it_was(message: Message) -> None:
    assert decode(encode(message)) == message


def test_the_union_is_closed_and_this_list_is_complete() -> None:
    assert {type(message) for message in EVERY} == set(Message.__args__)


def test_fields_of_a_newer_version_are_skipped() -> None:
    newer = msgspec.msgpack.encode({"kind": "dismiss", "tx": TX, "reason": "why", "since": "version 2"})
    assert decode(newer) == Dismiss(TX, "why")


@pytest.mark.parametrize("garbage", [b"", b"\xc1", b"\x80", msgspec.msgpack.encode({"kind": "obey", "tx": TX})])
def test_what_is_no_message_is_refused(garbage: bytes) -> None:
    with pytest.raises(InvalidMessage):
        decode(garbage)


def test_a_vote_is_one_of_three() -> None:
    with pytest.raises(InvalidMessage):
        decode(
            msgspec.msgpack.encode({"kind": "vote", "tx": TX, "epoch": 1, "round": 1, "member": "h", "value": "maybe"})
        )


def test_envelopes_of_the_neighbouring_version_are_opened() -> None:
    for version in (WIRE_VERSION, WIRE_VERSION + 1):
        envelope = Envelope(b"body", "key", b"signature", version)
        assert decode_envelope(encode(envelope)) == envelope


@pytest.mark.parametrize("version", [0, WIRE_VERSION + 2])
def test_envelopes_of_other_versions_are_refused(version: int) -> None:
    with pytest.raises(InvalidMessage, match=f"version {version}"):
        decode_envelope(encode(Envelope(b"body", version=version)))


def test_what_is_no_envelope_is_refused() -> None:
    with pytest.raises(InvalidMessage):
        decode_envelope(b"hello")


def test_an_excluded_member_aborts_whatever_the_others_do() -> None:
    decide = Decide(TX, 1, "commit", excluded=("h2",))
    assert (decide.outcome_for("h1"), decide.outcome_for("h2")) == ("commit", "abort")
