"""From an event to a record: ids, numbers, headers, options, and what a failure leaves behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any

import pytest

import tutti
from tutti.bus.memory import MemoryTransport
from tutti.bus.port import Record, Transport
from tutti.limits import LIFETIME_MAX_SECONDS
from tutti.model.cloudevents import from_message
from tutti.model.envelope import Envelope, publisher_of
from tutti.model.subjects import Layout, partition_of
from tutti.runtime.bus import Bus
from tutti.runtime.numbering import Numbering
from tutti.runtime.publication import Options
from tutti.runtime.publisher import checked_queue
from tutti.testing.kit import BusKit

STREAM = "tutti-events-events"


class Trade(tutti.Event):
    symbol: Annotated[str, tutti.routing]
    price: Decimal = Decimal(1)


class Keyed(tutti.Event, lifetime=60, priority=3):
    who: Annotated[str, tutti.key]


class Blink(tutti.Event, grade="best_effort"):
    number: int


@pytest.fixture
async def bus(tutti_bus: BusKit) -> BusKit:
    await tutti_bus.advertise(Trade, Keyed, Blink)
    return tutti_bus


async def stored(bus: BusKit, sequence: int) -> Record:
    record = await bus.context.transport.fetch(STREAM, sequence)
    assert record is not None
    return record


def numbers(records: list[Record]) -> list[int]:
    return [int(record.headers["ce-sequence"]) for record in records]


async def test_the_subject_names_stream_type_partition_and_routing_attributes(bus: BusKit) -> None:
    await bus.publish(Trade("BRK.B"))
    record = await stored(bus, 1)
    assert record.subject == f"tutti.event.events.Trade._.{partition_of('test')}.BRK=2EB"
    assert record.headers["ce-source"].startswith("/test/")


async def test_the_partition_of_a_keyed_event_is_that_of_its_key(bus: BusKit) -> None:
    for who in ("ada", "bob"):
        record = await stored(bus, (await bus.publish(Keyed(who))).sequence)
        assert record.subject == f"tutti.event.events.Keyed._.{partition_of(who)}"
        assert record.headers["ce-partitionkey"] == who


async def test_events_are_numbered_per_exact_subject(bus: BusKit) -> None:
    await bus.publish_many([Trade("A"), Trade("B"), Trade("A"), Trade("A")])
    assert numbers([await stored(bus, n) for n in (1, 2, 3, 4)]) == [1, 1, 2, 3]


async def test_an_id_comes_back_as_it_was_given_and_names_the_event_again(bus: BusKit) -> None:
    first = await bus.publish(Trade("A"), id="order 7/€")
    again = await bus.publish(Trade("A"), id=first.id)
    assert first.id == "order 7/€"
    assert (again.duplicate, again.sequence) == (True, first.sequence)


def on(bus: BusKit, name: str) -> Bus:
    """Another publisher on the same servers."""

    async def open_transport(layout: Layout) -> Transport:
        transport = MemoryTransport(layout, cluster=bus.cluster)
        await transport.start()
        return transport

    return Bus(open_transport, name=name, clock=bus.clock)


async def test_an_id_is_its_publisher_s_also_in_a_later_run(bus: BusKit) -> None:
    first = await bus.publish(Trade("A"), id="7")
    async with on(bus, "other") as other, on(bus, "test") as later:
        theirs = await other.publish(Trade("B"), id="7")
        again = await later.publish(Trade("A"), id="7")
    assert (theirs.id, theirs.duplicate, theirs.sequence) == ("7", False, 2)
    assert (again.duplicate, again.sequence) == (True, first.sequence)
    assert [(await stored(bus, n)).headers["ce-id"] for n in (1, 2)] == ["7", "7"]


async def test_an_id_in_a_queue_is_that_queue_s_and_its_publisher_s(bus: BusKit) -> None:
    async with on(bus, "other") as other:
        sent = [
            await publisher.send(Trade("A"), to=queue, id="7")
            for publisher, queue in ((bus, "billing"), (bus, "shipping"), (other, "billing"), (bus, "billing"))
        ]
    assert [(s.id, s.duplicate) for s in sent] == [("7", False), ("7", False), ("7", False), ("7", True)]


async def test_what_is_sent_is_in_its_queue_and_in_no_stream_of_events(bus: BusKit) -> None:
    sent = await bus.send(Trade("A"), to="billing")
    assert (sent.queue, sent.stream, sent.sequence) == ("billing", "", 1)


async def test_only_advertised_types_are_sent(bus: BusKit) -> None:
    class Unknown(tutti.Event):
        number: int

    with pytest.raises(tutti.TypeNotAdvertised, match="Unknown is not advertised"):
        await bus.send(Unknown(1), to="billing")
    assert await bus.receive("billing", wait=0.1) is None


async def test_a_repeated_event_leaves_no_hole_in_the_numbers(bus: BusKit) -> None:
    await bus.publish(Trade("A"), id="one")
    await bus.publish(Trade("A"), id="one")
    await bus.publish(Trade("A"))
    assert numbers([await stored(bus, n) for n in (1, 2)]) == [1, 2]


async def test_the_type_s_lifetime_and_priority_travel_unless_the_call_says_otherwise(bus: BusKit) -> None:
    await bus.publish(Keyed("a"))
    await bus.publish(Keyed("a"), lifetime=5, priority=0)
    plain, other = await stored(bus, 1), await stored(bus, 2)
    moments = [datetime.fromisoformat(r.headers["ce-expirytime"]).timestamp() for r in (plain, other)]
    assert [m - bus.clock.wall() for m in moments] == [60, 5]
    assert plain.headers["ce-priority"] == "3"
    assert "ce-priority" not in other.headers


async def test_what_a_handler_publishes_carries_the_trace_on(bus: BusKit) -> None:
    app, parent = tutti.Subscriber("app"), "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

    @app.on(Trade)
    async def trade(event: Trade) -> None:
        await bus.publish(Keyed(event.symbol))

    @app.on(Keyed)
    async def keyed(event: Keyed, delivery: tutti.Delivery) -> None:
        assert delivery.traceparent == parent

    async with bus.serve(app):
        await bus.publish(Trade("A"), traceparent=parent)
        await bus.settle()
    assert bus.handled(keyed) == [Keyed("A")]
    await bus.publish(Trade("B"))
    assert "ce-traceparent" not in (await stored(bus, 3)).headers


async def test_an_answer_names_its_request(bus: BusKit) -> None:
    app = tutti.Subscriber("app")

    @app.on(Trade)
    async def trade(event: Trade, delivery: tutti.Delivery) -> None:
        await delivery.reply(Blink(1))

    transport = bus.context.transport
    inbox = transport.inbox()
    listener = await transport.listen(inbox)
    async with bus.serve(app):
        await bus.context.publisher.publish(Trade("A"), Options(id="order 7/€", reply_to=inbox), 1)
        answer = await anext(aiter(listener))
        await bus.settle()
    await listener.close()
    assert from_message(answer.headers, answer.data).extensions["correlationid"] == "order 7/€"


async def test_best_effort_is_neither_stored_nor_numbered(bus: BusKit) -> None:
    listener = await bus.context.transport.listen("tutti.live.>")
    published = await bus.publish(Blink(1))
    record = await anext(aiter(listener))
    await listener.close()
    assert (published.stream, published.sequence) == ("", 0)
    assert "ce-sequence" not in record.headers
    info = await bus.context.transport.stream_info(STREAM)
    assert info is not None
    assert info.messages == 0


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"id": ""}, tutti.InvalidEvent, "id is ''"),
        ({"id": 5}, tutti.InvalidEvent, "id is 5"),
        ({"id": "x" * 40_000}, tutti.InvalidEvent, "bytes of headers"),
        ({"subject": ""}, tutti.InvalidEvent, "subject is ''"),
        ({"priority": 10}, tutti.DeclarationError, "priority is 10"),
        ({"priority": -1}, tutti.DeclarationError, "priority is -1"),
        ({"lifetime": 0}, tutti.DeclarationError, "lifetime is 0"),
        ({"lifetime": float("nan")}, tutti.DeclarationError, "lifetime is nan"),
        ({"lifetime": float("inf")}, tutti.DeclarationError, "lifetime is inf"),
        ({"grade": "at_most_once"}, tutti.DeclarationError, "'at_most_once' is unknown"),
        ({"time": datetime(2026, 1, 1)}, tutti.DeclarationError, "time zone"),  # noqa: DTZ001 the mistake that is tested
        ({"traceparent": "a\nb"}, tutti.InvalidEvent, "control character"),
        ({"attributes": {"Tenant": "x"}}, tutti.InvalidEvent, "cannot name an extension"),
        ({"attributes": {"txid": "1"}}, tutti.InvalidEvent, "reserved"),
        ({"attributes": {f"a{n}": "€" * 1000 for n in range(20)}}, tutti.InvalidEvent, "bytes of headers"),
    ],
)
async def test_options_that_cannot_work_are_refused_and_nothing_is_sent(
    bus: BusKit, options: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        await bus.publish(Trade("A"), **options)
    await bus.publish(Trade("A"))
    assert numbers([await stored(bus, 1)]) == [1]


async def test_a_key_that_no_header_can_hold_is_refused(bus: BusKit) -> None:
    with pytest.raises(tutti.InvalidEvent, match="id, key and attributes"):
        await bus.publish(Keyed("k" * 40_000))


async def test_a_lifetime_beyond_all_calendars_means_the_longest(bus: BusKit) -> None:
    class Eternal(tutti.Event, lifetime=1e18):
        number: int

    await bus.advertise(Eternal)
    await bus.publish(Eternal(1))
    end = datetime.fromisoformat((await stored(bus, 1)).headers["ce-expirytime"]).timestamp()
    assert end - bus.clock.wall() == pytest.approx(LIFETIME_MAX_SECONDS)


async def test_publish_many_takes_an_async_iterable(bus: BusKit) -> None:
    async def events() -> AsyncIterator[Trade]:
        for symbol in ("A", "B"):
            await asyncio.sleep(0)
            yield Trade(symbol)

    assert [p.sequence for p in await bus.publish_many(events())] == [1, 2]


async def test_publish_many_says_how_many_others_were_stored(bus: BusKit) -> None:
    unfit: Any = 128.5
    with pytest.raises(tutti.InvalidEvent) as raised:
        await bus.publish_many([Trade("A"), Trade("B"), Trade("C", unfit), Trade("D")])
    assert raised.value.__notes__ == ["2 other events of this call were stored"]
    info = await bus.context.transport.stream_info(STREAM)
    assert info is not None
    assert info.messages == 2


async def test_publish_many_answers_in_the_order_of_the_events(bus: BusKit) -> None:
    published = await bus.publish_many([Trade("A"), Blink(1), Trade("B"), Blink(2), Blink(3), Trade("C")])
    assert [p.sequence for p in published] == [1, 0, 2, 0, 0, 3]


async def _put(bus: BusKit, event: object, *, queued: bool, **options: Any) -> tutti.Published:
    return await (bus.send(event, to="billing", **options) if queued else bus.publish(event, **options))


@pytest.fixture(params=[False, True], ids=["published", "sent"])
def queued(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


async def test_a_failure_is_counted_and_names_the_event(bus: BusKit, queued: bool) -> None:
    transport: Any = bus.context.transport
    transport.cut()
    pending = asyncio.ensure_future(_put(bus, Trade("A"), queued=queued, id="mine", timeout=1))
    while not pending.done():
        await asyncio.sleep(0)
        if bus.clock.due is not None:
            bus.clock.advance(1)
    with pytest.raises(tutti.Refused, match=r"Trade mine is not stored: .*\n  hint: "):
        pending.result()
    transport.mend()
    assert bus.metrics.total("tutti_publish_failures_total") == 1


async def test_a_lost_answer_is_told_with_what_to_do(bus: BusKit, queued: bool) -> None:
    bus.cluster.lose_acknowledgements(1)
    with pytest.raises(tutti.OutcomeUnknown, match=r"Trade mine may be stored: .*\n  hint: .*id='mine'"):
        await _put(bus, Trade("A"), queued=queued, id="mine")
    assert bus.metrics.total("tutti_publish_failures_total") == 1
    assert (await _put(bus, Trade("A"), queued=queued, id="mine")).duplicate


def test_a_refused_number_is_given_again_if_nothing_behind_it_was_stored() -> None:
    numbering = Numbering()
    assert [numbering.take("s") for _ in range(4)] == [1, 2, 3, 4]
    numbering.give_back("s", 3)
    assert numbering.take("s") == 5
    numbering.give_back("s", 5)
    numbering.give_back("s", 4)
    assert numbering.take("s") == 3
    assert numbering.take("other") == 1


@pytest.mark.parametrize(
    ("source", "publisher"),
    [("/desk/4f", "desk"), ("/desk/4f-1", "desk"), ("https://a.example/x", "https://a.example/x"), ("desk", "desk")],
)
def test_runs_of_one_publisher_are_one_publisher(source: str, publisher: str) -> None:
    assert publisher_of(source) == publisher


@pytest.mark.parametrize("name", ["", "a.b", "a b", "replay-desk", "-x"])
def test_names_that_no_queue_can_have(name: str) -> None:
    with pytest.raises(tutti.DeclarationError):
        checked_queue(name)


async def test_the_time_of_an_event_is_the_caller_s_if_given(bus: BusKit) -> None:
    moment = datetime(2020, 2, 3, 4, 5, 6, tzinfo=UTC)
    await bus.publish(Trade("A"), time=moment)
    assert (await stored(bus, 1)).headers["ce-time"] == "2020-02-03T04:05:06Z"


@pytest.mark.parametrize("to", ["tutti.state.type.Step", "$JS.API.STREAM.PURGE.x", "_INBOX.>", "_INBOX", "any one", ""])
async def test_an_event_cannot_make_us_write_elsewhere(tutti_bus: BusKit, to: str) -> None:
    request = Envelope(id="1", source="/x", type="Step", extensions={"replyto": to})
    tutti_bus.context.publisher.reply_failure(request, "broken")  # says nothing, to nobody
    if to:
        with pytest.raises(tutti.DeclarationError, match="no inbox"):
            tutti_bus.context.publisher.reply(object(), request)
