"""Messages of queues: each is handled by one taker, or dead-lettered; none is lost."""

from __future__ import annotations

import asyncio

import pytest

import tutti
from tutti.runtime.dead import DeadLetter, DeadLetters
from tutti.testing.kit import BusKit


class Invoice(tutti.Event):
    number: int


class Refund(tutti.Event):
    number: int


class Other(tutti.Event):
    number: int


@pytest.fixture(autouse=True)
async def advertised(tutti_bus: BusKit) -> None:
    await tutti_bus.advertise(Invoice, Refund, Other)


async def stray(bus: BusKit, queue: str, data: bytes = b"zz", headers: dict[str, str] | None = None) -> None:
    """Somebody else's message in our queue."""
    await bus.context.transport.append(f"tutti.queue.{queue}.x", headers or {"ce-id": "1"}, data, timeout=1)


async def test_several_types_in_one_queue_go_to_their_handlers(tutti_bus: BusKit) -> None:
    app = tutti.Subscriber("app")

    @app.on(Invoice, queue="billing")
    async def invoice(event: Invoice) -> None: ...

    @app.on(Refund, queue="billing")
    async def refund(event: Refund) -> None: ...

    async with tutti_bus.serve(app):
        for number in range(3):
            await tutti_bus.send(Invoice(number), to="billing")
            await tutti_bus.send(Refund(number), to="billing")
        await tutti_bus.settle()
    assert tutti_bus.handled(invoice) == [Invoice(n) for n in range(3)]
    assert tutti_bus.handled(refund) == [Refund(n) for n in range(3)]


async def test_filters_divide_a_queue_and_what_none_takes_is_dead_lettered(tutti_bus: BusKit) -> None:
    app = tutti.Subscriber("app")

    @app.on(Invoice, queue="billing", where="number < 10")
    async def small(event: Invoice) -> None: ...

    @app.on(Invoice, queue="billing", where="number > 99")
    async def large(event: Invoice) -> None: ...

    async with tutti_bus.serve(app):
        for number in (1, 50, 100):
            await tutti_bus.send(Invoice(number), to="billing")
        await tutti_bus.send(Other(1), to="billing")
        await tutti_bus.settle()
    assert (tutti_bus.handled(small), tutti_bus.handled(large)) == ([Invoice(1)], [Invoice(100)])
    reasons = [letter.reason for letter in await tutti_bus.letters()]
    assert reasons == [f"no handler takes {kind} from the queue 'billing'" for kind in ("Invoice", "Other")]


async def test_a_failing_handler_gets_it_again_and_then_it_is_buried(tutti_bus: BusKit) -> None:
    app = tutti.Subscriber("app", policy=tutti.Policy(attempts=3))

    @app.on(Invoice, queue="billing")
    async def invoice(event: Invoice, delivery: tutti.Delivery) -> None:
        raise ValueError(f"attempt {delivery.attempt}")

    async with tutti_bus.serve(app):
        await tutti_bus.send(Invoice(1), to="billing")
        await tutti_bus.settle()
    (letter,) = await tutti_bus.letters()
    assert (letter.reason, letter.attempts, letter.subscription) == ("ValueError: attempt 3", 3, "invoice")
    assert [call.attempt for call in tutti_bus.calls] == [1, 2, 3]


async def test_an_unreadable_message_takes_no_batch_with_it(tutti_bus: BusKit) -> None:
    app = tutti.Subscriber("app")

    @app.on(Invoice, queue="billing", batch=tutti.Batch(most=10))
    async def invoices(events: list[Invoice]) -> None: ...

    await tutti_bus.send(Invoice(1), to="billing")
    await stray(tutti_bus, "billing")
    await tutti_bus.send(Invoice(2), to="billing")
    async with tutti_bus.serve(app):
        await tutti_bus.settle()
    assert tutti_bus.handled(invoices) == [Invoice(1), Invoice(2)]
    assert ["specversion" in letter.reason for letter in await tutti_bus.letters()] == [True]


async def test_a_message_whose_lifetime_ended_is_neither_handled_nor_received(tutti_bus: BusKit) -> None:
    app = tutti.Subscriber("app")

    @app.on(Invoice, queue="billing")
    async def invoice(event: Invoice) -> None: ...

    for queue in ("billing", "by-hand"):
        await tutti_bus.send(Invoice(1), to=queue, lifetime=5)
        await tutti_bus.send(Invoice(2), to=queue)
    tutti_bus.clock.advance(6)
    async with tutti_bus.serve(app):
        await tutti_bus.settle()
    assert tutti_bus.handled(invoice) == [Invoice(2)]
    received = await tutti_bus.receive("by-hand", Invoice, wait=1)
    assert received is not None
    assert received.event == Invoice(2)
    assert tutti_bus.metrics.total("tutti_expired_total") == 2


