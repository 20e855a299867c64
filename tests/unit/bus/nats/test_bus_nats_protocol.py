from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.bus.nats.client_frames import Sent, commands
from tutti.bus.nats import protocol
from tutti.bus.nats.protocol import (
    Event,
    Failure,
    Head,
    Info,
    Message,
    Ok,
    Parser,
    Ping,
    Pong,
    ProtocolViolation,
    ServerInfo,
    fields_of,
    head_of,
    header_lines,
)
from tutti.errors import Refused
from tutti.limits import NATS_CONTROL_LINE_MAX_BYTES, NATS_HEADER_NAMES_MAX_COUNT, NATS_MESSAGE_MAX_BYTES

tokens = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp"], exclude_characters=".*>"), min_size=1)
subjects = st.lists(tokens, min_size=1, max_size=4).map(".".join)
names = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters=":"), min_size=1)
values = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\x00")).map(lambda v: v.lstrip(" \t"))
headers = st.dictionaries(names, values, max_size=5)


def head(fields: dict[str, str]) -> bytes:
    return f"NATS/1.0\r\n{header_lines(fields)}\r\n".encode() if fields else b""


messages = st.builds(
    Message, subjects, st.integers(1, 999).map(str), st.one_of(st.just(""), subjects), headers.map(head), st.binary()
)
infos = st.builds(
    ServerInfo, version=st.text(max_size=5), max_payload=st.integers(0, 9), connect_urls=st.just(("a:1",))
)
failures = st.sampled_from(["Authorization Violation", "Unknown Protocol Operation"]).map(Failure)
events = st.one_of(messages, infos.map(Info), st.sampled_from([Ping(), Pong(), Ok()]), failures)


def on_the_wire(event: Event) -> bytes:
    """As a server writes it."""
    match event:
        case Message(subject, sid, reply, block, data):
            places = " ".join(filter(None, (subject, sid, reply)))
            sizes = f"{len(block)} {len(block) + len(data)}" if block else f"{len(data)}"
            return f"{'HMSG' if block else 'MSG'} {places} {sizes}\r\n".encode() + block + data + b"\r\n"
        case Info(server):
            fields = {name: getattr(server, name) for name in server.__struct_fields__}
            return f"INFO {json.dumps(fields)} \r\n".encode()
        case Failure(text):
            return f"-ERR '{text}'\r\n".encode()
        case Ping():
            return b"PING\r\n"
        case Pong():
            return b"PONG\r\n"
        case Ok():
            return b"+OK\r\n"


@given(st.lists(events, max_size=6), st.data())
def test_however_it_is_cut_the_events_are_the_same(expected: list[Event], data: st.DataObject) -> None:
    stream = b"".join(map(on_the_wire, expected))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)), max_size=12)))
    parser = Parser()
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert [event for piece in pieces for event in parser.feed(piece)] == expected


def test_byte_by_byte() -> None:
    expected: list[Event] = [
        Message("a", "1", "", b"", b"\r\nPING\r\n"),
        Ping(),
        Message("b", "2", "r", head({"x": "y"}), b""),
    ]
    parser = Parser()
    stream = b"".join(map(on_the_wire, expected))
    assert [
        event for position in range(len(stream)) for event in parser.feed(stream[position : position + 1])
    ] == expected


@given(st.binary(max_size=200))
def test_noise_is_an_error_or_nothing_yet(noise: bytes) -> None:
    with contextlib.suppress(ProtocolViolation):
        Parser().feed(noise)


@pytest.mark.parametrize(
    "line",
    [
        b"HTTP/1.1 400 Bad Request\r\n",
        b"MSG\r\n",
        b"MSG a 1\r\n",
        b"MSG a 1 x\r\n",
        b"MSG a 1 -5\r\n",
        b"MSG a 1 r s 0\r\n\r\n",
        b"MSX a 1 0\r\n\r\n",
        b"HMSG a 1 12 4\r\n",
        b"HMSG a 1 -1 4\r\n",
        b"MSG a 1 1\r\nxyz",
        b"MSG a\xff 1 0\r\n\r\n",
        b"INFO {\r\n",
        b"INFO []\r\n",
        b"\r\n",
        b"msg a 1 0\r\n\r\n",
    ],
)
def test_what_is_not_nats_is_said_to_be(line: bytes) -> None:
    with pytest.raises(ProtocolViolation) as violation:
        Parser().feed(line)
    assert "client port" in violation.value.hint


