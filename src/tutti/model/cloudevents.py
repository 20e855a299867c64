"""CloudEvents 1.0 over NATS: envelopes to and from messages.

Binary mode is what Tutti writes: each context attribute is a header `ce-<name>`, the data are the message's payload.
Structured mode is read too: the payload is a JSON object that holds attributes and data. A message without any `ce-`
header and without a content type is taken for structured, as the binding says for servers that know no headers.

Header values are percent-encoded as the binding asks: space, double quote, percent and all outside U+0021 … U+007E.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NoReturn
from urllib.parse import unquote_to_bytes

import msgspec

from tutti.errors import InvalidEvent
from tutti.limits import EVENT_MAX_BYTES, HEADERS_MAX_BYTES, HEADERS_MAX_COUNT
from tutti.model.attributes import EXPIRY, SEQUENCE, SPECVERSION, is_text, is_timestamp, sequence_text
from tutti.model.envelope import JSON, Envelope, is_json
from tutti.model.fidelity import shown
from tutti.model.headers import HeaderText, fields_in

STRUCTURED: Final = "application/cloudevents+json"
_PREFIX: Final = "ce-"
_STRUCTURED_PREFIX: Final = "application/cloudevents"
_PLAIN: Final = re.compile(r"[!#$&-~]*").fullmatch  # needs no encoding
_ESCAPED: Final = re.compile(r"[^!#$&-~]").sub
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})").search
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"').fullmatch
_QUOTED_PAIR: Final = re.compile(r"\\(.)").sub
_REQUIRED: Final = ("id", "source", "type")
_ATTRIBUTE_NAME: Final = re.compile(r"[a-z0-9]+").fullmatch  # others may exceed the 20 characters that are advised


def to_headers(envelope: Envelope) -> dict[str, str]:
    """The headers of a message in binary mode; the envelope's data are its payload."""
    headers = {
        "ce-specversion": SPECVERSION,
        "ce-id": _encoded("id", envelope.id),
        "ce-source": _encoded_often("source", envelope.source),
        "ce-type": _encoded_often("type", envelope.type),
    }
    if envelope.time is not None:
        headers["ce-time"] = _encoded("time", envelope.time)
    if envelope.datacontenttype is not None:
        headers["ce-datacontenttype"] = _encoded_often("datacontenttype", envelope.datacontenttype)
    if envelope.dataschema is not None:
        headers["ce-dataschema"] = _encoded_often("dataschema", envelope.dataschema)
    if envelope.subject is not None:
        headers["ce-subject"] = _encoded("subject", envelope.subject)
    for name, value in envelope.extensions.items():
        headers[_PREFIX + name] = _encoded(name, value)
    return headers


def common_lines(source: str, type_name: str) -> str:
    """With these lines begin the headers of every event of this publisher and type that says nothing special."""
    headers = to_headers(Envelope(id="-", source=source, type=type_name))
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items() if name != "ce-id")


def numbered_headers(common: str, publisher: str, identity: str, time: str, sequence: str) -> HeaderText:
    """The headers of such an event. The texts must be of a kind that needs no encoding."""
    return HeaderText(
        f"{common}ce-id: {identity}\r\nce-time: {time}\r\nce-{SEQUENCE}: {sequence}\r\n"
        f"Nats-Msg-Id: {publisher}/{identity}\r\n"
    )


def many_numbered_headers(
    common: str, publisher: str, identities: Sequence[str], time: str, numbers: Sequence[int]
) -> list[HeaderText]:
    """The same for many events of one moment."""
    before = f"{common}ce-id: "
    between = f"\r\nce-time: {time}\r\nce-{SEQUENCE}: "
    behind = f"\r\nNats-Msg-Id: {publisher}/"
    return [
        HeaderText(f"{before}{identity}{between}{sequence_text(number)}{behind}{identity}\r\n")
        for identity, number in zip(identities, numbers, strict=True)
    ]


_NUMBERED: Final = re.compile(
    rf"ce-id: ([!#$&-~]++)\r\nce-time: ([!#$&-~]++)\r\nce-{SEQUENCE}: ([0-9]++)\r\n"
    r"(?:Nats-[A-Za-z-]++: [!#$&-~]*+\r\n)*+"  # the message id, and what batches add
).fullmatch


def _from_text(text: str, data: bytes) -> Envelope | None:
    """The quick way for what `numbered_headers` makes: its common lines are read once. None for all other headers."""
    begin = text.find("ce-id: ")
    found = _NUMBERED(text, begin) if begin >= 0 and len(text) <= HEADERS_MAX_BYTES else None
    if found is None:
        return None
    common = _common_attributes(text[:begin])
    identity, time, sequence = found.groups()
    if common is None or not _is_time(time):
        return None
    source, kind, declared = common
    return Envelope(identity, source, kind, data, time, declared, None, None, {SEQUENCE: sequence})