async def test_receive_buries_what_it_cannot_read_and_goes_on(tutti_bus: BusKit) -> None:
    await stray(tutti_bus, "by-hand")
    await tutti_bus.send(Invoice(1), to="by-hand")
    received = await tutti_bus.receive("by-hand", Invoice, wait=1)
    assert received is not None
    assert received.event == Invoice(1)
    (letter,) = await tutti_bus.letters()
    assert (letter.subscriber, letter.payload) == ("by-hand", b"zz")
    await tutti_bus.dead.replay(letter.number)
    await received.done()
    assert await tutti_bus.receive("by-hand", Invoice, wait=0.1) is None  # it is as unreadable as before
    assert [letter.payload for letter in await tutti_bus.letters()] == [b"zz"]


async def test_a_block_that_raises_hands_the_message_back(tutti_bus: BusKit) -> None:
    await tutti_bus.send(Invoice(1), to="billing")
    for attempt in (1, 2):
        message = await tutti_bus.receive("billing", Invoice, wait=1)
        assert message is not None
        assert (message.event, message.attempt) == (Invoice(1), attempt)
        if attempt == 1:
            with pytest.raises(ValueError, match="no"):
                async with message:
                    raise ValueError("no")
        else:
            async with message:
                pass
    assert await tutti_bus.receive("billing", Invoice, wait=0.1) is None


async def test_a_message_stays_ours_while_its_block_runs(tutti_bus: BusKit) -> None:
    await tutti_bus.send(Invoice(1), to="billing")
    message = await tutti_bus.receive("billing", Invoice, wait=1)
    assert message is not None
    async with message:
        for _ in range(10):
            tutti_bus.clock.advance(1)
            await asyncio.sleep(0.001)
        assert not await tutti_bus.context.transport.take("billing", wait=0)
    assert tutti_bus.clock.due is None
    assert not await tutti_bus.context.transport.take("billing", wait=0)


async def test_what_the_block_itself_says_of_a_message_counts(tutti_bus: BusKit) -> None:
    await tutti_bus.send(Invoice(1), to="billing")
    message = await tutti_bus.receive("billing", Invoice, wait=1)
    assert message is not None
    async with message:
        await message.hand_back()
    again = await tutti_bus.receive("billing", Invoice, wait=1)
    assert again is not None
    assert again.attempt == 2


async def test_a_type_without_a_class_here_is_received_as_it_comes(tutti_bus: BusKit) -> None:
    await tutti_bus.send(Refund(3), to="billing")
    message = await tutti_bus.receive("billing", Invoice, wait=1)
    assert message is not None
    assert isinstance(message.event, tutti.CloudEvent)
    assert (message.event.type, message.event.data) == ("Refund", {"number": 3})


async def test_a_message_that_is_no_letter_does_not_stop_the_replays(tutti_bus: BusKit) -> None:
    app, mended = tutti.Subscriber("app", policy=tutti.Policy(attempts=1)), False

    @app.on(Invoice)
    async def invoice(event: Invoice) -> None:
        if not mended:
            raise ValueError("broken")

    await stray(tutti_bus, "replay-app")
    async with tutti_bus.serve(app):
        await tutti_bus.publish(Invoice(1))
        await tutti_bus.settle()
        mended = True
        await tutti_bus.dead.replay((await tutti_bus.letters())[0].number)
        await tutti_bus.settle()
        assert tutti_bus.health().state == "ok"
    assert tutti_bus.handled(invoice) == [Invoice(1)]


async def test_a_replay_is_handled_though_its_lifetime_has_ended(tutti_bus: BusKit) -> None:
    app, mended = tutti.Subscriber("app", policy=tutti.Policy(attempts=1)), False

    @app.on(Invoice)
    async def invoice(event: Invoice) -> None:
        if not mended:
            raise ValueError("broken")

    async with tutti_bus.serve(app):
        await tutti_bus.publish(Invoice(1), lifetime=5)
        await tutti_bus.settle()
        mended = True
        tutti_bus.clock.advance(60)
        await tutti_bus.dead.replay((await tutti_bus.letters())[0].number)
        await tutti_bus.settle()
    assert tutti_bus.handled(invoice) == [Invoice(1)]


