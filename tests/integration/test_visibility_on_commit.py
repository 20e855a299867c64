"""Public events of transactions over a real server: every commit once and in order, and nothing else."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import tutti
from tests.unit.runtime.transactions.staged import Office, journal_in, until
from tutti.bus import embedded
from tutti.bus.port import StreamSpec
from tutti.runtime.catalogue import Catalogue
from tutti.runtime.transactions.log import TransactionLog


class Invited(tutti.Event):
    number: int


class Noise(tutti.Event):
    number: int


@pytest.fixture
async def bus(tmp_path: Path) -> AsyncIterator[tutti.Bus]:
    async with tutti.connect(data=tmp_path / "data", name="test") as bus:
        await bus.advertise(Invited, Noise)
        yield bus


@pytest.fixture
async def office(bus: tutti.Bus, tmp_path: Path) -> AsyncIterator[Office]:
    journal = await journal_in(tmp_path)
    yield Office.at(bus, journal)
    await journal.close()


def listener(seen: list[int], name: str = "app") -> tutti.Subscriber:
    app = tutti.Subscriber(name)

    @app.on(Invited)
    async def invited(event: Invited) -> None:
        seen.append(event.number)

    return app


async def test_commits_are_handled_once_in_order_and_nothing_else(bus: tutti.Bus, office: Office) -> None:
    seen: list[int] = []
    async with bus.serve(listener(seen)):
        public, aborted, private = await office.begin(), await office.begin(), await office.begin(scope="private")
        for number in range(10):
            await public.publish(Invited(number))
            await aborted.publish(Invited(100 + number))
            await private.publish(Invited(200 + number))
        for staged, outcome in ((aborted, "abort"), (private, "commit"), (public, "commit")):
            await staged.decide(outcome)  # type: ignore[arg-type]  # one of the two words
        assert seen == []
        await office.relay.start()
        await until(lambda: len(seen) >= 10)
        last = await office.begin()
        await last.publish(Invited(1_000))
        await last.decide()
        office.relay.relay()
        await until(lambda: seen[-1] == 1_000)
        await office.relay.close()
    assert seen == [*range(10), 1_000]
    assert [letter async for letter in bus.dead.each()] == []
    assert bus.health().state == "ok"


async def test_two_relays_at_once_store_one_status_each(bus: tutti.Bus, office: Office, tmp_path: Path) -> None:
    everything = [await office.begin() for _ in range(50)]
    for staged in everything:
        await staged.decide()
    other = await journal_in(tmp_path)
    relays = [office.relay, office.new_relay(), office.new_relay(journal=other)]
    try:
        await asyncio.gather(*(relay.send() for relay in relays))
    finally:
        await other.close()
    assert sorted(await office.statuses()) == sorted(f"{staged.tx} committed 1" for staged in everything)
    assert await office.journal.unsent() == ()


async def test_a_restart_in_the_middle_goes_on_behind_what_was_done(tmp_path: Path) -> None:
    seen: list[int] = []
    app, stop, gate = tutti.Subscriber("app"), asyncio.Event(), asyncio.Event()

    @app.on(Invited)
    async def invited(event: Invited) -> None:
        if event.number == 40 and not gate.is_set():
            stop.set()
            await gate.wait()
        seen.append(event.number)

    journal = await journal_in(tmp_path)
    async with tutti.connect(data=tmp_path / "data", name="test") as bus:
        await bus.advertise(Invited)
        office = Office.at(bus, journal)
        service = await bus.start(app)
        staged = await office.begin()
        await staged.publish(*(Invited(n) for n in range(100)))
        await staged.commit()
        await asyncio.wait_for(stop.wait(), 20)
        await bus.stop(service, grace=0.05)
    gate.set()
    async with tutti.connect(data=tmp_path / "data", name="test") as bus:
        office = Office.at(bus, journal)
        async with bus.serve(app):
            staged = await office.begin()
            await staged.publish(Invited(100))
            await staged.commit()
            await until(lambda: seen and seen[-1] == 100)
    await journal.close()
    assert seen == list(range(101))


async def test_killed_servers_lose_no_commit(bus: tutti.Bus, office: Office, tmp_path: Path) -> None:
    seen: list[int] = []
    await office.relay.start()
    async with bus.serve(listener(seen)):
        for number in range(60):
            if number % 20 == 10:
                state = embedded.inspect(tmp_path / "data")
                assert state is not None
                assert state.pid is not None
                os.kill(state.pid, signal.SIGKILL)
            staged = await office.begin()
            await staged.publish(Invited(2 * number), Invited(2 * number + 1))
            await staged.decide()
            office.relay.relay()
        await until(lambda: len(seen) >= 120, 60)
    await office.relay.close()
    assert seen == list(range(120))
    statuses = await office.statuses()
    assert len(statuses) == len(set(statuses)) == 60
    assert office.failures == []


async def test_several_thousand_scattered_events_in_one_transaction(bus: tutti.Bus, office: Office) -> None:
    seen: list[int] = []
    staged, other = await office.begin(), await office.begin()
    async with bus.serve(listener(seen)):
        for first in range(0, 6_000, 250):
            await asyncio.gather(
                *(one.publish(Invited(n)) for n in range(first, first + 250) for one in (staged, other))
            )
        await staged.commit()
        info = await bus.context.transport.stream_info("tutti-manifests")
        assert info is not None
        assert info.messages > 1
        await until(lambda: len(seen) >= 6_000, 60)
    assert seen == list(range(6_000))
    log = TransactionLog(bus.context.transport, bus.context.layout, bus.context.catalogue.streams)
    assert await log.events_of(staged.tx) == staged.sequences


async def test_what_is_gone_from_the_log_is_counted(bus: tutti.Bus, office: Office) -> None:
    seen: list[int] = []
    app = listener(seen)
    await bus.stop(await bus.start(app))
    few, many = await office.begin(), await office.begin()
    await few.publish(*(Invited(n) for n in range(5)))
    await many.publish(*(Invited(n) for n in range(5, 205)))
    await few.commit()
    await many.commit()
    await bus.context.transport.purge("tutti-events-events", below=3)
    await bus.context.transport.remove("tutti-events-events", 11)
    async with bus.serve(app):
        await until(lambda: len(seen) >= 202)
        await until(lambda: bus.metrics.total("tutti_missing_total") >= 3)
    assert seen == [n for n in range(205) if n not in {0, 1, 10}]
    assert bus.metrics.total("tutti_missing_total") == 3


async def test_an_older_stream_learns_the_subjects_of_transactions(bus: tutti.Bus, office: Office) -> None:
    transport, layout = bus.context.transport, bus.context.layout
    await transport.ensure_stream(StreamSpec(layout.event_stream("old"), (layout.event_subjects("old"),)))
    await Catalogue(transport, layout, {}).ensure_stream("old")
    info = await transport.stream_info(layout.event_stream("old"))
    assert info is not None
    assert set(info.subjects) == {layout.event_subjects("old"), layout.transactional_subjects("old")}
