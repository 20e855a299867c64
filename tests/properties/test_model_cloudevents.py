"""Envelopes survive both modes; whatever arrives ends in an envelope or in a refusal; tokens keep what they encode."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from urllib.parse import unquote

import msgspec
from hypothesis import assume, given
from hypothesis import strategies as st

from tutti.errors import DeclarationError, InvalidEvent
from tutti.limits import ROUTING_TOKEN_MAX_BYTES
from tutti.model.attributes import is_text
from tutti.model.cloudevents import STRUCTURED, from_message, to_headers, to_structured
from tutti.model.envelope import Envelope
from tutti.model.subjects import routing_text, token

texts = st.text(min_size=1, max_size=30).filter(is_text)
names = st.from_regex(r"x[a-z0-9]{0,18}", fullmatch=True)
times = st.datetimes(timezones=st.just(UTC)).map(datetime.isoformat)
json_data = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
).map(msgspec.json.encode)
envelopes = st.builds(
    Envelope,
    id=texts,
    source=texts,
    type=texts,
    data=json_data,
    time=st.none() | times,
    dataschema=st.none() | texts,
    subject=st.none() | texts,
    extensions=st.dictionaries(names, texts | st.just(""), max_size=5),
)


@given(envelopes)
def test_binary_there_and_back(envelope: Envelope) -> None:
    headers = to_headers(envelope)
    assert all(re.fullmatch(r"[!-~]*", value) and '"' not in value for value in headers.values())
    assert from_message(headers, envelope.data) == envelope
    assert {name[3:]: unquote(value, errors="strict") for name, value in headers.items()} == envelope.attributes()


@given(envelopes)
def test_structured_there_and_back(envelope: Envelope) -> None:
    assert from_message({"Content-Type": STRUCTURED}, to_structured(envelope)) == envelope


@given(envelopes, st.binary(), st.sampled_from(["application/octet-stream", None]))
def test_bytes_there_and_back(envelope: Envelope, data: bytes, content_type: str | None) -> None:
    changed = msgspec.structs.replace(envelope, data=data, datacontenttype=content_type)
    assert from_message(to_headers(changed), data) == changed
    assert from_message({"Content-Type": STRUCTURED}, to_structured(changed)) == changed


@given(st.text(st.characters(exclude_categories=()), max_size=20))
def test_an_attribute_leaves_only_if_it_can_arrive(text: str) -> None:
    envelope = Envelope("1", "/s", "T", subject=text)
    try:
        headers = to_headers(envelope)
    except InvalidEvent:
        assert not is_text(text)
        return
    assert from_message(headers, b"").subject == text


header_names = st.sampled_from(
    [
        "ce-id",
        "Ce-Source",
        "ce-type",
        "ce-specversion",
        "ce-time",
        "CE-ID",
        "Content-Type",
        "ce-",
        "ce-x",
        "Nats-Msg-Id",
    ]
)
header_values = st.text(st.characters(exclude_categories=()), max_size=20) | st.sampled_from(
    ["1.0", '"', "%", "%C0%80", "application/cloudevents+json", "2026-01-01T00:00:00Z"]
)
pieces = st.sampled_from(
    [b'{"specversion":"1.0",', b'"id":"1",', b'"source":"s",', b'"type":"t"', b"}", b'"data":', b"1"]
)


@given(
    st.dictionaries(header_names, header_values, max_size=8),
    st.binary(max_size=50) | st.lists(pieces, max_size=8).map(b"".join),
)
def test_any_message_is_read_or_refused(headers: dict[str, str], data: bytes) -> None:
    try:
        envelope = from_message(headers, data)
    except InvalidEvent:
        return
    assert envelope.id
    assert from_message(to_headers(envelope), envelope.data) == envelope


routable = (
    st.text(st.characters(exclude_categories=()))
    | st.integers()
    | st.booleans()
    | st.floats()
    | st.decimals()
    | st.dates()
    | st.datetimes(timezones=st.none() | st.just(UTC))
    | st.uuids()
)


@given(routable)
def test_tokens_are_safe_and_short(value: Any) -> None:
    try:
        made = token(value)
    except DeclarationError:
        assert not Decimal(value).is_finite()
        return
    assert re.fullmatch(r"[A-Za-z0-9_=~-]+", made)
    assert len(made) <= ROUTING_TOKEN_MAX_BYTES


@given(st.text(max_size=20), st.text(max_size=20))
def test_different_short_texts_have_different_tokens(one: str, other: str) -> None:
    assume(one != other)
    assert token(one) != token(other)


@given(st.decimals(allow_nan=False, allow_infinity=False), st.integers(0, 30))
def test_numbers_keep_their_text_however_they_are_written(number: Decimal, zeros: int) -> None:
    sign, digits, exponent = number.as_tuple()
    padded = Decimal((sign, digits + (0,) * zeros, int(exponent) - zeros))
    assert padded == number
    assert routing_text(padded) == routing_text(number)
    assert Decimal(routing_text(number)) == number
