"""Holes in a publisher's numbers: proven in the log before they are reported."""

from __future__ import annotations

import asyncio

import pytest

import tutti
from tutti.errors import Gone
from tutti.flow.continuity import Gap, Unproven
from tutti.limits import LOOK_BACK_MAX_COUNT
from tutti.runtime.lookback import LookBack
from tutti.testing.kit import BusKit

STREAM = "tutti-events-events"
LABELS = {"subscriber": "app", "subscription": "step"}


class Step(tutti.Event):
    number: int


@pytest.fixture
async def bus(tutti_bus: BusKit) -> BusKit:
    await tutti_bus.advertise(Step)
    await tutti_bus.publish_many([Step(n) for n in range(1, 6)])
    return tutti_bus


async def seen_first(bus: BusKit, sequence: int) -> LookBack:
    """What it finds when our first sight of the publisher is the event at this place."""
    record = await bus.context.transport.fetch(STREAM, sequence)
    assert record is not None
    look_back = LookBack(bus.context, STREAM, LABELS)
    number = int(record.headers["ce-sequence"])
    look_back.notice(record, Unproven(record.headers["ce-source"], record.subject, number))
    for _ in range(100):
        await asyncio.sleep(0)
    look_back.close()
    return look_back


async def test_the_events_before_our_time_are_not_missing(bus: BusKit) -> None:
    assert (await seen_first(bus, 4)).gaps == []


async def test_what_was_lost_before_our_time_is_found(bus: BusKit) -> None:
    bus.cluster.lose(STREAM, 2)
    bus.cluster.lose(STREAM, 3)
    (gap,) = (await seen_first(bus, 4)).gaps
    assert (gap.first_missing, gap.last_missing) == (2, 3)
    assert bus.metrics.total("tutti_missing_total") == 2


async def test_what_was_lost_from_the_very_beginning_is_found(bus: BusKit) -> None:
    async with _other(bus) as other:
        await other.publish(Step(6))  # sequence 6: number 1 of another publisher
        await other.publish(Step(7))
    bus.cluster.lose(STREAM, 6)
    (gap,) = (await seen_first(bus, 7)).gaps
    assert (gap.first_missing, gap.last_missing) == (1, 1)


async def test_what_was_purged_is_not_missing(bus: BusKit) -> None:
    await bus.context.transport.purge(STREAM, below=4)
    assert (await seen_first(bus, 4)).gaps == []


async def test_a_gap_is_reported_at_once_and_with_words(bus: BusKit, caplog: pytest.LogCaptureFixture) -> None:
    record = await bus.context.transport.fetch(STREAM, 5)
    assert record is not None
    look_back = LookBack(bus.context, STREAM, LABELS)
    look_back.notice(record, Gap("/a/1", "s", 2, 4))
    assert "app.step: events 2 to 4 of /a/1 on s are missing from the log before sequence 5" in caplog.text
    look_back.lost(Gone("records 1 to 9 were purged"))
    assert "records 1 to 9 were purged" in caplog.text
    assert bus.metrics.total("tutti_missing_total") == 4


async def test_only_so_many_gaps_are_remembered(bus: BusKit) -> None:
    record = await bus.context.transport.fetch(STREAM, 5)
    assert record is not None
    look_back = LookBack(bus.context, STREAM, LABELS)
    for number in range(LOOK_BACK_MAX_COUNT + 10):
        look_back.notice(record, Gap("/a/1", "s", number, number))
    assert len(look_back.gaps) <= LOOK_BACK_MAX_COUNT + 1
    assert look_back.gaps[-1].last_missing == LOOK_BACK_MAX_COUNT + 9


def _other(bus: BusKit) -> BusKit:
    other = BusKit(name="test")  # the same partition: the same subject
    other.cluster = bus.cluster
    return other
