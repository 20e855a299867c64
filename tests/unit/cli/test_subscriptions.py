from __future__ import annotations

from decimal import Decimal

import msgspec
import pytest

import tutti
from tests.unit.cli.conftest import MemorySession
from tests.unit.cli.trading import TradeDone
from tutti.bus.port import Entry, StreamInfo
from tutti.cli import subscriptions
from tutti.cli.output import ConsoleOutput
from tutti.cli.subscriptions import SubscriberList, drop, show_subscriptions, states
from tutti.errors import TuttiError
from tutti.runtime.leases import Lease
from tutti.runtime.positions import Positions, Registration


@pytest.fixture(autouse=True)
def listen_shortly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "LISTEN_SECONDS", 0.02)


def registration(name: str = "trade", start: int = 10, partitions: int = 2) -> Registration:
    return Registration("desk", name, "S", "TradeDone", "price > 1", start, "2026-01-31", partitions)


def position(partition: int, positions: Positions, at: float = 5.0) -> Entry:
    return Entry(f"position.desk.{partition}", msgspec.json.encode(positions), 1, at)


STREAM = {"S": StreamInfo("S", first=5, last=100, messages=96, bytes=1)}


def test_the_slowest_partition_counts() -> None:
    (state,) = states(
        [registration()],
        [
            position(0, Positions(1, {"trade": 90}), 7.0),
            position(1, Positions(1, {"trade": 60}, {"trade": {61: 3}}), 6.0),
        ],
        [
            Entry("lease.desk.0", msgspec.json.encode(Lease("a", 1)), 1),
            Entry("lease.desk.1", msgspec.json.encode(Lease("b", 1)), 1),
            Entry("lease.desk.2", msgspec.json.encode(Lease("", 2)), 1),
        ],
        STREAM,
        {"desk": ["a"]},
    )
    (trade,) = state.subscriptions
    assert (trade.position, trade.lag, trade.moved_at, trade.retries) == (60, 40, 7.0, {61: 3})
    assert state.partitions == {"a": [0], "b": [1]}
    assert state.silent_owners == ["b"]


def test_a_partition_that_was_never_served_is_at_the_start() -> None:
    (state,) = states([registration()], [position(0, Positions(1, {"trade": 90}))], [], STREAM, {})
    assert (state.subscriptions[0].position, state.subscriptions[0].lag) == (10, 90)
    assert state.instances == []


def test_purged_events_are_no_lag() -> None:
    (state,) = states([registration(start=0)], [], [], STREAM, {})
    assert state.subscriptions[0].lag == 96


def test_instances_are_counted_or_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lease = Entry("lease.desk.0", msgspec.json.encode(Lease("desk-a", 1)), 1)
    long = msgspec.structs.replace(registration(), where="price > 1 AND\n " * 20)
    found = states([long], [], [lease], STREAM, {"desk": ["desk-a", "desk-b"]})
    ConsoleOutput().show(SubscriberList(found))
    _, row = capsys.readouterr().out.splitlines()
    assert "2 instances" in row
    assert len(row) <= 80
    monkeypatch.setenv("COLUMNS", "200")
    ConsoleOutput().show(SubscriberList(found, verbose=True))
    assert "desk-a (1 partition); desk-b (0 partitions)" in capsys.readouterr().out
    assert SubscriberList(found, verbose=True).as_json() == {"subscribers": found}


async def served(session: MemorySession) -> None:
    desk = tutti.Subscriber("desk")

    @desk.on(TradeDone, where="price > 100")
    async def trade(event: TradeDone) -> None: ...

    async with session.bus() as bus:
        await bus.advertise(TradeDone)
        async with bus.serve(desk):
            await bus.publish(TradeDone("IBM", Decimal(200)))


async def test_subscribers_are_listed_and_dropped(session: MemorySession, capsys: pytest.CaptureFixture[str]) -> None:
    await served(session)
    await show_subscriptions(session)
    ConsoleOutput().show(session.answers.shown[0])
    assert "nobody" in capsys.readouterr().out
    await drop(session, "desk", force=False)
    await show_subscriptions(session)
    assert session.answers.shown[1].records > 1
    assert session.answers.shown[2] == SubscriberList([])
    with pytest.raises(TuttiError, match="there is no subscriber 'desk'"):
        await drop(session, "desk", force=False)


async def test_one_that_lives_is_dropped_only_by_force(session: MemorySession, monkeypatch: pytest.MonkeyPatch) -> None:
    await served(session)

    async def heard(_: object) -> dict[str, list[str]]:
        return {"desk": ["instance-1"]}

    monkeypatch.setattr(subscriptions, "_heard", heard)
    with pytest.raises(TuttiError, match="served by instance-1"):
        await drop(session, "desk", force=False)
    await drop(session, "desk", force=True)
    async with session.bus() as bus:
        assert await bus.context.transport.state_list("position") == []


async def test_who_lives_is_heard(session: MemorySession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "LISTEN_SECONDS", 0.2)
    async with session.bus() as bus, session.bus() as other:
        listen = bus.context.transport.listen

        async def then_speak(subject: str, **options: object) -> object:
            listener = await listen(subject)
            for said in (b"+a", b"+b", b"-b"):
                other.context.transport.emit("tutti.control.member.desk", {}, said)
            return listener

        monkeypatch.setattr(bus.context.transport, "listen", then_speak)
        assert await subscriptions._heard(bus) == {"desk": ["a"]}
