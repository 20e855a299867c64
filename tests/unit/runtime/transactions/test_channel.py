"""Packets on the control subjects: what is believed, and what is passed over."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest

from tutti.bus.memory import MemoryCluster, MemoryTransport
from tutti.model.messages import (
    MANAGER,
    NOBODY,
    Begin,
    Decide,
    Envelope,
    Join,
    Message,
    Prepare,
    Relay,
    Vote,
    encode,
)
from tutti.model.subjects import Layout
from tutti.runtime.transactions.channel import Channel, pack, signed
from tutti.runtime.transactions.keys import SigningKey
from tutti.testing.clock import ManualClock

JOURNAL, MEMBER, STRANGER = (SigningKey(letter * 32) for letter in (b"j", b"m", b"s"))
DECIDE = Decide("j-r-1", 1, "commit")
VOTE = Vote("j-r-1", 1, 1, "a1", "yes")


@pytest.fixture
def channel() -> Channel:
    clock = ManualClock()
    transport = MemoryTransport(Layout("ns"), cluster=MemoryCluster(clock=clock))
    return Channel(transport, clock, lambda: JOURNAL.public)


def told(channel: Channel, envelopes: Iterable[bytes]) -> list[tuple[Message, str]]:
    return [(given.message, given.signer) for given in channel.open(pack(envelopes))]


def test_a_packet_tells_who_signed_each_of_its_messages(channel: Channel) -> None:
    packet = [signed(DECIDE, JOURNAL, manager=True), signed(VOTE, MEMBER), signed(VOTE, None)]
    assert told(channel, packet) == [(DECIDE, MANAGER), (VOTE, MEMBER.public), (VOTE, NOBODY)]


def test_what_came_is_kept_verbatim(channel: Channel) -> None:
    envelope = signed(DECIDE, JOURNAL, manager=True)
    [given] = channel.open(pack([envelope]))
    assert given.verbatim == envelope


def test_whoever_calls_himself_the_manager_without_the_journals_key_is_nobody(channel: Channel) -> None:
    assert told(channel, [signed(DECIDE, STRANGER, manager=True)]) == [(DECIDE, NOBODY)]


def test_a_signature_belongs_to_its_bytes_and_its_key(channel: Channel) -> None:
    body, other = encode(VOTE), encode(Vote("j-r-1", 1, 1, "a1", "no"))
    forged = [
        Envelope(other, MEMBER.public, MEMBER.sign(body)),
        Envelope(body, MEMBER.public, STRANGER.sign(body)),
        Envelope(body, "no key at all", MEMBER.sign(body)),
        Envelope(body, MEMBER.public, b"short"),
        Envelope(body, MANAGER, MEMBER.sign(body)),
    ]
    assert {signer for _, signer in told(channel, map(encode, forged))} == {NOBODY}


def test_a_join_is_signed_with_the_key_that_it_carries_whatever_its_envelope_says(channel: Channel) -> None:
    mine = Join("j-r-1", "p1", MEMBER.public)
    body = encode(mine)
    stolen = Envelope(body, STRANGER.public, STRANGER.sign(body))
    assert told(channel, [signed(mine, MEMBER), encode(stolen)]) == [(mine, MEMBER.public), (mine, NOBODY)]


@pytest.mark.parametrize("packet", [b"", b"\x00", b"not msgpack", msgspec.msgpack.encode({"a": 1}), b"\xc1" * 50])
def test_a_packet_that_is_none_is_counted_and_passed_over(channel: Channel, packet: bytes) -> None:
    assert channel.open(packet) == []
    assert channel.unreadable == 1


def test_one_malformed_envelope_does_not_hide_the_others(channel: Channel) -> None:
    later = encode(Envelope(encode(VOTE), version=99))
    packet = [b"nonsense", encode(Envelope(b"no message")), later, signed(VOTE, MEMBER)]
    assert told(channel, packet) == [(VOTE, MEMBER.public)]
    assert channel.unreadable == 3


def test_of_a_relay_only_what_the_manager_signed_about_that_transaction_is_taken(channel: Channel) -> None:
    prepare = Prepare("j-r-1", 1, 1, {}, 9.0)
    elsewhere = Decide("j-r-2", 1, "abort")
    relayed = (
        signed(DECIDE, JOURNAL, manager=True),
        signed(prepare, JOURNAL, manager=True),
        signed(elsewhere, JOURNAL, manager=True),
        signed(Decide("j-r-1", 1, "abort"), STRANGER, manager=True),
        signed(VOTE, MEMBER),
        b"nonsense",
    )
    # Who relays does not matter: he signs nothing, and can invent nothing.
    for key in (None, STRANGER):
        found = told(channel, [signed(Relay("j-r-1", relayed), key)])
        assert found == [(DECIDE, MANAGER), (prepare, MANAGER)]


def test_a_relay_within_a_relay_is_not_unwrapped(channel: Channel) -> None:
    inner = signed(Relay("j-r-1", (signed(DECIDE, JOURNAL, manager=True),)), None)
    assert told(channel, [signed(Relay("j-r-1", (inner,)), None)]) == []


def test_an_envelope_in_the_headers_of_an_event_is_opened_alone(channel: Channel) -> None:
    begin = Begin("j-r-1", 1, ("a1",), 9.0)
    given = channel.opened(signed(begin, JOURNAL, manager=True))
    assert given is not None
    assert (given.message, given.signer) == (begin, MANAGER)
    assert channel.opened(b"nonsense") is None
    two = Relay("j-r-1", (signed(DECIDE, JOURNAL, manager=True), signed(begin, JOURNAL, manager=True)))
    assert channel.opened(signed(two, None)) is None


async def test_it_carries_packets_to_who_listens(channel: Channel) -> None:
    transport = MemoryTransport(Layout("ns"), cluster=MemoryCluster())
    await transport.start()
    talking = Channel(transport, ManualClock(), lambda: JOURNAL.public)
    listener = await talking.listen("ns.control.x")
    talking.emit("ns.control.x", signed(DECIDE, JOURNAL, manager=True), signed(VOTE, MEMBER))
    record = await anext(aiter(listener))
    assert [given.message for given in talking.open(record.data)] == [DECIDE, VOTE]
    assert talking.inbox() != talking.inbox()
    await listener.close()
    await transport.close()
