"""The bus without asyncio."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor

import pytest

import tutti
from tutti.bus.memory.queue import MemoryTaken
from tutti.runtime import worker


class Step(tutti.Event):
    number: int


class Doubled(tutti.Event):
    number: int


@pytest.fixture
def events() -> list[int]:
    return []


def memory() -> tutti.blocking.BlockingBus:
    return tutti.blocking.connect("memory://", name="test")


def test_publish_and_handle_in_threads() -> None:
    app, seen, done = tutti.Subscriber("app"), list[tuple[int, str]](), threading.Event()

    @app.on(Step)
    def step(event: Step) -> None:
        seen.append((event.number, threading.current_thread().name))
        if event.number == 3:
            done.set()

    with memory() as bus:
        bus.advertise(Step)
        with bus.serve(app):
            assert bus.publish(Step(1)).sequence == 1
            assert [p.sequence for p in bus.publish_many([Step(2), Step(3)])] == [2, 3]
            assert done.wait(5)
        assert bus.health().state == "ok"
        assert [known.type for known in bus.types()] == ["Step"]
    assert [number for number, _ in seen] == [1, 2, 3]
    assert threading.main_thread().name not in {name for _, name in seen}


def test_a_plain_handler_may_use_the_bus_itself() -> None:
    app, done = tutti.Subscriber("app"), threading.Event()

    with memory() as bus:

        @app.on(Step)
        def step(event: Step) -> None:
            bus.publish(Doubled(event.number * 2))

        @app.on(Doubled)
        def doubled(event: Doubled) -> None:
            done.set()

        bus.advertise(Step, Doubled)
        with bus.serve(app):
            bus.publish(Step(1))
            assert done.wait(5)


def test_an_async_handler_that_would_wait_for_itself_is_told_so() -> None:
    app, said = tutti.Subscriber("app", policy=tutti.Policy(attempts=1)), list[str]()
    done = threading.Event()

    with memory() as bus:

        @app.on(Step)
        async def step(event: Step) -> None:
            try:
                bus.publish(Step(2))
            except tutti.DeclarationError as error:
                said.append(error.what)
            done.set()

        bus.advertise(Step)
        with bus.serve(app):
            bus.publish(Step(1))
            assert done.wait(5)
    assert "wait for itself for ever" in said[0]


def test_queues_and_requests() -> None:
    app = tutti.Subscriber("app")

    with memory() as bus:

        @app.on(Step)
        async def step(event: Step, delivery: tutti.Delivery) -> None:
            await delivery.reply(Doubled(event.number * 2))

        bus.advertise(Step)
        with bus.serve(app):
            assert bus.request(Step(4), reply=Doubled) == Doubled(8)
        bus.send(Step(5), to="work")
        message = bus.receive("work", Step, wait=5)
        assert message is not None
        with pytest.raises(ValueError, match="no"), message:
            raise ValueError("no")
        again = bus.receive("work", Step, wait=5)
        assert again is not None
        with again:
            again.working()
            assert (again.event, again.attempt) == (Step(5), 2)
        assert bus.receive("work", Step, wait=0.01) is None


def test_errors_arrive_where_the_call_was_made() -> None:
    with memory() as bus, pytest.raises(tutti.TypeNotAdvertised):
        bus.publish(Step(1))


def test_many_threads_share_one_bus() -> None:
    with memory() as bus, ThreadPoolExecutor(4) as pool:
        bus.advertise(Step)
        sequences = list(pool.map(lambda n: bus.publish(Step(n)).sequence, range(100)))
    assert sorted(sequences) == list(range(1, 101))


def test_outside_its_block_it_says_so() -> None:
    bus = memory()
    with pytest.raises(tutti.DeclarationError, match="not open"):
        bus.publish(Step(1))
    with bus:
        bus.advertise(Step)
    with pytest.raises(tutti.DeclarationError, match="not open"):
        bus.publish(Step(1))


def test_a_bus_that_cannot_be_opened_leaves_no_thread() -> None:
    before = threading.active_count()
    with pytest.raises(tutti.DeclarationError), tutti.blocking.connect("http://127.0.0.1"):
        pass
    assert threading.active_count() == before


@pytest.mark.parametrize("name", ["publish", "publish_many", "send", "receive", "request", "advertise", "transaction"])
def test_a_call_takes_what_the_asynchronous_one_takes(name: str) -> None:
    ours = inspect.signature(getattr(tutti.blocking.BlockingBus, name)).parameters
    theirs = inspect.signature(getattr(tutti.Bus, name)).parameters
    assert [(p.name, p.kind, p.default) for p in ours.values()] == [
        (p.name, p.kind, p.default) for p in theirs.values()
    ]


class Pledge(tutti.TxType, events=[Step]):
    what: str


def test_a_transaction_of_a_thread() -> None:
    steps: list[int] = []
    app = tutti.Subscriber("app")

    @app.join(Pledge)
    async def always(_: tutti.Invite[Pledge]) -> bool:
        return True

    @app.on(Step)
    async def step(event: Step, tx: tutti.Branch) -> None:
        if event.number == 13:
            tx.set_abort("bad luck")
        steps.append(event.number)

    with memory() as bus:
        bus.advertise(Step)
        with bus.serve(app):
            with bus.transaction(Pledge("one"), census=tutti.Census(at_most=1)) as tx:
                tx.publish(Step(1), last=True)
                tx.commit(wait="ended")
            assert (len(tx.members), steps) == (1, [1])
            with (
                pytest.raises(tutti.TransactionAborted, match="bad luck"),
                bus.transaction(Pledge("two"), census=tutti.Census(at_most=1)) as tx,
            ):
                tx.publish(Step(13))
            with pytest.raises(KeyError), bus.transaction(Pledge("three"), census=tutti.Census(at_most=1)):
                raise KeyError


def test_connecting_takes_the_same_too() -> None:
    ours, theirs = inspect.signature(tutti.blocking.connect), inspect.signature(tutti.connect)
    assert ours.parameters == theirs.parameters


def test_a_message_stays_ours_while_its_block_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "WORKING_SECONDS", 0.01)
    with memory() as bus:
        bus.advertise(Step)
        bus.send(Step(1), to="work")
        message = bus.receive("work", Step, wait=5)
        assert message is not None
        said = threading.Event()
        monkeypatch.setattr(MemoryTaken, "working", _noting(said))
        with message:
            assert said.wait(5)


def _noting(said: threading.Event) -> Callable[[MemoryTaken], Coroutine[None, None, None]]:
    async def working(taken: MemoryTaken) -> None:
        said.set()

    return working
