"""Headers as text: the mapping that they stand for, and the quick way from them to an envelope."""

from __future__ import annotations

import pytest

from tutti.errors import InvalidEvent
from tutti.model.cloudevents import common_lines, from_message, numbered_headers
from tutti.model.headers import HeaderText, fields_in

TIME = "2026-11-18T10:13:09.132515Z"


def text(*lines: str) -> str:
    return "".join(f"{line}\r\n" for line in lines)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((), {}),
        (("a: 1", "b: 2"), {"a": "1", "b": "2"}),
        (("a:1", "b:"), {"a": "1", "b": ""}),
        (("a:  1", "b: \t2"), {"a": "1", "b": "2"}),
        (("a: 1", "a: 2"), {"a": "1"}),
        (("a: 1", "no colon", ": no name", ""), {"a": "1"}),
        (("a", "b: 2"), {"b": "2"}),
        (("a: b: c",), {"a": "b: c"}),
        (("a:b: c",), {"a": "b: c"}),
        (("a: ",), {"a": ""}),
    ],
)
def test_what_lines_say(lines: tuple[str, ...], expected: dict[str, str]) -> None:
    assert fields_in(text(*lines)) == expected


def test_it_is_a_mapping() -> None:
    headers = HeaderText(text("a: 1", "b: 2"))
    assert headers == {"a": "1", "b": "2"}
    same = {"a": "1", "b": "2"}
    assert same == headers
    assert (headers["a"], headers.get("c"), "b" in headers, len(headers), list(headers)) == (
        "1",
        None,
        True,
        2,
        ["a", "b"],
    )
    with pytest.raises(KeyError):
        headers["c"]


@pytest.mark.parametrize("source", ["/publisher/run-1", "/a b/ü", "urn:x:%"])
@pytest.mark.parametrize("kind", ["TradeDone", "com.example.done", "größer"])
def test_the_quick_way_and_the_slow_way_agree(source: str, kind: str) -> None:
    headers = numbered_headers(common_lines(source, kind), "p", "run-17", TIME, "0000000000000000004")
    quick = from_message(headers, b"{}")
    assert quick == from_message(dict(headers), b"{}")
    assert (quick.id, quick.source, quick.type, quick.time) == ("run-17", source, kind, TIME)
    assert quick.extensions == {"sequence": "0000000000000000004"}
    batched = HeaderText(headers.text + text("Nats-Batch-Id: 0a1b", "Nats-Batch-Sequence: 7"))
    assert from_message(batched, b"{}") == quick


@pytest.mark.parametrize(
    "change",
    [
        ("ce-specversion: 1.0", "ce-specversion: 0.3"),
        ("ce-time: 2026", "ce-time: soon"),
        ("ce-id: run-17", "ce-id: "),
        ("ce-id: run-17", "ce-id: run%2017"),
        ("ce-source: /p/1", "ce-source: ce-id: 5"),
        ("ce-source: /p/1\r\n", ""),
        ("ce-sequence: 4", "ce-sequence: 4\r\nce-priority: 3"),
        ("ce-type: Done", "ce-type: Done\r\nce-subject: s"),
        ("ce-type: Done", "ce-type: Done\r\nce-type: Other"),
        ("ce-type: Done", "Ce-Type: Done"),
        ("Nats-Msg-Id: p/run-17\r\n", ""),
    ],
)
def test_other_headers_go_the_slow_way(change: tuple[str, str]) -> None:
    headers = HeaderText(numbered_headers(common_lines("/p/1", "Done"), "p", "run-17", TIME, "4").text.replace(*change))
    assert outcome(headers) == outcome(dict(headers))


def outcome(headers: HeaderText | dict[str, str]) -> object:
    try:
        return from_message(headers, b"{}")
    except InvalidEvent as error:
        return str(error)
