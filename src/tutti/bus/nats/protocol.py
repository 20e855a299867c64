"""The NATS client protocol, without I/O: bytes in, events out; commands in, bytes out.

Rules of the wire (docs.nats.io, "Client Protocol"):

1. Everything is a control line that ends in CR LF; MSG and HMSG are followed by a payload and CR LF.
2. `MSG <subject> <sid> [reply] <bytes>`; `HMSG <subject> <sid> [reply] <header bytes> <total bytes>`.
3. A header block is `NATS/1.0[ <status>[ <description>]]`, then `Name: value` lines, then an empty line.
4. The server speaks first: INFO. It answers CONNECT with nothing, PING with PONG, and what it dislikes with -ERR.

`Parser.feed` takes whatever a read returned and gives back the events that are complete; it remembers the rest. Nothing
here knows of sockets or event loops, so an asyncio connection and a blocking one share it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from tutti.errors import BusError, Refused
from tutti.limits import NATS_CONTROL_LINE_MAX_BYTES, NATS_HEADER_NAMES_MAX_COUNT, NATS_MESSAGE_MAX_BYTES
from tutti.model.headers import HeaderText, fields_in


class ProtocolViolation(BusError):
    """The other side does not speak NATS. The connection cannot be used any further."""


# Events


class ServerInfo(msgspec.Struct, frozen=True):
    """What a server says of itself, at first and whenever its cluster changes."""

    server_id: str = ""
    server_name: str = ""
    version: str = ""
    host: str = ""
    port: int = 0
    headers: bool = False
    max_payload: int = 1_048_576
    jetstream: bool = False
    auth_required: bool = False
    tls_required: bool = False
    tls_available: bool = False
    nonce: str = ""
    cluster: str = ""
    connect_urls: tuple[str, ...] = ()
    ldm: bool = False  # lame duck mode: the server is about to stop


class Message(msgspec.Struct, frozen=True, gc=False):
    """MSG or HMSG. `head` is the raw header block, empty if there is none."""

    subject: str
    sid: str
    reply: str
    head: bytes
    data: bytes


class Info(msgspec.Struct, frozen=True):
    server: ServerInfo


class Ping(msgspec.Struct, frozen=True):
    pass


class Pong(msgspec.Struct, frozen=True):
    pass


class Ok(msgspec.Struct, frozen=True):
    pass


class Failure(msgspec.Struct, frozen=True):
    """-ERR, without its quotes."""

    text: str


Event = Message | Info | Ping | Pong | Ok | Failure

_info: Final = msgspec.json.Decoder(ServerInfo)
_MESSAGES: Final = b"MH"  # with which MSG and HMSG begin, and nothing else


class Parser:
    """Turns what arrives into events. After a `ProtocolViolation` it must not be fed again."""

    __slots__ = ("_chunks", "_have", "_need")

    def __init__(self) -> None:
        self._chunks: list[bytes] = []  # what is incomplete
        self._have = 0
        self._need = 0  # no event can be complete below this many bytes

    def feed(self, data: bytes) -> list[Event]:
        if self._chunks:
            self._chunks.append(data)
            self._have += len(data)
            if self._have < self._need:
                return []
            data = b"".join(self._chunks)
            self._chunks.clear()
        events: list[Event] = []
        done, need = _parse(data, events)
        if done < len(data):
            self._chunks.append(data[done:] if done else data)
            self._have = len(data) - done
            self._need = need
        return events


def _parse(data: bytes, events: list[Event]) -> tuple[int, int]:
    """Append what is complete; returns where the rest begins and how many bytes of the rest would make an event."""
    start = 0
    size = len(data)
    find = data.find
    append = events.append
    while start < size:
        eol = find(b"\r\n", start)
        if eol < 0:
            if size - start > NATS_CONTROL_LINE_MAX_BYTES:
                raise ProtocolViolation(
                    f"a control line of more than {NATS_CONTROL_LINE_MAX_BYTES} bytes", hint=_NOT_NATS
                )
            return start, 0
        if data[start] not in _MESSAGES:
            append(_control(data[start:eol]))
            start = eol + 2
            continue
        reply, head = "", 0
        try:
            words = data[start:eol].decode().split(" ")
            if len(words) == 4 and words[0] == "MSG":  # the two frequent forms first; unpacking checks the others
                _, subject, sid, size_text = words
            elif len(words) == 6 and words[0] == "HMSG":
                _, subject, sid, reply, head_text, size_text = words
                head = int(head_text)
            elif words[0] == "MSG":
                _, subject, sid, reply, size_text = words
            elif words[0] == "HMSG":
                _, subject, sid, head_text, size_text = words
                head = int(head_text)
            else:
                raise _malformed(data[start:eol])
            total = int(size_text)
        except ValueError:
            raise _malformed(data[start:eol]) from None
        if not 0 <= head <= total <= NATS_MESSAGE_MAX_BYTES:
            raise _malformed(data[start:eol])
        body = eol + 2
        end = body + total
        if end + 2 > size:
            return start, end + 2 - start
        if not data.startswith(b"\r\n", end):
            raise ProtocolViolation(
                f"the payload after {data[start:eol][:200]!r} does not end where it should", hint=_NOT_NATS
            )
        append(Message(subject, sid, reply, data[body : body + head], data[body + head : end]))
        start = end + 2
    return start, 0


def _control(line: bytes) -> Event:
    match line:
        case b"PING":
            return Ping()
        case b"PONG":
            return Pong()
        case b"+OK":
            return Ok()
        case _ if line.startswith(b"-ERR"):
            return Failure(line[4:].decode("utf-8", "replace").strip().strip("'"))
        case _ if line.startswith(b"INFO "):
            try:
                return Info(_info.decode(line[5:]))
            except msgspec.DecodeError as error:
                raise ProtocolViolation(f"the server's INFO cannot be read: {error}", hint=_NOT_NATS) from None
        case _:
            raise _malformed(line)


_NOT_NATS: Final = "is this the client port of a NATS server, and is TLS expected on it?"


def _malformed(line: bytes) -> ProtocolViolation:
    return ProtocolViolation(f"not a line of the NATS protocol: {line[:200]!r}", hint=_NOT_NATS)


# Headers


class Head(msgspec.Struct, frozen=True):
    """A decoded header block. `status` is 0 for an ordinary message."""

    status: int
    description: str
    fields: dict[str, str]


def headers_of(head: bytes) -> Mapping[str, str]:
    """The headers of an ordinary message. Bytes that are no UTF-8 are replaced."""
    if not head:
        return {}
    if head.startswith(b"NATS/1.0\r\n") and head.endswith(b"\r\n\r\n"):
        return HeaderText(head[10:-2].decode("utf-8", "replace"))
    return fields_of(head)


def fields_of(head: bytes) -> dict[str, str]:
    """The same as a dictionary, of status messages too."""
    return fields_in(head.partition(b"\r\n")[2].removesuffix(b"\r\n").decode("utf-8", "replace"))


def head_of(head: bytes) -> Head:
    """The whole block, for the servers' own status messages."""
    if not head:
        return Head(0, "", {})
    first = head.partition(b"\r\n")[0].decode("utf-8", "replace")
    _, _, rest = first.partition(" ")
    code, _, description = rest.partition(" ")
    return Head(int(code) if code.isdigit() else 0, description, fields_of(head))