_is_time: Final = lru_cache(maxsize=1024)(is_timestamp)  # hundreds of events are of one moment


@lru_cache(maxsize=1024)
def _common_attributes(lines: str) -> tuple[str, str, str | None] | None:
    """Source, type and content type, if the lines say nothing else."""
    try:
        envelope = from_message({**fields_in(lines), "ce-id": "-"}, b"")
    except InvalidEvent:
        return None
    found = envelope.source, envelope.type, envelope.datacontenttype
    return found if lines == common_lines(*found[:2]) else None


def _encoded(name: str, value: str) -> str:
    return value if _PLAIN(value) else _escaped(name, value)


@lru_cache(maxsize=1024)
def _encoded_often(name: str, value: str) -> str:
    """For attributes of few different values: a process has few sources and types."""
    return _encoded(name, value)


def _escaped(name: str, value: str) -> str:
    if not is_text(value):
        raise InvalidEvent(
            f"the attribute {name!r} is {value!r}, which holds a control character, a surrogate or a noncharacter",
            hint="CloudEvents forbids these in attributes: put such texts into the event's fields",
        )
    return _ESCAPED(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), value)


def from_message(headers: Mapping[str, str], data: bytes) -> Envelope:
    """The event that a message carries, in either mode. `InvalidEvent` says which header or member is wrong."""
    if type(headers) is HeaderText:
        envelope = _from_text(headers.text, data)
        if envelope is not None:
            return envelope
        headers = headers.fields
    if len(headers) > HEADERS_MAX_COUNT:
        raise InvalidEvent(f"the message has {len(headers)} headers; the limit is {HEADERS_MAX_COUNT}", hint=_NOT_OURS)
    values = "".join(headers.values())
    size = len(values) + len("".join(headers))
    if size > HEADERS_MAX_BYTES:
        raise InvalidEvent(f"the headers have {size:,} bytes; the limit is {HEADERS_MAX_BYTES:,}", hint=_NOT_OURS)
    all_plain = _PLAIN(values) is not None  # one look at all of them: usually none is encoded
    attributes: dict[str, str] = {}
    content_type: str | None = None
    for header, value in headers.items():
        name = _attribute_of(header)
        if name is not None:
            if name in attributes:
                _refuse(header, value, "it stands there twice")
            attributes[name] = value if all_plain or _PLAIN(value) else _decoded(header, value)
        elif header.lower() == "content-type":
            content_type = value
    if content_type is not None and content_type.strip().lower().startswith(_STRUCTURED_PREFIX):
        return _from_structured(content_type, data)
    if not attributes and content_type is None:
        return _from_structured(STRUCTURED, data)
    if content_type is not None:
        attributes.setdefault("datacontenttype", content_type)
    return _envelope(attributes, data, _HEADER)


@lru_cache(maxsize=1024)
def _attribute_of(header: str) -> str | None:
    """The attribute that a header carries, if it carries one."""
    name = header.lower()
    return name[len(_PREFIX) :] if name.startswith(_PREFIX) else None


_NOT_OURS: Final = "this message is no CloudEvent that Tutti can read: see who publishes on this subject"
_HEADER: Final = "header ce-"
_MEMBER: Final = "member "


def _decoded(header: str, value: str) -> str:
    text = value.strip(" \t")
    if quoted := _QUOTED(text):
        text = _QUOTED_PAIR(r"\1", quoted[1])
    if _BAD_ESCAPE(text):
        _refuse(header, value, "a percent sign is not followed by two hexadecimal digits")
    try:
        decoded = unquote_to_bytes(text).decode("utf-8")
    except UnicodeError:
        _refuse(header, value, "what is percent-encoded is not UTF-8")
    return _checked_text(header, decoded)


def _checked_text(where: str, value: str) -> str:
    if not is_text(value):
        _refuse(where, value, "it holds a control character, a surrogate or a noncharacter")
    return value


def _refuse(where: str, value: object, reason: str) -> NoReturn:
    raise InvalidEvent(f"{where} is {shown(value)}: {reason}", hint=_NOT_OURS)


def _envelope(attributes: dict[str, str], data: bytes, place: str) -> Envelope:
    """Takes `attributes` apart: what remains of them are the extensions."""
    version = attributes.pop("specversion", None)
    if version != SPECVERSION:
        if version is None:
            raise InvalidEvent(f"{place}specversion is missing", hint=_NOT_OURS)
        _refuse(f"{place}specversion", version, f"only {SPECVERSION} is known")
    take = attributes.pop
    identity, source, kind = take("id", ""), take("source", ""), take("type", "")
    if not (identity and source and kind):
        name = next(name for name, value in zip(_REQUIRED, (identity, source, kind), strict=True) if not value)
        raise InvalidEvent(f"{place}{name} is missing or empty", hint=_NOT_OURS)
    time = take("time", None)
    if time is not None and not is_timestamp(time):
        _refuse(f"{place}time", time, "it is no RFC 3339 timestamp")
    declared, schema, subject = take("datacontenttype", None), take("dataschema", None), take("subject", None)
    _check_extensions(attributes, place)
    return Envelope(identity, source, kind, data, time, declared, schema, subject, attributes)