def test_sizes_have_limits() -> None:
    parser = Parser()
    assert parser.feed(b"INFO " + b" " * (NATS_CONTROL_LINE_MAX_BYTES - 5)) == []
    with pytest.raises(ProtocolViolation, match="control line of more than"):
        parser.feed(b"x")
    with pytest.raises(ProtocolViolation, match="not a line"):
        Parser().feed(b"MSG a 1 %d\r\n" % (NATS_MESSAGE_MAX_BYTES + 1))


@given(headers)
def test_headers_come_back(fields: dict[str, str]) -> None:
    assert fields_of(head(fields)) == fields


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (b"", {}),
        (b"NATS/1.0\r\n\r\n", {}),
        (b"NATS/1.0\r\na:b\r\n\r\n", {"a": "b"}),
        (b"NATS/1.0\r\na:   b\r\nc:\td\r\n\r\n", {"a": "b", "c": "d"}),
        (b"NATS/1.0\r\na: 1\r\na: 2\r\n\r\n", {"a": "1"}),
        (b"NATS/1.0\r\na: b: c\r\n\r\n", {"a": "b: c"}),
        (b"NATS/1.0\r\na:b: c\r\n\r\n", {"a": "b: c"}),
        (b"NATS/1.0\r\nno colon\r\nx: y\r\n\r\n", {"x": "y"}),
        (b"NATS/1.0\r\na: \xff\r\n\r\n", {"a": "\ufffd"}),
        (b"NATS/1.0\r\na: b", {"a": "b"}),
        (b"NATS/1.0\r\n: b\r\n\r\n", {}),
        (b"NATS/1.0 503\r\nNats-Subject: x\r\n\r\n", {"Nats-Subject": "x"}),
    ],
)
def test_strangers_headers_are_read_as_far_as_they_go(block: bytes, expected: dict[str, str]) -> None:
    assert fields_of(block) == expected


@given(st.binary(max_size=60))
def test_no_header_block_stops_a_reader(block: bytes) -> None:
    fields_of(block)
    head_of(block)


def test_status() -> None:
    assert head_of(b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 5\r\n\r\n") == Head(
        100, "Idle Heartbeat", {"Nats-Last-Consumer": "5"}
    )
    assert head_of(b"NATS/1.0 503\r\n\r\n") == Head(503, "", {})
    assert head_of(b"NATS/1.0\r\na: b\r\n\r\n") == Head(0, "", {"a": "b"})
    assert head_of(b"") == Head(0, "", {})


@pytest.mark.parametrize(
    ("name", "value"), [("a", "b\r\nc: d"), ("a", "\n"), ("a", "\x00"), ("a b", ""), ("", ""), ("ä", "")]
)
def test_headers_cannot_be_smuggled_in(name: str, value: str) -> None:
    with pytest.raises(Refused):
        header_lines({"ok": "fine", name: value})


def test_the_memory_for_header_names_is_bounded() -> None:
    for number in range(NATS_HEADER_NAMES_MAX_COUNT + 10):
        header_lines({f"n{number}": ""})
    assert len(protocol._known_names) <= NATS_HEADER_NAMES_MAX_COUNT


@given(subjects, st.one_of(st.just(""), subjects), headers, st.binary())
def test_what_is_published_arrives(subject: str, reply: str, fields: dict[str, str], data: bytes) -> None:
    frame = protocol.publish(protocol.checked_subject(subject), reply, header_lines(fields), data)
    assert commands(frame) == ([Sent("PUB", subject, reply, fields=fields, data=data)], b"")


def test_subscribing() -> None:
    assert protocol.subscribe("a.*", "7") == b"SUB a.* 7\r\n"
    assert protocol.subscribe("a.>", "7", "workers") == b"SUB a.> workers 7\r\n"
    assert protocol.unsubscribe("7") == b"UNSUB 7\r\n"
    assert protocol.connect({"verbose": False}) == b'CONNECT {"verbose":false}\r\n'
    for pattern, queue in (("a b", ""), ("a..b", ""), ("a.>.b", ""), ("a", "b c"), ("", "")):
        with pytest.raises(Refused):
            protocol.subscribe(pattern, "1", queue)


@pytest.mark.parametrize("subject", ["", ".", "a.", ".a", "a..b", "a b", "a\r\nPUB", "a.*", ">", "a\x00b", "a\tb"])
def test_what_is_not_a_subject(subject: str) -> None:
    with pytest.raises(Refused, match="not a subject"):
        protocol.checked_subject(subject)
