from __future__ import annotations

import msgspec
import pytest

from tutti.errors import InvalidMessage, Unreadable
from tutti.model.decoding import UNDECODABLE
from tutti.model.enrolment import decode_enrolment
from tutti.model.messages import decode, decode_envelope

BOTTOMLESS = b"\x91" * 100_000 + b"\xc0"  # arrays in arrays
NO_TEXT = b"\xa1\xff"  # a text of one byte, which is no UTF-8


@pytest.mark.parametrize("packet", [b"\xc1", NO_TEXT, BOTTOMLESS, b""])
def test_whatever_is_wrong_with_bytes_is_one_of_these(packet: bytes) -> None:
    with pytest.raises(UNDECODABLE):
        msgspec.msgpack.decode(packet)


@pytest.mark.parametrize("tail", [b"\xa2tx" + NO_TEXT, b"\xa2tx\xa1a\xa4type\xa1a\xa4data" + BOTTOMLESS])
def test_a_message_that_no_sender_of_ours_would_write(tail: bytes) -> None:
    fields = 2 if tail.endswith(NO_TEXT) else 4
    with pytest.raises(InvalidMessage):
        decode(bytes([0x80 + fields]) + b"\xa4kind\xa6invite" + tail)


@pytest.mark.parametrize("tail", [b"\xa6signer" + NO_TEXT, b"\xa5later" + BOTTOMLESS])
def test_an_envelope_that_no_sender_of_ours_would_write(tail: bytes) -> None:
    with pytest.raises(InvalidMessage):
        decode_envelope(b"\x82\xa4body\xc4\x01a" + tail)


@pytest.mark.parametrize("value", [b'{"group":"\xff"}', b'{"later":' + b"[" * 100_000 + b"]" * 100_000 + b"}"])
def test_a_record_that_no_member_would_write(value: bytes) -> None:
    with pytest.raises(Unreadable):
        decode_enrolment("group.finance.desk", value)
