"""Advertisements and stream settings: durable, shared, and refused when they would break somebody."""

from __future__ import annotations

import pytest

import tutti
from tutti.runtime.catalogue import Catalogue, Stream
from tutti.testing.kit import BusKit


class Order(tutti.Event):
    number: int


class OrderWithGift(tutti.Event, type="Order", version=2):
    number: int
    gift: bool = False


class OrderOfText(tutti.Event, type="Order", version=3):
    number: str


class Moved(tutti.Event, stream="fleet"):
    metres: float


def another(bus: BusKit, **streams: Stream) -> Catalogue:
    """The catalogue of another process."""
    return Catalogue(bus.context.transport, bus.context.layout, streams)


async def test_an_advertisement_is_seen_by_others(tutti_bus: BusKit) -> None:
    await tutti_bus.advertise(Order)
    assert [known.type for known in await another(tutti_bus).types()] == ["Order"]
    assert (await another(tutti_bus).get("Order")).version == 1


async def test_an_unknown_type_names_those_that_there_are(tutti_bus: BusKit) -> None:
    await tutti_bus.advertise(Order)
    with pytest.raises(tutti.UnknownType, match="advertised types: Order"):
        await tutti_bus.describe("Ordre")


async def test_a_compatible_change_replaces_and_an_older_publisher_does_not_turn_it_back(tutti_bus: BusKit) -> None:
    await tutti_bus.advertise(Order)
    await another(tutti_bus).advertise(OrderWithGift)
    await another(tutti_bus).advertise(Order)
    assert (await tutti_bus.describe("Order")).version == 2


async def test_an_incompatible_change_is_refused_with_the_fields_that_clash(tutti_bus: BusKit) -> None:
    await tutti_bus.advertise(Order)
    with pytest.raises(tutti.TypeConflict, match="number") as raised:
        await tutti_bus.advertise(OrderOfText)
    assert raised.value.clashes == ("field `number`: its type changed from integer to string",)
    assert (await tutti_bus.describe("Order")).version == 1


async def test_publishing_needs_an_advertisement_that_fits(tutti_bus: BusKit) -> None:
    with pytest.raises(tutti.TypeNotAdvertised, match=r"bus.advertise\(Order\)"):
        await tutti_bus.publish(Order(1))
    await another(tutti_bus).advertise(Order)
    with pytest.raises(tutti.TypeConflict):
        await tutti_bus.publish(OrderOfText("1"))
    await tutti_bus.publish(Order(1))


async def test_any_cloud_event_can_only_be_received(tutti_bus: BusKit) -> None:
    with pytest.raises(tutti.DeclarationError, match="only be received"):
        await tutti_bus.advertise(tutti.CloudEvent)
    with pytest.raises(tutti.DeclarationError, match="only be received"):
        await tutti_bus.publish(tutti.CloudEvent({"id": "1", "source": "/x", "type": "a"}))


async def test_a_withdrawn_type_is_unknown_again_and_its_events_stay(tutti_bus: BusKit) -> None:
    await tutti_bus.advertise(Order)
    await tutti_bus.publish(Order(1))
    await tutti_bus.context.catalogue.withdraw("Order")
    assert await tutti_bus.types() == []
    with pytest.raises(tutti.UnknownType):
        await tutti_bus.context.catalogue.withdraw("Order")
    info = await tutti_bus.context.transport.stream_info("tutti-events-events")
    assert info is not None
    assert info.messages == 1


async def test_settings_of_a_stream_are_kept_for_everybody(tutti_bus: BusKit) -> None:
    wanted = Stream(max_age=60, full_at_bytes=10_000)
    await another(tutti_bus, fleet=wanted).advertise(Moved)
    await another(tutti_bus).ensure_stream("fleet")  # says nothing: the settings stay
    assert (await another(tutti_bus).streams())["fleet"] == wanted
    await another(tutti_bus, fleet=Stream(max_age=30)).ensure_stream("fleet")
    assert (await another(tutti_bus).streams())["fleet"] == Stream(max_age=30)


async def test_a_full_stream_refuses_rather_than_forgets(tutti_bus: BusKit) -> None:
    catalogue = another(tutti_bus, fleet=Stream(full_at_bytes=2_000))
    await catalogue.advertise(Moved)
    with pytest.raises(tutti.Refused):
        await tutti_bus.publish_many(Moved(float(metres)) for metres in range(1_000))
    info = await tutti_bus.context.transport.stream_info("tutti-events-fleet")
    assert info is not None
    assert info.first == 1
