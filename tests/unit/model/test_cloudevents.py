"""CloudEvents over NATS: both modes, other people's events, and the official SDK as witness."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_binary, from_structured, to_binary
from cloudevents.core.bindings.http import to_structured as sdk_to_structured
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent as SdkEvent

from tutti.errors import InvalidEvent
from tutti.limits import EVENT_MAX_BYTES, HEADERS_MAX_BYTES, HEADERS_MAX_COUNT
from tutti.model.cloudevents import STRUCTURED, from_message, to_headers, to_structured
from tutti.model.envelope import Envelope

FULL = Envelope(
    id="42",
    source="/desk/1",
    type="com.example.trade",
    data=b'{"symbol":"IBM"}',
    time="2026-03-01T12:00:00.5Z",
    dataschema="https://example.com/trade.json",
    subject='Euro € 😀 "100%"',
    extensions={"tenant": "acme", "sequence": "0000000000000000007"},
)
SMALL = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/s", "ce-type": "T"}


class TestBinary:
    def test_headers(self) -> None:
        assert to_headers(FULL) == {
            "ce-specversion": "1.0",
            "ce-id": "42",
            "ce-source": "/desk/1",
            "ce-type": "com.example.trade",
            "ce-time": "2026-03-01T12:00:00.5Z",
            "ce-datacontenttype": "application/json",
            "ce-dataschema": "https://example.com/trade.json",
            "ce-subject": "Euro%20%E2%82%AC%20%F0%9F%98%80%20%22100%25%22",
            "ce-tenant": "acme",
            "ce-sequence": "0000000000000000007",
        }

    def test_there_and_back(self) -> None:
        assert from_message(to_headers(FULL), FULL.data) == FULL

    def test_unset_attributes_have_no_header(self) -> None:
        assert to_headers(Envelope("1", "/s", "T", datacontenttype=None)) == SMALL

    def test_names_of_headers_are_case_insensitive_and_others_are_ignored(self) -> None:
        headers = {name.upper(): value for name, value in SMALL.items()} | {"Nats-Msg-Id": "x", "traceparent": "00"}
        assert from_message(headers, b"") == Envelope("1", "/s", "T", datacontenttype=None)

    @pytest.mark.parametrize(
        ("sent", "read"),
        [
            ("plain", "plain"),
            ("Euro%20%e2%82%ac", "Euro €"),
            ("%70lain", "plain"),
            ('"quoted \\" and \\\\ %25"', 'quoted " and \\ %'),
            ("raw é", "raw é"),
            ("  around\t", "around"),
            ("%2525", "%25"),
            ('half"quoted', 'half"quoted'),
        ],
    )
    def test_values_are_unquoted_and_decoded_once(self, sent: str, read: str) -> None:
        assert from_message(SMALL | {"ce-subject": sent}, b"").subject == read

    def test_the_content_type_of_http_style_publishers(self) -> None:
        assert from_message(SMALL | {"Content-Type": "text/plain"}, b"a").datacontenttype == "text/plain"
        both = SMALL | {"Content-Type": "text/plain", "ce-datacontenttype": "text/csv"}
        assert from_message(both, b"a").datacontenttype == "text/csv"

    def test_long_names_of_other_peoples_attributes(self) -> None:
        assert from_message(SMALL | {"ce-averyveryverylongattributename": "1"}, b"").extensions == {
            "averyveryverylongattributename": "1"
        }

    @pytest.mark.parametrize(
        ("changes", "says"),
        [
            ({"ce-specversion": "0.3"}, "header ce-specversion is '0.3'"),
            ({"ce-id": ""}, "header ce-id is missing or empty"),
            ({"ce-source": ""}, "header ce-source is missing"),
            ({"ce-type": ""}, "header ce-type is missing"),
            ({"ce-time": "noon"}, "header ce-time is 'noon': it is no RFC 3339"),
            ({"ce-time": "2026-01-01T00:00:00"}, "header ce-time"),
            ({"ce-expirytime": "soon"}, "header ce-expirytime is 'soon'"),
            ({"ce-subject": "%C0%A0"}, "ce-subject .* not UTF-8"),
            ({"ce-subject": "100%"}, "ce-subject .* two hexadecimal digits"),
            ({"ce-subject": "%zz"}, "ce-subject .* two hexadecimal digits"),
            ({"ce-subject": "a%0Ab"}, "ce-subject .* control character"),
            ({"ce-subject": "a\nb"}, "ce-subject .* control character"),
            ({"ce-subject": "\udc80"}, "ce-subject .* not UTF-8"),
            ({"ce-my_tenant": "1"}, "header ce-my_tenant .* lower-case letters and digits"),
            ({"ce-": "1"}, "header ce- "),
            ({"CE-ID": "2"}, "CE-ID is '2': it stands there twice"),
            ({f"ce-x{i}": "1" for i in range(HEADERS_MAX_COUNT)}, "68 headers; the limit is 64"),
            ({"Other": "x" * HEADERS_MAX_BYTES}, "the headers have 32,8.. bytes"),
        ],
    )
    def test_malformed_headers(self, changes: dict[str, str], says: str) -> None:
        with pytest.raises(InvalidEvent, match=says) as caught:
            from_message(SMALL | changes, b"{}")
        assert caught.value.hint

    @pytest.mark.parametrize("missing", sorted(SMALL))
    def test_missing_headers(self, missing: str) -> None:
        headers = {name: value for name, value in SMALL.items() if name != missing}
        with pytest.raises(InvalidEvent, match=f"header {missing} is missing"):
            from_message(headers, b"")

    @pytest.mark.parametrize("text", ["a\nb", "\x00", "\x9f", "\ud800", "\ufdd0"])
    def test_what_no_attribute_may_hold_does_not_leave(self, text: str) -> None:
        for envelope in (
            msgspec.structs.replace(FULL, subject=text),
            msgspec.structs.replace(FULL, source=text),
            msgspec.structs.replace(FULL, extensions={"tenant": text}),
        ):
            with pytest.raises(InvalidEvent, match="control character"):
                to_headers(envelope)
            with pytest.raises(InvalidEvent, match="control character"):
                to_structured(envelope)


def structured(**members: Any) -> bytes:
    return json.dumps({"specversion": "1.0", "id": "1", "source": "/s", "type": "T"} | members).encode()


class TestStructured:
    def test_there_and_back(self) -> None:
        assert from_message({"Content-Type": STRUCTURED}, to_structured(FULL)) == FULL

    @pytest.mark.parametrize(
        "headers",
        [
            {},
            {"content-type": "application/cloudevents+json"},
            {"Content-Type": "Application/CloudEvents+JSON; charset=UTF-8"},
            {"Content-Type": "application/cloudevents"},
            {"Nats-Msg-Id": "1"},
        ],
    )
    def test_how_it_is_recognised(self, headers: dict[str, str]) -> None:
        assert from_message(headers, structured(data=[1])).data == b"[1]"

    def test_data_stay_as_they_are(self) -> None:
        data = b'{"a": 1.10, "b" :"\\u00e9"}'
        assert from_message({}, structured()[:-1] + b', "data": ' + data + b"}").data == data

    @pytest.mark.parametrize(
        ("members", "data", "content_type"),
        [
            ({}, b"", None),
            ({"data": None}, b"null", "application/json"),
            ({"data": "text"}, b'"text"', "application/json"),
            ({"data": "<a/>", "datacontenttype": "application/xml"}, b"<a/>", "application/xml"),
            ({"data_base64": "AP8="}, b"\x00\xff", None),
            ({"data_base64": None}, b"", None),
            ({"data_base64": "e30=", "datacontenttype": "application/json"}, b"{}", "application/json"),
        ],
    )
    def test_forms_of_data(self, members: dict[str, Any], data: bytes, content_type: str | None) -> None:
        envelope = from_message({}, structured(**members))
        assert (envelope.data, envelope.datacontenttype) == (data, content_type)

    def test_attributes_get_their_canonical_text(self) -> None:
        envelope = from_message({}, structured(flag=True, off=False, count=-5, unset=None, text="é"))
        assert envelope.extensions == {"flag": "true", "off": "false", "count": "-5", "text": "é"}

    @pytest.mark.parametrize(
        ("payload", "says"),
        [
            (b"", "the payload must be an event in JSON form"),
            (b"hello", "the payload must be an event in JSON form"),
            (b"[]", "the payload must be an event in JSON form"),
            (b"{" * 10_000, "the payload must be an event in JSON form"),
            (b'{"a":' * 100_000, "the payload must be an event in JSON form"),
            (b'{"id": "\xff"}', "the payload must be an event in JSON form"),
            (b"{}", "member specversion is missing"),
            (structured(specversion="2.0"), "member specversion is '2.0'"),
            (structured(id=None), "member id is missing"),
            (structured(time="noon"), "member time is 'noon'"),
            (structured(x=1.5), "member x is 1.5: an attribute is"),
            (structured(x=2**31), "member x is 2147483648"),
            (structured(x=[1]), r"member x is \[1\]"),
            (structured(x="a\nb"), "member x .* control character"),
            (structured(X="1"), "member X .* lower-case"),
            (structured(data=1, data_base64="e30="), "both data and data_base64"),
            (structured(data_base64="%%%"), "member data_base64 .* no base64"),
            (structured(data_base64=5), "member data_base64 .* no base64"),
            (structured(data={}, datacontenttype="text/plain"), "member data is {}: data of text/plain"),
            (structured(**{f"x{i}": "1" for i in range(HEADERS_MAX_COUNT)}), "68 attributes; the limit is 64"),
            (structured(data="x" * EVENT_MAX_BYTES), "bytes; the limit is 1,000,000"),
        ],
    )
    def test_malformed_payloads(self, payload: bytes, says: str) -> None:
        with pytest.raises(InvalidEvent, match=says):
            from_message({}, payload)

    @pytest.mark.parametrize("format_", ["application/cloudevents-batch+json", "application/cloudevents+avro"])
    def test_other_formats(self, format_: str) -> None:
        with pytest.raises(InvalidEvent, match="header content-type"):
            from_message({"Content-Type": format_}, b"[]")

    def test_binary_data_travel_as_base64(self) -> None:
        for content_type in ("application/octet-stream", None):
            envelope = msgspec.structs.replace(FULL, data=b"\x00\xff", datacontenttype=content_type)
            assert json.loads(to_structured(envelope))["data_base64"] == "AP8="
            assert from_message({}, to_structured(envelope)) == envelope

    def test_declared_json_that_is_none_does_not_leave(self) -> None:
        with pytest.raises(InvalidEvent, match="declared application/json but are not JSON"):
            to_structured(msgspec.structs.replace(FULL, data=b"{"))


def as_http(headers: Mapping[str, str]) -> dict[str, str]:
    """The one thing in which HTTP and NATS differ: HTTP has a header of its own for the content type."""
    return {("content-type" if name == "ce-datacontenttype" else name): value for name, value in headers.items()}


class TestOfficialSdk:
    """The SDK knows no NATS, but NATS' binary mode is HTTP's but for the content type."""

    def test_reads_our_binary_form(self) -> None:
        event = from_binary(HTTPMessage(as_http(to_headers(FULL)), FULL.data), JSONFormat())
        assert event.get_id() == "42"
        assert event.get_source() == "/desk/1"
        assert event.get_type() == "com.example.trade"
        assert event.get_subject() == FULL.subject
        assert event.get_time() == datetime(2026, 3, 1, 12, 0, 0, 500_000, UTC)
        assert event.get_dataschema() == FULL.dataschema
        assert event.get_extension("tenant") == "acme"
        assert event.get_data() == {"symbol": "IBM"}

    def test_reads_our_structured_form(self) -> None:
        message = HTTPMessage({"content-type": STRUCTURED}, to_structured(FULL))
        event = from_structured(message, JSONFormat())
        assert event.get_subject() == FULL.subject
        assert event.get_extension("sequence") == "0000000000000000007"
        assert event.get_data() == {"symbol": "IBM"}

    @pytest.mark.parametrize("write", [to_binary, sdk_to_structured])
    @pytest.mark.parametrize("data", [{"symbol": "IBM", "n": [1, None]}, b"\x00\xff"])
    def test_we_read_what_it_writes(self, write: Any, data: Any) -> None:
        content_type = "application/octet-stream" if isinstance(data, bytes) else "application/json"
        event = SdkEvent(
            attributes={
                "id": "1",
                "source": "/s",
                "type": "T",
                "specversion": "1.0",
                "time": datetime(2026, 3, 1, 12, tzinfo=UTC),
                "subject": 'Euro € 😀 "100%"',
                "datacontenttype": content_type,
                "tenant": "acme corp",
            },
            data=data,
        )
        message = write(event, JSONFormat())
        envelope = from_message(message.headers, message.body)
        assert (envelope.id, envelope.source, envelope.type) == ("1", "/s", "T")
        assert envelope.time == "2026-03-01T12:00:00Z"
        assert envelope.subject == 'Euro € 😀 "100%"'
        assert envelope.extensions == {"tenant": "acme corp"}
        assert envelope.datacontenttype == content_type
        assert (envelope.data if isinstance(data, bytes) else json.loads(envelope.data)) == data
