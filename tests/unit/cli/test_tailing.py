from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from decimal import Decimal

import pytest

import tutti
from tests.unit.cli.conftest import MemorySession
from tests.unit.cli.trading import TradeDone
from tutti.bus.port import FromEarliest, FromLatest, FromSequence, FromTime, Start
from tutti.cli.output import ConsoleOutput
from tutti.cli.tailing import TailSettings, nobody_reads, parse_start, tail_events
from tutti.errors import DeclarationError, FilterError, UnknownType

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


class Quote(tutti.Event, stream="quotes", grade="best_effort"):
    symbol: str


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("latest", FromLatest()),
        ("Earliest", FromEarliest()),
        ("17", FromSequence(17)),
        ("90s", FromTime(NOW.timestamp() - 90)),
        ("1.5h", FromTime(NOW.timestamp() - 5400)),
        ("36500d", FromTime(0.0)),
        ("2026-01-31T11:00:00Z", FromTime(NOW.timestamp() - 3600)),
        ("2026-01-31T13:00:00+02:00", FromTime(NOW.timestamp() - 3600)),
    ],
)
def test_places_in_the_log(text: str, start: Start) -> None:
    assert parse_start(text, NOW) == start


@pytest.mark.parametrize(
    "text", ["", "0", "-3", "yesterday", "5 minutes", "2026-13-01", "999999999999d", "9" * 400 + "d", str(10**23)]
)
def test_other_places_are_refused(text: str) -> None:
    with pytest.raises(DeclarationError, match="is no place in the log"):
        parse_start(text, NOW)


async def filled(session: MemorySession) -> None:
    async with session.bus(name="london") as bus:
        await bus.advertise(TradeDone)
        for price in ("9", "101", "20", "150"):
            await bus.publish(TradeDone("IBM", Decimal(price)), id=f"t-{price}")


async def test_the_filter_knows_what_the_fields_are(session: MemorySession) -> None:
    await filled(session)
    await tail_events(session, TailSettings(where="price > 50", start="earliest", count=2))
    assert [event.id for event in session.answers.shown] == ["t-101", "t-150"]  # as texts, '9' would be above '50'
    first = session.answers.shown[0]
    assert (first.type, first.stream, first.sequence) == ("TradeDone", "events", 2)
    assert first.data == {"symbol": "IBM", "price": "101", "quantity": 1}


async def test_what_does_not_fit_is_shown_with_the_reason_and_nothing_is_written(session: MemorySession) -> None:
    await filled(session)
    async with session.bus() as bus:
        subject = bus.context.layout.event("events", "TradeDone", "_", "0", ("IBM",))
        headers = {"ce-specversion": "1.0", "ce-id": "bad", "ce-source": "/x", "ce-type": "TradeDone"}
        await bus.context.transport.append(subject, headers, b'{"symbol":"IBM","price":"much"}', timeout=1)
        await bus.context.transport.append(subject, {"content-type": "text/plain"}, b"\xff what", timeout=1)
        await tail_events(session, TailSettings(start="5", count=2))
        assert [letter async for letter in bus.dead.each()] == []
        assert await bus.context.transport.state_list("subscription") == []
    wrong, no_event = session.answers.shown
    assert "price" in wrong.invalid
    assert "specversion" in no_event.invalid
    assert no_event.data == "\\xff what"


async def test_it_follows_new_streams_and_hears_best_effort_events(
    session: MemorySession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tutti.cli.tailing.LOOK_SECONDS", 0.01)
    async with session.bus(name="london") as bus:
        following = asyncio.create_task(tail_events(session, TailSettings(count=2)))
        while not session.answers.notes:
            await asyncio.sleep(0)
        await bus.advertise(TradeDone, Quote)
        await bus.publish(TradeDone("IBM", Decimal(1)))
        while not session.answers.shown:  # the stream is found, so the wire was listened to before
            await asyncio.sleep(0.01)
        await bus.publish(Quote("SAP"))
        await following
    assert [(event.type, event.sequence) for event in session.answers.shown] == [("TradeDone", 1), ("Quote", 0)]


async def test_one_type_is_read_alone(session: MemorySession) -> None:
    await filled(session)
    async with session.bus() as bus:
        await bus.advertise(Quote)
        await bus.publish(Quote("SAP"), grade="at_least_once")
    await tail_events(session, TailSettings(type="Quote", start="earliest", count=1))
    assert [event.type for event in session.answers.shown] == ["Quote"]


def test_a_reader_that_has_left_is_noticed() -> None:
    read_end, write_end = os.pipe()
    assert not nobody_reads(write_end)
    os.close(read_end)
    assert nobody_reads(write_end)
    os.close(write_end)


async def test_mistakes_are_said_before_anything_is_read(session: MemorySession) -> None:
    with pytest.raises(FilterError):
        await tail_events(session, TailSettings(where="price >"))
    with pytest.raises(UnknownType):
        await tail_events(session, TailSettings(type="Nothing"))


async def test_an_event_fits_on_a_line(session: MemorySession, capsys: pytest.CaptureFixture[str]) -> None:
    await filled(session)
    await tail_events(session, TailSettings(start="earliest", count=1))
    ConsoleOutput().show(session.answers.shown[0])
    line = capsys.readouterr().out
    assert line.count("\n") == 1
    assert "TradeDone london symbol=IBM price=9 quantity=1   t-9 #1" in line
