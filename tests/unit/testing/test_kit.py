"""The bus for users' tests: it settles, remembers, and lets no pause last."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import tutti
from tutti.resources.memory import MemoryResource, MemoryStore
from tutti.testing import kit
from tutti.testing.kit import BusKit, Call

HOUR = 3_600.0


class Step(tutti.Event):
    number: int


class Stumbled(tutti.Event):
    number: int


@pytest.fixture
async def bus(tutti_bus: BusKit) -> BusKit:
    await tutti_bus.advertise(Step, Stumbled)
    return tutti_bus


async def test_settle_returns_when_everybody_has_handled_everything(bus: BusKit) -> None:
    walker, watcher = tutti.Subscriber("walker"), tutti.Subscriber("watcher")

    @walker.on(Step)
    async def walk(event: Step) -> None: ...

    @watcher.on(Step, where="number > 1")
    async def watch(event: Step) -> None: ...

    steps = [Step(n) for n in range(3)]
    async with bus.serve(walker, watcher):
        await bus.publish_many(steps)
        await bus.settle()
        assert bus.handled(walk) == steps
        assert bus.handled(watch) == bus.handled("watch") == [Step(2)]
    assert [call for call in bus.calls if call.subscriber == "watcher"] == [Call("watcher", "watch", [Step(2)], 1)]
    assert bus.handled("nobody") == []


async def test_settle_follows_what_handlers_publish(bus: BusKit) -> None:
    app = tutti.Subscriber("app")

    @app.on(Step)
    async def step(event: Step) -> None:
        await bus.publish(Step(event.number - 1) if event.number else Stumbled(0))

    @app.on(Stumbled)
    async def stumbled(event: Stumbled) -> None: ...

    async with bus.serve(app):
        await bus.publish(Step(4))
        await bus.settle()
    assert bus.handled(step) == [Step(n) for n in (4, 3, 2, 1, 0)]
    assert bus.handled(stumbled) == [Stumbled(0)]


async def test_settle_waits_for_a_handler_that_takes_its_time(bus: BusKit) -> None:
    app, begun, end = tutti.Subscriber("app"), asyncio.Event(), asyncio.Event()

    @app.on(Step)
    async def step(event: Step) -> None:
        begun.set()
        await end.wait()

    async with bus.serve(app):
        await bus.publish(Step(1))
        settling = asyncio.create_task(bus.settle())
        await asyncio.wait_for(begun.wait(), 5)
        await asyncio.wait([settling], timeout=0.05)
        assert not settling.done()
        end.set()
        await settling
    assert bus.handled(step) == [Step(1)]


async def test_settle_does_not_wait_for_ever(bus: BusKit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kit, "SETTLE_SECONDS", 0.05)
    app, end = tutti.Subscriber("app"), asyncio.Event()

    @app.on(Step)
    async def step(event: Step) -> None:
        await end.wait()

    async with bus.serve(app):
        await bus.publish(Step(1))
        with pytest.raises(TimeoutError):
            await bus.settle()
        end.set()


async def test_pauses_between_attempts_pass_on_the_clock(bus: BusKit) -> None:
    app = tutti.Subscriber("app", policy=tutti.Policy(attempts=3, backoff=tutti.Backoff(first=HOUR, most=9 * HOUR)))

    @app.on(Step)
    async def step(event: Step, delivery: tutti.Delivery) -> None:
        if delivery.attempt < 3:
            raise ValueError("not yet")

    async with bus.serve(app):
        await bus.publish(Step(1))
        await bus.settle()
    assert [(call.attempt, "not yet" in call.failure) for call in bus.calls] == [(1, True), (2, True), (3, False)]
    assert bus.handled(step) == [Step(1)]
    assert bus.clock.monotonic() >= 1.5 * HOUR  # an hour and two, each less jitter of up to half
    assert await bus.letters() == []


async def test_letters_are_what_was_given_up_oldest_first(bus: BusKit) -> None:
    app = tutti.Subscriber("app", policy=tutti.Policy(attempts=2, backoff=tutti.Backoff(first=HOUR, most=HOUR)))

    @app.on(Step)
    async def step(event: Step) -> None:
        if event.number != 2:
            raise ValueError(f"cannot take {event.number}")

    async with bus.serve(app):
        await bus.publish_many([Step(1), Step(2), Step(3)])
        await bus.settle()
    letters = await bus.letters()
    assert [(letter.subscription, letter.event_type, letter.attempts) for letter in letters] == [
        ("step", "Step", 2)
    ] * 2
    assert [f"cannot take {n}" in letter.reason for letter, n in zip(letters, (1, 3), strict=True)] == [True, True]
    assert bus.handled(step) == [Step(2)]


async def test_a_batch_that_is_not_full_does_not_keep_the_test_waiting(bus: BusKit) -> None:
    app = tutti.Subscriber("app")

    @app.on(Step, batch=tutti.Batch(most=10, wait=HOUR))
    async def steps(events: list[Step]) -> None: ...

    async with bus.serve(app):
        await bus.publish_many([Step(1), Step(2)])
        await bus.settle()
    assert [call.events for call in bus.calls] == [[Step(1), Step(2)]]
    assert bus.clock.monotonic() >= HOUR


async def test_receive_takes_what_is_there_and_moves_no_clock(bus: BusKit) -> None:
    await bus.send(Step(1), to="jobs")
    before = bus.clock.monotonic()
    message = await bus.receive("jobs", Step, wait=HOUR)
    assert message is not None
    async with message:
        assert message.event == Step(1)
    assert bus.clock.monotonic() == before


async def test_receive_waits_in_no_time_if_nothing_comes(bus: BusKit) -> None:
    assert await bus.receive("jobs", Step, wait=HOUR) is None
    assert bus.clock.monotonic() >= HOUR


async def test_receive_without_a_limit_waits_for_the_sender(bus: BusKit) -> None:
    bus.clock.call_at(HOUR, lambda: None)  # somebody else's timer: no reason to move on
    receiving = asyncio.create_task(bus.receive("jobs", Step))
    await asyncio.wait([receiving], timeout=0.05)
    assert not receiving.done()
    assert bus.clock.monotonic() == 0.0
    await bus.send(Step(1), to="jobs")
    message = await asyncio.wait_for(receiving, 5)
    assert message is not None
    async with message:
        assert message.event == Step(1)


async def test_every_kit_is_a_world_of_its_own(bus: BusKit) -> None:
    await bus.publish(Step(1))
    async with BusKit() as other:
        assert await other.types() == []
    assert len(await bus.types()) == 2


# Transactions


class Seat(tutti.Event):
    number: int


class Trip(tutti.TxType, events=[Seat]):
    to: str


class Ferry:
    """A subscriber that takes seats, and gives them back."""

    def __init__(self, *, compensatable: bool, failures: int = 0) -> None:
        self.failures = failures
        self.store = MemoryStore()
        self.seats = MemoryResource("seats", self.store)
        self.subscriber = ferry = tutti.Subscriber("ferry", resources=[self.seats])

        @ferry.join(Trip, compensatable=compensatable, early_commit=compensatable)
        async def take_part(invite: tutti.Invite[Trip]) -> bool:
            return True

        @ferry.on(Seat)
        async def take(event: Seat, tx: tutti.Branch) -> None:
            if event.number == 13:
                raise ValueError("not that one")
            (await tx.enlist(self.seats)).put(str(event.number), "taken")

        @take.compensate
        async def give_back(event: Seat, tx: tutti.Branch) -> None:
            self.failures -= 1
            if self.failures >= 0:
                raise ValueError("later")
            (await tx.enlist(self.seats)).put(str(event.number), "free")

        self.take, self.give_back = take, give_back


async def test_a_transaction_has_ended_when_the_bus_has_settled(bus: BusKit) -> None:
    ferry, watcher, seen = Ferry(compensatable=False), tutti.Subscriber("watcher"), []

    @watcher.on(Seat)
    async def watch(event: Seat) -> None:
        seen.append(event)

    await bus.advertise(Seat)
    async with bus.serve(ferry.subscriber, watcher):
        async with bus.transaction(Trip("Texel"), scope="public", census=tutti.Census(at_most=1)) as tx:
            await tx.publish(Seat(1))
            await bus.settle()
            assert (bus.handled(ferry.take), seen, ferry.store.data) == ([Seat(1)], [], {})
        await bus.settle()
        assert (seen, ferry.store.data) == ([Seat(1)], {"1": "taken"})
        assert not ferry.store.prepared


async def test_a_handler_that_raises_in_a_transaction_is_seen(bus: BusKit) -> None:
    ferry = Ferry(compensatable=False)
    await bus.advertise(Seat)
    async with bus.serve(ferry.subscriber):
        with pytest.raises(tutti.TransactionAborted, match="not that one"):
            async with bus.transaction(Trip("Texel"), census=tutti.Census(at_most=1)) as tx:
                await tx.publish(Seat(13))
        await bus.settle()
    assert [call.failure for call in bus.calls] == ["ValueError: not that one"]
    assert ferry.store.data == {}


async def test_compensators_are_seen_and_their_pauses_pass(bus: BusKit) -> None:
    ferry = Ferry(compensatable=True, failures=3)
    await bus.advertise(Seat)
    async with bus.serve(ferry.subscriber):
        async with bus.transaction(Trip("Texel"), census=tutti.Census(at_most=1)) as tx:
            await tx.publish(Seat(1))
            await bus.settle()
            assert ferry.store.data == {"1": "taken"}
            await tx.abort("changed my mind")
        await bus.settle()
    assert [call.failure for call in bus.calls if call.subscription == "give_back"] == [*["ValueError: later"] * 3, ""]
    assert bus.handled(ferry.give_back) == [Seat(1)]
    assert ferry.store.data == {"1": "free"}


def kept(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def test_no_journal_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ferry = Ferry(compensatable=False)
    async with BusKit() as bus, bus.serve(ferry.subscriber):
        await bus.advertise(Seat)
        async with bus.transaction(Trip("Texel"), census=tutti.Census(at_most=1)) as tx:
            await tx.publish(Seat(1))
        await bus.settle()
        assert kept(tmp_path)
    assert not kept(tmp_path)
