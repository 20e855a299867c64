"""The public record of a group's member."""

from __future__ import annotations

import pytest

from tutti.errors import Unreadable
from tutti.model.enrolment import Enrolment, decode_enrolment, encode_enrolment, enrolment_key, group_prefix
from tutti.model.transaction import Member, member_hash

ROOMS = Enrolment("hosts", "rooms", "Meeting", "p1", "sign", "wrap", ("Invitation",), instance="rooms-1", since=7.0)


def test_it_is_read_as_it_was_written() -> None:
    assert decode_enrolment(ROOMS.record_key, encode_enrolment(ROOMS)) == ROOMS


def test_its_key_begins_with_that_of_its_group() -> None:
    assert ROOMS.record_key == enrolment_key("hosts", "rooms") == f"{group_prefix('hosts')}.rooms"


def test_it_gives_the_member_of_a_transaction() -> None:
    assert ROOMS.member("j-r-1") == Member(member_hash("j-r-1", "p1"), "sign", True, "rooms", "rooms-1")
    assert not ROOMS.member("j-r-1", vital=False).vital


def test_a_spoilt_record_names_its_key() -> None:
    with pytest.raises(Unreadable, match=r"group\.hosts\.rooms"):
        decode_enrolment("group.hosts.rooms", b"{}")
