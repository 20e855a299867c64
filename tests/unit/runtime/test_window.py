"""What `publish_many` has under way: rows that are confirmed as one, and what breaks them up."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

import pytest

import tutti
from tutti.bus.port import Stored
from tutti.errors import OutcomeUnknown, Refused
from tutti.model.event import event_type
from tutti.runtime.numbering import Numbering
from tutti.runtime.publication import Published
from tutti.runtime.window import Row, Sent, Window
from tutti.testing.kit import BusKit

REFUSED = Refused("no room", hint="wait")


class Trade(tutti.Event):
    symbol: Annotated[str, tutti.routing]
    price: int = 1


class Cash(tutti.Event):
    amount: int


class Bench:
    """Remembers what it was asked to judge."""

    def __init__(self) -> None:
        self.singles: list[str] = []
        self.rows: list[int] = []
        self.left: list[str] = []

    async def settled(self, sent: Sent) -> Published:
        self.singles.append(sent.id)
        stored = await asyncio.shield(sent.stored)
        return Published(sent.id, "events", stored.sequence, stored.duplicate)

    def confirmed_row(self, row: Row) -> None:
        self.rows.append(len(row))

    def leave(self, sent: Sent) -> None:
        self.left.append(sent.id)


def row(*ids: str) -> tuple[Row, Sequence[asyncio.Future[Stored]]]:
    futures = [asyncio.get_running_loop().create_future() for _ in ids]
    numbers = list(range(1, len(ids) + 1))
    return Row(event_type(Cash), ids, ["s"] * len(ids), numbers, Numbering(), 0.0, futures), futures


def answer(futures: Sequence[asyncio.Future[Stored]], first: int = 1, *, duplicate: bool = False) -> None:
    for sequence, future in enumerate(futures, first):
        future.set_result(Stored("log", sequence, duplicate))


async def test_a_row_that_is_plainly_stored_is_confirmed_as_one() -> None:
    bench = Bench()
    window = Window(bench)
    sent, futures = row("a", "b")
    window.add(sent)
    assert len(window) == 2
    answer(futures)
    await window.settle(10)
    assert (len(window), bench.rows, bench.singles) == (0, [2], [])
    assert window.results == [Published("a", "events", 1), Published("b", "events", 2)]


async def test_it_waits_only_while_too_many_are_under_way() -> None:
    window = Window(Bench())
    first, early = row("a", "b")
    second, late = row("c")
    window.add(first)
    window.add(second)
    await window.settle(3)
    assert len(window) == 3
    asyncio.get_running_loop().call_soon(answer, early)
    await window.settle(2)
    assert len(window) == 1
    answer(late, 3)
    await window.settle(0)
    assert [published.sequence for published in window.results] == [1, 2, 3]


async def test_what_is_not_plain_is_judged_one_by_one() -> None:
    bench = Bench()
    window = Window(bench)
    sent, futures = row("a", "b", "c")
    window.add(sent)
    answer(futures[:1], 1)
    answer(futures[1:], 2, duplicate=True)
    await window.settle(0)
    assert (bench.rows, bench.singles) == ([], ["a", "b", "c"])
    assert [published.duplicate for published in window.results] == [False, True, True]


async def test_an_answer_that_is_overtaken_is_waited_for() -> None:
    bench = Bench()
    window = Window(bench)
    sent, futures = row("a", "b")
    window.add(sent)
    answer(futures[1:], 2)
    asyncio.get_running_loop().call_soon(answer, futures[:1], 3)
    await window.settle(0)
    assert [(published.id, published.sequence) for published in window.results] == [("a", 3), ("b", 2)]


async def test_a_failure_comes_out_and_the_rest_is_counted() -> None:
    window = Window(Bench())
    before, early = row("a")
    sent, futures = row("b", "c", "d")
    window.add(before)
    window.add(sent)
    window.add(Published("live"))
    answer(early)
    answer(futures[1:], 2)
    futures[0].set_exception(REFUSED)
    with pytest.raises(Refused):
        await window.settle(0)
    assert await window.stored_in_the_end() == 3


async def test_whoever_is_cancelled_leaves_all_that_is_under_way() -> None:
    bench = Bench()
    window = Window(bench)
    sent, _ = row("a", "b")
    window.add(sent)
    window.add(Published("live"))
    waiting = asyncio.get_running_loop().create_task(window.settle(0))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    window.leave()
    assert bench.left == ["a", "b"]


# Through the publisher


@pytest.fixture
async def bus(tutti_bus: BusKit) -> BusKit:
    await tutti_bus.advertise(Trade, Cash)
    return tutti_bus


async def numbers(bus: BusKit, count: int) -> list[tuple[str, int]]:
    found = []
    for sequence in range(1, count + 1):
        record = await bus.context.transport.fetch("tutti-events-events", sequence)
        assert record is not None
        found.append((record.subject.rsplit(".", 1)[-1], int(record.headers["ce-sequence"])))
    return found


async def test_rows_and_single_events_look_the_same_in_the_log(bus: BusKit) -> None:
    events = [Trade("a"), Trade("b.c"), Trade("a")]
    listed = await bus.publish_many(events)
    given = await bus.publish_many(event for event in events)
    assert [published.sequence for published in (*listed, *given)] == [1, 2, 3, 4, 5, 6]
    assert await numbers(bus, 6) == [("a", 1), ("b=2Ec", 1), ("a", 2), ("a", 3), ("b=2Ec", 2), ("a", 4)]
    first, fourth = [await bus.context.transport.fetch("tutti-events-events", sequence) for sequence in (1, 4)]
    assert first is not None
    assert fourth is not None
    assert list(first.headers) == list(fourth.headers)
    assert first.headers["Nats-Msg-Id"].endswith("/" + listed[0].id)


async def test_events_of_several_types_keep_their_order(bus: BusKit) -> None:
    published = await bus.publish_many([Trade("a"), Cash(1), Trade("a")])
    assert [one.sequence for one in published] == [1, 2, 3]


async def test_what_stands_before_a_wrong_event_is_sent(bus: BusKit) -> None:
    events = [Trade("a"), Trade("b", price="high"), Trade("c")]  # type: ignore[arg-type]  # that is the point
    with pytest.raises(tutti.InvalidEvent) as caught:
        await bus.publish_many(events)
    assert caught.value.__notes__ == ["1 other events of this call were stored"]


async def test_a_row_in_doubt_is_told_of(bus: BusKit) -> None:
    await bus.publish_many([Cash(0)])
    bus.cluster.lose_acknowledgements(1)
    with pytest.raises(OutcomeUnknown, match="may be stored") as caught:
        await bus.publish_many([Cash(1), Cash(2)])
    assert caught.value.__notes__ == ["1 other events of this call were stored"]
    await bus.publish_many([Cash(3)])
    assert [number for _, number in await numbers(bus, 4)] == [1, 2, 3, 4]  # the doubtful one's is not given again
