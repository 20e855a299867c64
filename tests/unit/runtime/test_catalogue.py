"""Advertisements and stream settings: durable, shared, and refused when they would break somebody."""

from __future__ import annotations

import pytest

import tutti
from tutti.model.txtype import transaction_type
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


# Transaction types


class Sale(tutti.TxType, events=[Order]):
    shop: str


class SaleWithGoods(tutti.TxType, type="Sale", events=[Order, Moved], version=2):
    shop: str


class SaleOfNothing(tutti.TxType, type="Sale", events=[], version=3):
    shop: str


async def test_a_transaction_type_is_advertised_with_its_events(tutti_bus: BusKit) -> None:
    await tutti_bus.advertise(SaleWithGoods)
    assert [known.type for known in await tutti_bus.types()] == ["Moved", "Order"]
    [known] = await another(tutti_bus).transaction_types()
    assert (known.type, known.version, known.events) == ("Sale", 2, ("Order", "Moved"))
    await another(tutti_bus).advertise_transaction(transaction_type(Sale))
    assert [one.version for one in await another(tutti_bus).transaction_types()] == [2], "the newest stays"


async def test_an_incompatible_change_of_a_transaction_type_is_refused_to_publishers_and_members(
    tutti_bus: BusKit,
) -> None:
    await tutti_bus.advertise(Sale)
    with pytest.raises(tutti.TypeConflict, match="Order was among its events"):
        await tutti_bus.advertise(SaleOfNothing)
    with pytest.raises(tutti.TypeConflict, match="Order was among its events"):
        await tutti_bus.transaction(SaleOfNothing("here")).__aenter__()
    await another(tutti_bus).check_transaction(transaction_type(SaleWithGoods))
    with pytest.raises(tutti.TypeConflict, match="Order was among its events"):
        await another(tutti_bus).check_transaction(transaction_type(SaleOfNothing))
    [known] = await another(tutti_bus).transaction_types()
    assert known.version == 1


async def test_a_subscriber_that_does_not_fit_what_is_advertised_does_not_start(tutti_bus: BusKit) -> None:
    class Narrow(tutti.TxType, type="Sale", events=[Moved], version=4):
        shop: str

    await tutti_bus.advertise(Sale)
    shop = tutti.Subscriber("shop")
    shop.enrol("shops", Narrow)

    @shop.on(Moved)
    async def move(event: Moved, tx: tutti.Branch) -> None: ...

    with pytest.raises(tutti.TypeConflict, match="the transaction type Sale was advertised before"):
        await tutti_bus.start(shop)


async def test_who_begins_a_transaction_advertises_its_type_if_nobody_did() -> None:
    async with tutti.connect("memory://") as bus:
        with pytest.raises(tutti.CensusFailed):
            await bus.transaction(Sale("here"), census=tutti.Census(within=0.01)).__aenter__()
        assert [known.type for known in await bus.context.catalogue.transaction_types()] == ["Sale"]
