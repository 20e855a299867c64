"""Where a transaction's events are, and the manifests of those that have very many."""

from __future__ import annotations

import pytest

import tutti
from tests.unit.runtime.transactions.staged import Office
from tutti.bus.port import StreamSpec
from tutti.errors import Gone, InvalidMessage
from tutti.limits import TRANSACTION_EVENTS_MAX_COUNT
from tutti.model.status import InlineEvents, ManifestEvents, Span, named, spans_of
from tutti.runtime.catalogue import Catalogue
from tutti.runtime.transactions.log import TransactionLog, count_named, transaction_streams
from tutti.testing.kit import BusKit


class Invited(tutti.Event):
    number: int


class Booked(tutti.Event, stream="rooms"):
    number: int


MANY = spans_of({"events": range(1, 40_000, 2), "rooms": [7]})  # more than a status holds


@pytest.fixture
async def log(tutti_bus: BusKit) -> TransactionLog:
    await tutti_bus.advertise(Invited, Booked)
    context = tutti_bus.context
    return TransactionLog(context.transport, context.layout, context.catalogue.streams)


async def test_a_transactions_events_are_found_in_every_stream_and_no_others(
    tutti_bus: BusKit, office: Office, log: TransactionLog
) -> None:
    ours, others = await office.begin(), await office.begin()
    await tutti_bus.publish(Invited(0))
    await ours.publish(Invited(1), Booked(1))
    await others.publish(Invited(2))
    await ours.publish(Invited(3))
    assert await log.events_of(ours.tx) == ours.sequences == {"events": {2, 4}, "rooms": {1}}
    assert await log.events_of(ours.tx, ["rooms"]) == {"rooms": {1}}
    assert await log.events_of("nobody-r1-1") == {}


async def test_streams_that_are_not_there_hold_nothing(log: TransactionLog) -> None:
    assert await log.events_of("nobody-r1-1", ["elsewhere"]) == {}


async def test_few_events_need_no_manifest(log: TransactionLog) -> None:
    assert await log.publish_manifests("j-r1-1", spans_of({"events": range(1, 1_000, 2)})) == ()
    assert await log.named_by(InlineEvents((Span("events", ((1, 5),)),))) == (Span("events", ((1, 5),)),)


async def test_manifests_come_back_as_they_were(log: TransactionLog) -> None:
    references = await log.publish_manifests("j-r1-1", MANY)
    assert len(references) > 2
    events = named(MANY, references)
    assert await log.named_by(events) == MANY
    assert count_named(events) == 20_001


async def test_the_same_manifests_again_are_the_same_records(log: TransactionLog) -> None:
    assert await log.publish_manifests("j-r1-1", MANY) == await log.publish_manifests("j-r1-1", MANY)


async def test_a_manifest_that_is_gone_or_spoilt_is_never_taken_for_less(
    tutti_bus: BusKit, log: TransactionLog
) -> None:
    transport, layout = tutti_bus.context.transport, tutti_bus.context.layout
    references = await log.publish_manifests("j-r1-1", MANY)
    events = named(MANY, references)
    assert isinstance(events, ManifestEvents)
    with pytest.raises(InvalidMessage, match="or other ones"):
        await log.named_by(ManifestEvents(references[1:], events.count, events.digest))
    stored = await transport.append(layout.manifest("j-r1-1"), {}, b"?", timeout=1.0)
    spoilt = (*references[:-1], type(references[0])(stored.stream, stored.sequence))
    with pytest.raises(InvalidMessage, match="unreadable"):
        await log.named_by(ManifestEvents(spoilt, events.count, events.digest))
    await transport.remove(references[0].stream, references[0].sequence)
    with pytest.raises(Gone, match="manifest 1"):
        await log.named_by(events)


async def test_more_events_than_there_are_numbers_are_refused(log: TransactionLog) -> None:
    with pytest.raises(InvalidMessage, match="the limit is"):
        await log.publish_manifests("j-r1-1", (Span("events", ((1, TRANSACTION_EVENTS_MAX_COUNT + 1),)),))


async def test_a_stream_from_before_there_were_transactions_takes_them_now(tutti_bus: BusKit) -> None:
    context = tutti_bus.context
    spec = StreamSpec(context.layout.event_stream("old"), (context.layout.event_subjects("old"),))
    await context.transport.ensure_stream(spec)
    await Catalogue(context.transport, context.layout, {}).ensure_stream("old")
    info = await context.transport.stream_info(spec.name)
    assert info is not None
    assert info.subjects == ("tutti.event.old.>", "tutti.tx.old.>")


async def test_every_bus_has_the_streams_of_transactions(tutti_bus: BusKit) -> None:
    there = await tutti_bus.context.transport.stream_names()
    assert {spec.name for spec in transaction_streams(tutti_bus.context.layout, 1)} <= set(there)