def _check_extensions(extensions: dict[str, str], place: str) -> None:
    if EXPIRY in extensions and not is_timestamp(extensions[EXPIRY]):
        _refuse(f"{place}{EXPIRY}", extensions[EXPIRY], "it is no RFC 3339 timestamp")
    for name, value in extensions.items():
        if not _is_attribute_name(name):
            _refuse(f"{place}{name}", value, "names of attributes are lower-case letters and digits")


@lru_cache(maxsize=1024)
def _is_attribute_name(name: str) -> bool:
    return _ATTRIBUTE_NAME(name) is not None


def to_structured(envelope: Envelope) -> bytes:
    """The event as one JSON object, for consumers that know no headers."""
    members: dict[str, Any] = dict(envelope.attributes())
    for name, value in members.items():
        _encoded(name, value)
    if envelope.data:
        members.update(_data_member(envelope))
    return msgspec.json.encode(members)


def _data_member(envelope: Envelope) -> dict[str, Any]:
    if envelope.datacontenttype is None or not envelope.holds_json:
        return {"data_base64": base64.b64encode(envelope.data).decode("ascii")}
    try:
        msgspec.json.decode(envelope.data, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise InvalidEvent(
            f"the data of event {envelope.id!r} are declared {envelope.datacontenttype} but are not JSON: {error}",
            hint="declare in datacontenttype what the data are",
        ) from error
    return {"data": msgspec.Raw(envelope.data)}


def _from_structured(content_type: str, data: bytes) -> Envelope:
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type not in (STRUCTURED, _STRUCTURED_PREFIX):
        _refuse("header content-type", content_type, f"of the event formats only {STRUCTURED} is known")
    if len(data) > EVENT_MAX_BYTES:
        raise InvalidEvent(f"the message has {len(data):,} bytes; the limit is {EVENT_MAX_BYTES:,}", hint=_NOT_OURS)
    try:
        return _from_members(_MEMBERS(data))
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidEvent(
            f"without ce- headers the payload must be an event in JSON form, but it is not: {error}", hint=_NOT_OURS
        ) from error


_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def _from_members(members: dict[str, msgspec.Raw]) -> Envelope:
    data, data_base64 = members.pop("data", None), members.pop("data_base64", None)
    if len(members) > HEADERS_MAX_COUNT:
        raise InvalidEvent(f"the event has {len(members)} attributes; the limit is {HEADERS_MAX_COUNT}", hint=_NOT_OURS)
    attributes = {name: text for name, raw in members.items() if (text := _attribute_text(name, raw)) is not None}
    if data is not None:
        attributes.setdefault("datacontenttype", JSON)  # what is not declared in this form is JSON
    payload = _payload(data, data_base64, attributes.get("datacontenttype"))
    return _envelope(attributes, payload, _MEMBER)


def _attribute_text(name: str, raw: msgspec.Raw) -> str | None:
    """An attribute's canonical text. Attributes are texts, truth values or whole numbers; null stands for none."""
    value = msgspec.json.decode(raw)
    match value:
        case None:
            return None
        case str():
            return _checked_text(f"{_MEMBER}{name}", value)
        case bool():
            return "true" if value else "false"
        case int() if -(2**31) <= value < 2**31:
            return str(value)
        case _:
            _refuse(f"{_MEMBER}{name}", value, "an attribute is a text, a truth value or a whole number of 32 bits")


def _payload(data: msgspec.Raw | None, data_base64: msgspec.Raw | None, declared: str | None) -> bytes:
    if data is not None and data_base64 is not None:
        raise InvalidEvent("the event has both data and data_base64", hint=_NOT_OURS)
    if data_base64 is not None:
        return _bytes_of(data_base64)
    if data is None:
        return b""
    if declared is None or is_json(declared):
        return bytes(data)
    text = msgspec.json.decode(data)
    if not isinstance(text, str):
        _refuse(f"{_MEMBER}data", text, f"data of {declared} stand in this form as a text")
    return text.encode()


def _bytes_of(data_base64: msgspec.Raw) -> bytes:
    text = msgspec.json.decode(data_base64)
    if text is None:
        return b""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError, ValueError):
        _refuse(f"{_MEMBER}data_base64", text, "it is no base64")
