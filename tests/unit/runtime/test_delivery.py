"""What a handler learns about its event."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

import tutti
from tutti.bus.port import Record
from tutti.model.envelope import Envelope
from tutti.runtime.delivery import Delivery


def delivery(answers: list[tuple[object, Envelope]], **extensions: str) -> Delivery:
    envelope = Envelope(
        id="7", source="/desk/1", type="Trade", time="2026-01-02T03:04:05.5Z", subject="IBM", extensions=extensions
    )
    record = Record("tutti.event.events.Trade._.3", {}, b"{}", 42)
    return Delivery(record, envelope, lambda event, request: answers.append((event, request)))


def test_a_delivery_shows_the_envelope() -> None:
    found = delivery([], traceparent="00-a-b-01", tenant="blue")
    assert found.source == "/desk/1"
    assert (found.id, found.type, found.publisher, found.sequence, found.attempt) == ("7", "Trade", "desk", 42, 1)
    assert found.time == datetime(2026, 1, 2, 3, 4, 5, 500_000, tzinfo=UTC)
    assert found.traceparent == "00-a-b-01"
    assert found.attributes["tenant"] == "blue"
    assert found.attributes["subject"] == "IBM"
    assert "Trade 7 from desk" in repr(found)


async def test_a_request_can_be_answered() -> None:
    answers: list[tuple[object, Envelope]] = []
    found = delivery(answers, replyto="_INBOX.x")
    assert found.wants_reply
    await found.reply("yes")
    assert answers == [("yes", found.envelope)]


async def test_what_was_only_published_cannot_be_answered() -> None:
    found = delivery([])
    assert not found.wants_reply
    with pytest.raises(tutti.DeclarationError, match="nobody waits for a reply"):
        await found.reply("yes")
