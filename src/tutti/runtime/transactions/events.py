"""An event in a transaction, between its value and the bus: where it stands, who can read it.

Public events carry their data as plain ones do. In a private transaction the data are sealed with its key, bound to the
event's place (transaction, publisher, type, number), and the subject tells nothing of the fields.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from tutti.bus.port import Record
from tutti.errors import InvalidEvent
from tutti.limits import HEADERS_MAX_BYTES
from tutti.model import attributes
from tutti.model.cloudevents import from_message, to_headers
from tutti.model.decoding import UNDECODABLE
from tutti.model.envelope import JSON, Envelope, publisher_of
from tutti.model.event import EventType
from tutti.model.involvement import KEYS_HEADER, PREPARE_HEADER, SEALED, Involvement, involvement_of
from tutti.model.subjects import PRIVATE, Layout, partition_of
from tutti.model.transaction import Consumed
from tutti.runtime.publisher import MESSAGE_ID_HEADER, trace
from tutti.runtime.transactions.keys import PayloadKey

_keys: Final = msgspec.msgpack.Decoder(dict[str, bytes])


class Composed(msgspec.Struct, frozen=True):
    """What goes to the bus."""

    subject: str
    headers: dict[str, str]
    data: bytes


class Draft(msgspec.Struct, frozen=True):
    """An event that is checked and encoded, and only waits for its place."""

    kind: EventType
    data: bytes
    routing: tuple[str, ...]
    key: str | None


class Heard(msgspec.Struct, frozen=True):
    """What came from the bus: its place in the transaction is known, its data may still be sealed."""

    envelope: Envelope
    involvement: Involvement
    consumed: Consumed


def place_of(involvement: Involvement, type_name: str) -> str:
    """The event's place, in one text: no two events share it, and a sealed payload opens nowhere else."""
    return f"{involvement.tx}/{involvement.publisher}/{type_name}/{involvement.number}"


def draft(kind: EventType, event: object) -> Draft:
    """`InvalidEvent` if it cannot be one."""
    return Draft(kind, kind.encode(event), kind.routing_tokens(event), kind.key_of(event))


def compose(
    layout: Layout,
    event: Draft,
    involvement: Involvement,
    *,
    source: str,
    time: str,
    key: PayloadKey | None = None,
) -> Composed:
    """The event as it stands on the bus. `key`: of a private transaction."""
    kind, data, routing = event.kind, event.data, event.routing
    place = place_of(involvement, kind.name)
    private = involvement.scope == "private"
    extensions = involvement.extensions()
    if private:
        if key is None:
            raise InvalidEvent(
                f"{kind.name}: the key of the private transaction {involvement.tx} is not known here",
                hint="only its members can publish in it",
            )
        data = key.seal(data, place)
        routing, partition = (PRIVATE,) * len(routing), partition_of(involvement.tx)
    else:
        partition = partition_of(event.key if event.key is not None else publisher_of(source))
        if event.key is not None:
            extensions[attributes.PARTITION_KEY] = event.key
    traceparent, tracestate = trace.get()
    if traceparent:
        extensions[attributes.TRACEPARENT] = traceparent
        if tracestate:
            extensions[attributes.TRACESTATE] = tracestate
    headers = to_headers(
        Envelope(
            id=place,
            source=source,
            type=kind.name,
            time=time,
            datacontenttype=SEALED if private else JSON,
            extensions=extensions,
        )
    )
    headers[MESSAGE_ID_HEADER] = f"tx/{headers['ce-id']}"
    subject = layout.transactional(kind.stream, kind.token, involvement.tx, str(partition), routing)
    return Composed(subject, headers, data)


def with_prepare(composed: Composed, envelope: bytes) -> Composed:
    """A last event carries the prepare."""
    return _with_header(composed, PREPARE_HEADER, envelope)


def with_keys(composed: Composed, wrapped: Mapping[str, bytes]) -> Composed:
    """The first event of a private transaction without a begin carries the key, wrapped for each member."""
    return _with_header(composed, KEYS_HEADER, msgspec.msgpack.encode(dict(wrapped)))


def _with_header(composed: Composed, name: str, value: bytes) -> Composed:
    headers = {**composed.headers, name: base64.b64encode(value).decode("ascii")}
    size = sum(map(len, headers)) + sum(map(len, headers.values()))
    if size > HEADERS_MAX_BYTES:
        raise InvalidEvent(
            f"the headers of an event have {size:,} bytes with {name}; the limit is {HEADERS_MAX_BYTES:,}",
            hint="make the group smaller, or hold a census",
        )
    return msgspec.structs.replace(composed, headers=headers)


def hear(record: Record) -> Heard | None:
    """None for an event outside transactions; `InvalidEvent` for what cannot be read."""
    envelope = from_message(record.headers, record.data)
    involvement = involvement_of(envelope.extensions)
    if involvement is None:
        return None
    consumed = Consumed(involvement.publisher, envelope.type, involvement.number, record.sequence)
    return Heard(envelope, involvement, consumed)


def opened(heard: Heard, kind: EventType, key: PayloadKey | None) -> Any:
    """The event itself. `InvalidEvent` if it does not fit its type, or cannot be read by us."""
    envelope = heard.envelope
    if envelope.type != kind.name:
        raise InvalidEvent(f"an event of type {envelope.type!r} stands on the subject of {kind.name}")
    data = envelope.data
    if envelope.datacontenttype == SEALED:
        if key is None:
            raise InvalidEvent(
                f"a private event of {heard.involvement.tx} came, and its key is not known here",
                hint="is this subscriber a member? was it enrolled anew?",
            )
        data = key.open(data, place_of(heard.involvement, kind.name))
    elif heard.involvement.scope == "private":
        raise InvalidEvent(f"an event of the private transaction {heard.involvement.tx} is not sealed")
    return kind.decode(data)


def carried_prepare(record: Record) -> bytes:
    """The envelope of the prepare that a last event carries; empty if it carries none, or nonsense."""
    return _decoded(record.headers.get(PREPARE_HEADER, ""))


def carried_key(record: Record, member: str) -> bytes:
    """The payload key that an event carries, wrapped for this member; empty if there is none."""
    packed = _decoded(record.headers.get(KEYS_HEADER, ""))
    try:
        return _keys.decode(packed).get(member, b"") if packed else b""
    except UNDECODABLE:
        return b""


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True) if text else b""
    except (binascii.Error, ValueError):
        return b""