_NAME: Final = re.compile(r"[!-9;-~]+").fullmatch  # visible ASCII without the colon
_BREAKS: Final = re.compile(r"[\r\n\x00]").search
_known_names: set[str] = set()


def header_lines(headers: Mapping[str, str]) -> str:
    """`Name: value` lines as text, ready to be framed; refuses what could not be told apart on the other side."""
    if type(headers) is HeaderText:
        return headers.text
    if not headers.keys() <= _known_names:
        _check_names(headers)
    text = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    count = len(headers)
    if text.count("\n") != count or text.count("\r") != count or "\x00" in text:
        bad = next(name for name, value in headers.items() if _BREAKS(value))
        raise Refused(
            f"the value of the header {bad!r} has a line break or a NUL in it",
            hint="encode it: CloudEvents percent-encodes such characters",
        )
    return text


def _check_names(headers: Mapping[str, str]) -> None:
    for name in headers:
        if not _NAME(name):
            raise Refused(f"{name!r} cannot name a header", hint="use visible ASCII characters without ':'")
        if len(_known_names) >= NATS_HEADER_NAMES_MAX_COUNT:
            _known_names.clear()
        _known_names.add(name)


# Commands

_EMPTY_HEAD_BYTES: Final = len("NATS/1.0\r\n\r\n")
PING: Final = b"PING\r\n"
PONG: Final = b"PONG\r\n"
AFTER_DATA: Final = b"\r\n"


def connect(options: Mapping[str, object]) -> bytes:
    return b"CONNECT " + msgspec.json.encode(options) + b"\r\n"


def subscribe(subject: str, sid: str, queue: str = "") -> bytes:
    checked_pattern(subject)
    if queue:
        checked_subject(queue)
    return f"SUB {subject} {queue + ' ' if queue else ''}{sid}\r\n".encode()


def unsubscribe(sid: str) -> bytes:
    return f"UNSUB {sid}\r\n".encode()


def publish(subject: str, reply: str, lines: str, data: bytes) -> bytes:
    """PUB, or HPUB if there are header lines. The caller has checked subject and lines."""
    return b"".join((before_data(subject, reply, lines, data), data, AFTER_DATA))


def before_data(subject: str, reply: str, lines: str, data: bytes) -> bytes:
    """The part of `publish` that stands before the data; `AFTER_DATA` follows them. Who sends many joins them all."""
    if not lines:
        return f"PUB {subject} {reply} {len(data)}\r\n".encode()
    size = _EMPTY_HEAD_BYTES + (len(lines) if lines.isascii() else len(lines.encode()))
    return f"HPUB {subject} {reply} {size} {size + len(data)}\r\nNATS/1.0\r\n{lines}\r\n".encode()


_SUBJECT: Final = re.compile(r"[^\s\x00.*>]+(?:\.[^\s\x00.*>]+)*").fullmatch
_PATTERN: Final = re.compile(r"(?:(?:\*|[^\s\x00.*>]+)\.)*(?:\*|>|[^\s\x00.*>]+)").fullmatch
_SUBJECT_HINT: Final = "subjects are tokens joined by '.', without white space"


@functools.lru_cache(maxsize=4_096)
def checked_subject(subject: str) -> str:
    """A subject to publish on: it cannot break out of its control line, and means itself alone."""
    if not _SUBJECT(subject):
        raise Refused(f"{subject!r} is not a subject to publish on", hint=_SUBJECT_HINT)
    return subject


def checked_pattern(pattern: str) -> str:
    """A subject to listen on: `*` stands for a token, `>` for all that follow."""
    if not _PATTERN(pattern):
        raise Refused(f"{pattern!r} is not a subject to listen on", hint=_SUBJECT_HINT)
    return pattern