async def test_each_handler_of_a_queue_keeps_its_own_concurrency(tutti_bus: BusKit) -> None:
    app, release = tutti.Subscriber("app"), asyncio.Event()
    running, most = {"one": 0, "three": 0}, {"one": 0, "three": 0}

    async def work(name: str) -> None:
        running[name] += 1
        most[name] = max(most[name], running[name])
        await release.wait()
        running[name] -= 1

    @app.on(Invoice, queue="billing", policy=tutti.Policy(concurrency=1))
    async def one(event: Invoice) -> None:
        await work("one")

    @app.on(Refund, queue="billing", policy=tutti.Policy(concurrency=3))
    async def three(event: Refund) -> None:
        await work("three")

    for number in range(4):
        await tutti_bus.send(Refund(number), to="billing")
        await tutti_bus.send(Invoice(number), to="billing")
    async with tutti_bus.serve(app):
        for _ in range(200):
            await asyncio.sleep(0)
        release.set()
        await tutti_bus.settle()
    assert most["one"] == 1
    assert most["three"] <= 3
    assert (len(tutti_bus.handled(one)), len(tutti_bus.handled(three))) == (4, 4)


async def test_a_list_is_gathered_until_it_is_full_or_has_waited(tutti_bus: BusKit) -> None:
    app = tutti.Subscriber("app")

    @app.on(Invoice, queue="billing", batch=tutti.Batch(most=3, wait=60.0))
    async def invoices(events: list[Invoice]) -> None: ...

    @app.on(Refund, queue="billing")
    async def refund(event: Refund) -> None: ...

    async with tutti_bus.serve(app):
        for number in range(4):
            await tutti_bus.send(Invoice(number), to="billing")
            for _ in range(100):
                await asyncio.sleep(0)
        await tutti_bus.send(Refund(1), to="billing")
        for _ in range(100):
            await asyncio.sleep(0)
        assert tutti_bus.handled(refund) == [Refund(1)]  # it waits for no list
        assert tutti_bus.clock.monotonic() == 0
        await tutti_bus.settle()
    lists = [call.events for call in tutti_bus.calls if call.subscription == "invoices"]
    assert sorted(len(events) for events in lists) in ([1, 3], [2, 2])
    assert {event.number for events in lists for event in events} == {0, 1, 2, 3}
    assert [call.attempt for call in tutti_bus.calls] == [1] * len(tutti_bus.calls)


async def test_a_letter_that_cannot_be_written_leaves_its_message_and_no_other(
    tutti_bus: BusKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, tries = tutti.Subscriber("app"), 0
    bury = DeadLetters.bury

    async def buries(dead: DeadLetters, letter: DeadLetter, *, timeout: float) -> int:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise tutti.Refused("full")
        return await bury(dead, letter, timeout=timeout)

    monkeypatch.setattr(DeadLetters, "bury", buries)

    @app.on(Invoice, queue="billing", batch=tutti.Batch(most=10))
    async def invoices(events: list[Invoice]) -> None: ...

    await tutti_bus.send(Other(1), to="billing")
    await tutti_bus.send(Invoice(2), to="billing")
    async with tutti_bus.serve(app):
        await tutti_bus.settle()
        assert tutti_bus.health().state == "ok"
    assert tutti_bus.handled(invoices) == [Invoice(2)]
    assert [letter.event_type for letter in await tutti_bus.letters()] == ["Other"]


async def test_a_replay_whose_letter_cannot_be_written_comes_again(
    tutti_bus: BusKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = tutti.Subscriber("app", policy=tutti.Policy(attempts=1))

    @app.on(Invoice)
    async def invoice(event: Invoice) -> None:
        raise ValueError("no")

    async with tutti_bus.serve(app):
        await tutti_bus.publish(Invoice(1))
        await tutti_bus.settle()
        bury, refusals = DeadLetters.bury, [tutti.Refused("full")]

        async def buries(dead: DeadLetters, letter: DeadLetter, *, timeout: float) -> int:
            if refusals:
                raise refusals.pop()
            return await bury(dead, letter, timeout=timeout)

        monkeypatch.setattr(DeadLetters, "bury", buries)
        await tutti_bus.dead.replay((await tutti_bus.letters())[0].number)
        await tutti_bus.settle()
        assert tutti_bus.health().state == "ok"
    assert len(await tutti_bus.letters()) == 1


async def test_a_handler_that_takes_its_time_keeps_the_message(tutti_bus: BusKit) -> None:
    app = tutti.Subscriber("app")

    @app.on(Invoice, queue="billing")
    async def invoice(event: Invoice) -> None:
        await asyncio.sleep(0.02)

    async with tutti_bus.serve(app):
        await tutti_bus.send(Invoice(1), to="billing")
        await tutti_bus.settle()
    assert len(tutti_bus.calls) == 1
