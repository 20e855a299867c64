"""One subscription at work: order, retries, dead letters, batches, keys, lifetimes, threads, time-outs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Annotated, Any

import pytest

import tutti
from tutti.testing.kit import BusKit


class Step(tutti.Event):
    number: int
    who: str = "a"


@pytest.fixture
async def bus(tutti_bus: BusKit) -> BusKit:
    await tutti_bus.advertise(Step)
    return tutti_bus


async def test_a_retry_holds_back_what_comes_behind_it(bus: BusKit) -> None:
    app, failing = tutti.Subscriber("app"), {2: 2}

    @app.on(Step)
    async def step(event: Step) -> None:
        if failing.get(event.number, 0) > 0:
            failing[event.number] -= 1
            raise OSError("not yet")

    async with bus.serve(app):
        await bus.publish_many([Step(n) for n in (1, 2, 3)])
        await bus.settle()
    assert [e.number for e in bus.handled(step)] == [1, 2, 3]
    assert [(c.events[0].number, c.attempt) for c in bus.calls] == [(1, 1), (2, 1), (2, 2), (2, 3), (3, 1)]


async def test_after_the_last_attempt_the_event_is_dead_lettered_and_the_rest_go_on(bus: BusKit) -> None:
    app = tutti.Subscriber("app", policy=tutti.Policy(attempts=3))

    @app.on(Step)
    async def step(event: Step) -> None:
        if event.number == 2:
            raise ValueError("two is right out")

    async with bus.serve(app):
        await bus.publish_many([Step(n) for n in (1, 2, 3)])
        await bus.settle()
    (letter,) = await bus.letters()
    assert (letter.reason, letter.attempts, letter.subscription) == ("ValueError: two is right out", 3, "step")
    assert "two is right out" in letter.traceback
    assert [e.number for e in bus.handled(step)] == [1, 3]


async def test_a_rejected_event_is_not_tried_again(bus: BusKit) -> None:
    app = tutti.Subscriber("app")

    @app.on(Step)
    async def step(event: Step) -> None:
        raise tutti.Reject("nonsense")

    async with bus.serve(app):
        await bus.publish(Step(1))
        await bus.settle()
    assert [letter.attempts for letter in await bus.letters()] == [1]


async def test_a_replayed_letter_reaches_its_own_subscription_and_no_other(bus: BusKit) -> None:
    app, mended = tutti.Subscriber("app", policy=tutti.Policy(attempts=1)), False

    @app.on(Step)
    async def step(event: Step) -> None:
        if not mended:
            raise ValueError("broken")

    @app.on(Step)
    async def other(event: Step) -> None: ...

    async with bus.serve(app):
        await bus.publish(Step(1))
        await bus.settle()
        (letter,) = await bus.letters()
        mended = True
        await bus.dead.replay(letter.number)
        await bus.settle()
    assert bus.handled(step) == [Step(1)]
    assert bus.handled(other) == [Step(1)]
    assert await bus.letters() == []


async def test_keys_are_handled_side_by_side_and_each_in_order(bus: BusKit) -> None:
    app = tutti.Subscriber("app", policy=tutti.Policy(concurrency=2))
    order: list[str] = []
    gate = asyncio.Event()

    @app.on(Step, key="who")
    async def step(event: Step) -> None:
        if event.who == "a" and event.number == 1:
            await gate.wait()
        order.append(f"{event.who}{event.number}")
        if event.who == "b" and event.number == 2:
            gate.set()

    async with bus.serve(app):
        await bus.publish_many([Step(1, "a"), Step(2, "a"), Step(1, "b"), Step(2, "b")])
        await bus.settle()
    assert order == ["b1", "b2", "a1", "a2"]


async def test_a_handler_that_takes_a_list(bus: BusKit) -> None:
    app = tutti.Subscriber("app")

    @app.on(Step, batch=tutti.Batch(most=3, wait=0.5))
    async def steps(events: list[Step], deliveries: list[tutti.Delivery]) -> None:
        assert [d.sequence for d in deliveries] == [e.number for e in events]

    async with bus.serve(app):
        await bus.publish_many([Step(n) for n in range(1, 8)])
        await bus.settle()
    assert [len(c.events) for c in bus.calls] == [3, 3, 1]
    assert [e.number for e in bus.handled(steps)] == list(range(1, 8))


async def test_an_expired_event_is_not_handled(bus: BusKit) -> None:
    app = tutti.Subscriber("app")

    @app.on(Step)
    async def step(event: Step) -> None: ...

    await bus.stop(await bus.start(app))
    await bus.publish(Step(1), lifetime=5)
    await bus.publish(Step(2))
    bus.clock.advance(6)
    async with bus.serve(app):
        await bus.settle()
    assert bus.handled(step) == [Step(2)]
    assert bus.metrics.total("tutti_expired_total") == 1


async def test_plain_functions_run_in_threads(bus: BusKit) -> None:
    app, threads = tutti.Subscriber("app"), set()

    @app.on(Step)
    def step(event: Step) -> None:
        threads.add(threading.current_thread())

    async with bus.serve(app):
        await bus.publish(Step(1))
        await bus.settle()
    assert bus.handled(step) == [Step(1)]
    assert threading.main_thread() not in threads


async def test_a_handler_that_hangs_fails_that_attempt(bus: BusKit) -> None:
    app = tutti.Subscriber("app", policy=tutti.Policy(attempts=2, handler_timeout=0.02))

    @app.on(Step)
    async def step(event: Step) -> None:
        await asyncio.Event().wait()

    async with bus.serve(app):
        await bus.publish(Step(1))
        await bus.settle()
    (letter,) = await bus.letters()
    assert (letter.reason, letter.attempts) == ("the handler took longer than 0.02 seconds", 2)


async def test_a_value_that_does_not_fit_is_dead_lettered_with_the_reason(bus: BusKit) -> None:
    app = tutti.Subscriber("app")

    @app.on(Step)
    async def step(event: Step) -> None: ...

    async with bus.serve(app):
        stored = await bus.publish(Step(1))
        record = await bus.context.transport.fetch("tutti-events-events", stored.sequence)
        assert record is not None
        headers = {**record.headers, "ce-id": "other", "Nats-Msg-Id": "other"}
        await bus.context.transport.append(record.subject, headers, b'{"number":"one"}', timeout=1)
        await bus.context.transport.append(record.subject, {"ce-id": "x"}, b"{}", timeout=1)
        await bus.settle()
    first, second = await bus.letters()
    assert "number" in first.reason
    assert first.payload == b'{"number":"one"}'
    assert "ce-" in second.reason or "specversion" in second.reason
    assert bus.handled(step) == [Step(1)]


async def test_a_subscriber_goes_on_where_it_stopped(bus: BusKit) -> None:
    app = tutti.Subscriber("app")

    @app.on(Step)
    async def step(event: Step) -> None: ...

    async with bus.serve(app):
        await bus.publish(Step(1))
        await bus.settle()
    await bus.publish(Step(2))
    async with bus.serve(app):
        await bus.publish(Step(3))
        await bus.settle()
    assert [e.number for e in bus.handled(step)] == [1, 2, 3]


async def test_where_a_new_subscription_starts(bus: BusKit) -> None:
    await bus.publish_many([Step(n) for n in (1, 2, 3)])
    app = tutti.Subscriber("app")

    @app.on(Step)
    async def latest(event: Step) -> None: ...

    @app.on(Step, start="earliest")
    async def earliest(event: Step) -> None: ...

    @app.on(Step, start=3)
    async def third(event: Step) -> None: ...

    async with bus.serve(app):
        await bus.publish(Step(4))
        await bus.settle()
    assert [e.number for e in bus.handled(latest)] == [4]
    assert [e.number for e in bus.handled(earliest)] == [1, 2, 3, 4]
    assert [e.number for e in bus.handled(third)] == [3, 4]


async def test_a_loss_in_the_log_is_noticed(bus: BusKit) -> None:
    app = tutti.Subscriber("app")

    @app.on(Step, start="earliest")
    async def step(event: Step) -> None: ...

    await bus.publish_many([Step(n) for n in (1, 2, 3)])
    bus.cluster.lose("tutti-events-events", 2)
    async with bus.serve(app):
        await bus.settle()
    assert bus.metrics.total("tutti_missing_total") == 1
    assert [e.number for e in bus.handled(step)] == [1, 3]


async def test_best_effort_events_reach_who_listens_now(bus: BusKit) -> None:
    app = tutti.Subscriber("app")

    @app.on(Step)
    async def step(event: Step) -> None: ...

    await bus.publish(Step(1), grade="best_effort")
    async with bus.serve(app):
        await bus.publish(Step(2), grade="best_effort")
        await bus.settle()
    assert bus.handled(step) == [Step(2)]


async def test_queues_share_messages_between_takers(bus: BusKit) -> None:
    app = tutti.Subscriber("app")

    @app.on(Step, queue="work")
    async def step(event: Step) -> None: ...

    async with bus.serve(app):
        await bus.send(Step(1), to="work")
        await bus.settle()
    assert bus.handled(step) == [Step(1)]
    await bus.send(Step(2), to="work")
    received = await bus.receive("work", Step, wait=1)
    assert received is not None
    async with received as message:
        assert message.event == Step(2)
    assert await bus.receive("work", Step, wait=0.01) is None


async def test_an_index_of_filters_names_those_that_match(bus: BusKit) -> None:
    app: tutti.Subscriber = tutti.Subscriber("app")
    index: tutti.Index[object] = tutti.Index()
    index.add("small", "number < 10")
    index.add("two", "number = 2")
    seen: dict[int, set[object]] = {}

    @app.on(Step, match=index)
    async def step(event: Step, delivery: tutti.Delivery) -> None:
        seen[event.number] = set(delivery.matches)

    async with bus.serve(app):
        await bus.publish_many([Step(1), Step(2), Step(30)])
        await bus.settle()
    assert seen == {1: {"small"}, 2: {"small", "two"}}


class Euro(tutti.Event):
    symbol: Annotated[str, tutti.routing]
    cents: int


class Quote(tutti.Event):
    ticker: str
    euros: float


async def test_a_mapping_stands_between_the_published_type_and_the_handler(bus: BusKit) -> None:
    app = tutti.Subscriber("app")
    via = tutti.mapping(Euro, Quote, ticker="symbol", euros=lambda e: e.cents / 100)

    @app.on(Quote, via=via, where="ticker = 'SAP' AND euros > 1.0")
    async def quote(event: Quote) -> None: ...

    await bus.advertise(Euro)
    async with bus.serve(app):
        await bus.publish_many([Euro("SAP", 250), Euro("SAP", 50), Euro("IBM", 999)])
        await bus.settle()
    assert bus.handled(quote) == [Quote("SAP", 2.5)]


async def test_best_effort_events_beyond_the_limit_are_dropped_and_counted(bus: BusKit) -> None:
    app, gate = tutti.Subscriber("app", policy=tutti.Policy(in_flight=3)), asyncio.Event()

    @app.on(Step)
    async def step(event: Step) -> None:
        await gate.wait()

    async with bus.serve(app):
        for number in range(10):
            await bus.publish(Step(number), grade="best_effort")
        await asyncio.sleep(0.01)
        assert bus.metrics.total("tutti_dropped_total") == 7
        await bus.publish(Step(99))  # the log's events are read all the same
        gate.set()
        await bus.settle()
    assert sorted(e.number for e in bus.handled(step)) == [0, 1, 2, 99]


async def test_an_ephemeral_subscriber_sees_what_is_published_once_it_has_started(bus: BusKit) -> None:
    await bus.publish(Step(1))
    app = tutti.Subscriber("app", ephemeral=True)

    @app.on(Step)
    async def step(event: Step) -> None: ...

    service = await bus.start(app)
    await bus.publish(Step(2))
    await bus.settle()
    await bus.stop(service)
    assert bus.handled(step) == [Step(2)]


async def test_a_stream_that_is_not_there_is_waited_for_and_shown(bus: BusKit) -> None:
    app = tutti.Subscriber("app")

    @app.on(tutti.CloudEvent, subject="their.>", stream="THEIRS")
    async def theirs(event: tutti.CloudEvent) -> None: ...

    async with bus.serve(app):
        await asyncio.sleep(0.01)
        assert bus.health().failures == ["app.theirs: there is no stream THEIRS"]
        assert bus.metrics.total("tutti_missing_total") == 0


def test_a_filter_that_can_never_match_is_refused() -> None:
    app = tutti.Subscriber("app")
    with pytest.raises(tutti.DeclarationError, match="can never match"):

        @app.on(Euro, where="symbol = 'a' AND symbol = 'b'")
        async def never(event: Euro) -> None: ...


async def test_a_stream_that_was_made_anew_is_read_from_its_beginning(bus: BusKit) -> None:
    app = tutti.Subscriber("app")

    @app.on(Step)
    async def step(event: Step) -> None: ...

    async with bus.serve(app):
        await bus.publish_many([Step(n) for n in range(5)])
        await bus.settle()
    bus.cluster.delete("tutti-events-events")
    bus.clock.advance(1)
    await bus.advertise(Step)
    await bus.publish_many([Step(n) for n in (10, 11)])
    async with bus.serve(app):
        async with asyncio.timeout(5):
            while len(bus.handled(step)) < 7:
                await asyncio.sleep(0.01)
        assert "went back" in bus.health().failures[0]
    assert [e.number for e in bus.handled(step)] == [0, 1, 2, 3, 4, 10, 11]


async def cancels_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(1)


async def leaves() -> None:
    raise SystemExit(3)


async def raises_oddly() -> None:
    raise BaseExceptionGroup("several", [OSError("one")])


@pytest.mark.parametrize("deed", [cancels_itself, leaves, raises_oddly])
async def test_whatever_a_handler_does_to_itself_is_its_events_failure(bus: BusKit, deed: Callable[[], Any]) -> None:
    app = tutti.Subscriber("app", policy=tutti.Policy(attempts=2))

    @app.on(Step)
    async def step(event: Step) -> None:
        if event.number == 1:
            await deed()

    async with bus.serve(app):
        await bus.publish_many([Step(1), Step(2)])
        await bus.settle()
    assert bus.handled(step) == [Step(2)]
    assert [letter.attempts for letter in await bus.letters()] == [2]


@pytest.mark.parametrize("error", [asyncio.CancelledError(), SystemExit(3), StopIteration(), KeyboardInterrupt()])
async def test_the_same_in_a_thread(bus: BusKit, error: BaseException) -> None:
    app = tutti.Subscriber("app", policy=tutti.Policy(attempts=2))

    @app.on(Step)
    def step(event: Step) -> None:
        if event.number == 1:
            raise error

    async with bus.serve(app):
        await bus.publish_many([Step(1), Step(2)])
        await bus.settle()
    assert bus.handled(step) == [Step(2)]
    assert [letter.attempts for letter in await bus.letters()] == [2]


class Ordered(tutti.Event):
    who: Annotated[str, tutti.key]
    number: int


async def test_with_a_key_in_the_type_a_retry_holds_back_that_key_only(bus: BusKit) -> None:
    app, order = tutti.Subscriber("app"), []

    @app.on(Ordered)
    async def ordered(event: Ordered, delivery: tutti.Delivery) -> None:
        if event.who == "mallory" and delivery.attempt < 3:
            raise OSError("not yet")
        order.append((event.who, event.number))

    await bus.advertise(Ordered)
    async with bus.serve(app):
        await bus.publish_many([Ordered("mallory", 1), Ordered("mallory", 2), Ordered("zoe", 1)])
        await bus.settle()
    assert order == [("zoe", 1), ("mallory", 1), ("mallory", 2)]


async def test_a_handler_publishes_on_the_bus_its_event_came_over(bus: BusKit) -> None:
    app = tutti.Subscriber("app")

    @app.on(Step, where="number < 3")
    async def step(event: Step, delivery: tutti.Delivery) -> None:
        assert delivery.publisher == "test"
        await delivery.bus.publish(Step(event.number + 1))

    async with bus.serve(app):
        await bus.publish(Step(1))
        await bus.settle()
    assert [e.number for e in bus.handled(step)] == [1, 2]


async def test_failures_of_queue_handlers_are_logged(bus: BusKit, caplog: pytest.LogCaptureFixture) -> None:
    app = tutti.Subscriber("app", policy=tutti.Policy(attempts=1))

    @app.on(Step, queue="work")
    async def step(event: Step) -> None:
        raise ValueError("broken")

    async with bus.serve(app):
        await bus.send(Step(1), to="work", id="one")
        await bus.settle()
    assert "app.step: attempt 1 at one failed: ValueError: broken" in caplog.text
    assert "app.step: one is dead-lettered: ValueError: broken" in caplog.text
