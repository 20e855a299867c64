"""What is wrong about a transaction, and what its publisher and its subscribers are told: with real ones, in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import tutti
from tutti.errors import (
    CensusFailed,
    DeclarationError,
    GroupUnfit,
    InvalidEvent,
    JournalUnfit,
    TransactionAborted,
    TransactionClosed,
    TuttiError,
    TypeNotAdvertised,
)
from tutti.resources.memory import MemoryResource, MemoryStore
from tutti.resources.sqlite import SqliteResource
from tutti.testing.kit import BusKit

ONE = tutti.Census(at_most=1)

Handle = Callable[[Any, tutti.Branch], Coroutine[Any, Any, None]]


class Seat(tutti.Event):
    number: int


class Meal(tutti.Event):
    dish: str


class Unheard(tutti.Event):
    text: str


class Trip(tutti.TxType, events=[Seat, Unheard]):
    to: str


class Floor:
    """A store with one resource, and subscribers that handle seats."""

    def __init__(self, bus: BusKit) -> None:
        self.bus = bus
        self.store = MemoryStore()
        self.seats = MemoryResource("seats", self.store)

    @asynccontextmanager
    async def served(self, handle: Handle, *, declares: bool = True, **options: Any) -> AsyncIterator[None]:
        ferry = tutti.Subscriber("ferry", resources=[self.seats] if declares else [], **options)

        @ferry.join(Trip)
        async def take_part(invite: tutti.Invite[Trip]) -> bool:
            return True

        ferry.on(Seat, name="take")(handle)
        async with self.bus.serve(ferry):
            yield

    async def publish(self, event: object = Seat(1)) -> None:
        async with self.bus.transaction(Trip("Texel"), census=ONE) as tx:
            await tx.publish(event)


@pytest.fixture
async def floor(tutti_bus: BusKit) -> Floor:
    await tutti_bus.advertise(Seat, Meal)
    return Floor(tutti_bus)


# In a handler


async def test_a_handler_that_raises(floor: Floor) -> None:
    async def take(event: Seat, tx: tutti.Branch) -> None:
        (await tx.enlist(floor.seats)).put("1", "taken")
        raise LookupError("no such seat")

    async with floor.served(take):
        with pytest.raises(TransactionAborted) as raised:
            await floor.publish()
        await floor.bus.settle()
    assert "LookupError: no such seat" in raised.value.reason
    assert len(floor.bus.calls) == 1, "inside a transaction nothing is retried"
    assert floor.store.data == {}
    assert await floor.bus.letters() == []


async def test_a_handler_that_hangs(floor: Floor) -> None:
    async def take(event: Seat, tx: tutti.Branch) -> None:
        await asyncio.Event().wait()

    async with floor.served(take, policy=tutti.Policy(handler_timeout=0.05)):
        with pytest.raises(TransactionAborted, match="TimeoutError"):
            await floor.publish()


async def test_a_resource_that_is_not_declared(floor: Floor) -> None:
    async def take(event: Seat, tx: tutti.Branch) -> None:
        await tx.enlist(floor.seats)

    async with floor.served(take, declares=False):
        with pytest.raises(TransactionAborted, match="enlists 'seats', which it does not declare"):
            await floor.publish()


async def test_a_resource_that_cannot_prepare(floor: Floor, tmp_path: Path) -> None:
    stock = SqliteResource("stock", tmp_path / "stock.db")
    ferry = tutti.Subscriber("ferry", resources=[stock])

    @ferry.join(Trip)
    async def take_part(invite: tutti.Invite[Trip]) -> bool:
        return True

    @ferry.on(Seat)
    async def take(event: Seat, tx: tutti.Branch) -> None:
        await tx.enlist(stock)

    async with floor.bus.serve(ferry):
        with pytest.raises(TransactionAborted, match="enlists 'stock', which cannot prepare"):
            await floor.publish()
    await stock.close()


async def test_a_handler_that_publishes_what_the_type_does_not_name(floor: Floor) -> None:
    async def take(event: Seat, tx: tutti.Branch) -> None:
        await tx.publish(Meal("soup"))

    async with floor.served(take):
        with pytest.raises(TransactionAborted, match="Meal is not among the events of Trip: Seat, Unheard"):
            await floor.publish()


async def test_a_branch_that_outlives_its_handler(floor: Floor) -> None:
    kept: list[tutti.Branch] = []

    async def take(event: Seat, tx: tutti.Branch) -> None:
        kept.append(tx)

    async with floor.served(take):
        await floor.publish()
    with pytest.raises(TransactionClosed, match="after the handler has returned"):
        await kept[0].enlist(floor.seats)


# At the publisher


async def test_an_event_that_the_type_does_not_name(floor: Floor) -> None:
    async with floor.served(_agree):
        with pytest.raises(DeclarationError, match="Meal is not among the events of Trip: Seat, Unheard"):
            await floor.publish(Meal("soup"))


async def test_an_event_that_is_not_advertised(floor: Floor) -> None:
    async with floor.served(_agree):
        with pytest.raises(TypeNotAdvertised):
            await floor.publish(Unheard("x"))


@pytest.mark.parametrize("value", [Trip, Trip(5), Seat(1), "Texel"])  # type: ignore[arg-type]  # that is the point
async def test_what_is_no_transaction(floor: Floor, value: object) -> None:
    with pytest.raises((DeclarationError, InvalidEvent)):
        async with floor.bus.transaction(value, census=ONE):
            pytest.fail("it must not begin")


async def test_nobody_takes_part(floor: Floor) -> None:
    beginning = asyncio.ensure_future(floor.publish())
    while not beginning.done():
        await floor.bus.settle()  # the five seconds of the census pass
        await asyncio.sleep(0)
    with pytest.raises(CensusFailed, match="no transaction of Trip began"):
        await beginning


async def test_a_group_in_which_nobody_is(floor: Floor) -> None:
    with pytest.raises(GroupUnfit, match="nobody is enrolled in the group 'finance' for Trip"):
        async with floor.bus.transaction(Trip("Texel"), group="finance"):
            pytest.fail("it must not begin")


async def test_a_census_and_a_group(floor: Floor) -> None:
    with pytest.raises(DeclarationError, match="a census, or a group, not both"):
        floor.bus.transaction(Trip("Texel"), census=ONE, group="finance")


@pytest.mark.parametrize(
    "rule",
    [
        {"at_least": 3, "at_most": 2},
        {"at_most": 0},
        {"at_least": -1},
        {"within": 0},
        {"named": {"ada", "bob"}, "at_most": 1},
        {"named": "ada"},
        {"named": 5},
        {"named": [1]},
        {"at_least": "2"},
        {"at_least": None},
        {"at_most": 1.5},
        {"within": "soon"},
        {"predicate": 5},
        {"vital": 5},
    ],
)
def test_a_census_that_cannot_be_met(rule: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError, match="census"):
        tutti.Census(**rule)


async def test_a_predicate_that_raises(floor: Floor) -> None:
    def judge(offers: tuple[tutti.Offer, ...]) -> bool:
        raise ZeroDivisionError("oops")

    rule = tutti.Census(at_most=1, predicate=judge)
    async with floor.served(_agree):
        with pytest.raises(CensusFailed, match="ZeroDivisionError: oops"):
            async with floor.bus.transaction(Trip("Texel"), census=rule):
                pytest.fail("it must not begin")
    assert floor.bus.health().state == "ok"


async def test_two_databases_that_cannot_prepare(floor: Floor, tmp_path: Path) -> None:
    one, two = SqliteResource("one", tmp_path / "1.db"), SqliteResource("two", tmp_path / "2.db")
    async with floor.served(_agree):
        with pytest.raises(TransactionAborted, match="enough"):  # noqa: PT012  the block is what is tested
            async with floor.bus.transaction(Trip("Texel"), census=ONE) as tx:
                await tx.enlist(one)
                with pytest.raises(DeclarationError, match="two and one both cannot prepare"):
                    await tx.enlist(two)
                await tx.abort("enough")
                await tx.commit()
    await one.close()
    await two.close()


async def test_a_transaction_that_is_over(floor: Floor) -> None:
    async with floor.served(_agree):
        async with floor.bus.transaction(Trip("Texel"), census=ONE) as tx:
            await tx.publish(Seat(1))
        with pytest.raises(TransactionClosed):
            await tx.publish(Seat(2))
        with pytest.raises(TransactionClosed, match="is committed already"):
            await tx.abort()


@pytest.mark.parametrize(
    "options",
    [
        {"deadline": "soon"},
        {"deadline": None},
        {"deadline": float("nan")},
        {"scope": "secret"},
        {"census": 5},
        {"minimum": "two"},
        {"minimum": -1},
        {"minimum": 2},  # and the census takes one
        {"vital": "ada"},
        {"attempts": "2"},
    ],
)
async def test_what_no_transaction_can_be_begun_with(floor: Floor, options: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError):
        floor.bus.transaction(Trip("Texel"), **{"census": ONE, **options})


async def test_a_minimum_that_a_census_does_not_reach(floor: Floor) -> None:
    async with floor.served(_agree):
        beginning = asyncio.ensure_future(
            floor.bus.transaction(Trip("Texel"), census=tutti.Census(), minimum=2).__aenter__()
        )
        while not beginning.done():
            await floor.bus.settle()  # the five seconds of the census pass
            await asyncio.sleep(0)
        with pytest.raises(CensusFailed, match="1 joined, 2 were wanted"):
            await beginning


@pytest.mark.parametrize(
    "options", [{"timeout": "x"}, {"timeout": -1}, {"timeout": float("nan")}, {"timeout": None}, {"wait": "for ever"}]
)
async def test_a_commit_that_makes_no_sense(floor: Floor, options: dict[str, Any]) -> None:
    async with floor.served(_agree):
        with pytest.raises(DeclarationError):
            async with floor.bus.transaction(Trip("Texel"), census=ONE) as tx:
                await tx.commit(**options)


@pytest.mark.parametrize("reason", [5, None, "\ud800", "x" * 100_000])
async def test_an_abort_says_its_reason_whatever_that_is(floor: Floor, reason: Any) -> None:
    async with floor.served(_agree), floor.bus.transaction(Trip("Texel"), census=ONE) as tx:
        async with asyncio.timeout(5):
            await tx.abort(reason)


@pytest.mark.parametrize("resource", [5, None, "seats", MemoryResource])
async def test_what_is_no_resource(floor: Floor, resource: Any) -> None:
    async with floor.served(_agree):
        with pytest.raises(DeclarationError, match="is no resource"):
            async with floor.bus.transaction(Trip("Texel"), census=ONE) as tx:
                await tx.enlist(resource)


async def test_one_transaction_is_not_begun_twice_at_once(floor: Floor) -> None:
    async with floor.served(_agree):
        transaction = floor.bus.transaction(Trip("Texel"), census=ONE)
        async with transaction as tx:
            known = tx.id
            with pytest.raises(DeclarationError, match="has begun already"):
                await transaction.__aenter__()
            assert tx.id == known
    await floor.bus.settle()
    assert (await floor.bus.coordinator()).idle, "and nothing is left of it"


async def test_whoever_is_cancelled_at_the_end_of_its_block_has_given_up(floor: Floor) -> None:
    """It may be decided by then; if not, the members need not hold their locks until the deadline."""
    at_work = asyncio.Event()

    async def take(event: Seat, tx: tutti.Branch) -> None:
        (await tx.enlist(floor.seats)).put("1", "taken")
        at_work.set()
        await asyncio.sleep(0.05)

    async with floor.served(take):
        publishing = asyncio.ensure_future(floor.publish())
        await at_work.wait()
        for _ in range(100):  # it waits for the commit by now
            await asyncio.sleep(0)
        publishing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await publishing
        await floor.bus.settle()
        assert floor.store.data == {}
        assert (await floor.bus.coordinator()).idle


async def test_who_joined_a_census_that_failed_is_told_at_once(floor: Floor) -> None:
    ferry = tutti.Subscriber("ferry")

    @ferry.join(Trip)
    async def take_part(invite: tutti.Invite[Trip]) -> bool:
        return True

    ferry.on(Seat, name="take")(_agree)
    service = await floor.bus.start(ferry)
    with pytest.raises(CensusFailed):
        async with floor.bus.transaction(Trip("Texel"), census=tutti.Census(at_most=1, predicate=lambda _: False)):
            pytest.fail("it must not begin")
    assert await floor.bus.stop(service, grace=5.0), "it waits for nothing: its clock stands still"


class _Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize("reason", [5, None, "\ud800", "x" * 3_000_000])
async def test_a_handler_sets_abort_with_any_reason(floor: Floor, reason: Any) -> None:
    async def take(event: Seat, tx: tutti.Branch) -> None:
        tx.set_abort(reason)

    async with floor.served(take), asyncio.timeout(5):
        with pytest.raises(TransactionAborted):
            await floor.publish()


@pytest.mark.parametrize("error", [ValueError("\ud800"), ValueError("x" * 3_000_000), _Unspeakable()])
async def test_a_handler_raises_what_can_hardly_be_said(floor: Floor, error: Exception) -> None:
    async def take(event: Seat, tx: tutti.Branch) -> None:
        raise error

    async with floor.served(take), asyncio.timeout(5):
        with pytest.raises(TransactionAborted, match=type(error).__name__):
            await floor.publish()


# When it is asked who takes part


@pytest.mark.parametrize("offer", [object(), "\ud800", "x" * 1_000_000, lambda: None], ids=lambda o: type(o).__name__)
async def test_an_offer_that_cannot_travel(floor: Floor, offer: object, caplog: pytest.LogCaptureFixture) -> None:
    ferry, other = tutti.Subscriber("ferry"), tutti.Subscriber("other")

    @ferry.join(Trip)
    async def take_part(invite: tutti.Invite[Trip]) -> object:
        return offer

    @other.join(Trip, identity="other")
    async def agree(invite: tutti.Invite[Trip]) -> bool:
        return True

    @ferry.on(Seat)
    @other.on(Seat)
    async def take(event: Seat, tx: tutti.Branch) -> None: ...

    async with floor.bus.serve(ferry, other), floor.bus.transaction(Trip("Texel"), census=ONE) as tx:
        assert [member.name for member in tx.members] == ["other"]
    assert "it does not take part" in caplog.text
    assert floor.bus.health().state == "ok"


async def test_a_join_that_raises(floor: Floor, caplog: pytest.LogCaptureFixture) -> None:
    ferry, other = tutti.Subscriber("ferry"), tutti.Subscriber("other")

    @ferry.join(Trip)
    async def take_part(invite: tutti.Invite[Trip]) -> bool:
        raise ZeroDivisionError

    @other.join(Trip, identity="other")
    async def agree(invite: tutti.Invite[Trip]) -> bool:
        return True

    @ferry.on(Seat)
    @other.on(Seat)
    async def take(event: Seat, tx: tutti.Branch) -> None: ...

    async with floor.bus.serve(ferry, other), floor.bus.transaction(Trip("Texel"), census=ONE) as tx:
        assert [member.name for member in tx.members] == ["other"]
    assert "it does not take part" in caplog.text


# The journal


@pytest.mark.parametrize("place", ["mysql://here/journal", "nats://here"])
def test_a_journal_that_cannot_be_one(place: str) -> None:
    with pytest.raises(DeclarationError, match="is no place for a journal"):
        tutti.connect("memory://", journal=place)


async def test_a_journal_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "journal.sqlite").write_text("Dear diary, " * 1000)
    async with tutti.connect("memory://", journal=tmp_path) as bus:
        with pytest.raises(JournalUnfit, match=r"journal\.sqlite"):
            await bus.transaction(Trip("Texel"), census=ONE).__aenter__()


@pytest.mark.parametrize("place", ["a file", "a file/below", "a\0b", "key"])
async def test_a_journal_where_no_folder_can_be(tmp_path: Path, place: str) -> None:
    (tmp_path / "a file").write_text("x")
    (tmp_path / "key" / "journal.key").mkdir(parents=True, mode=0o700)
    async with tutti.connect("memory://", journal=tmp_path / place) as bus:
        with pytest.raises(TuttiError, match=r"journal\.key|journal's key"):
            await bus.transaction(Trip("Texel"), census=ONE).__aenter__()


async def _agree(event: Seat, tx: tutti.Branch) -> None: ...
