"""Subscribers that are killed, managers that are gone, strangers on the wire, and journals of both kinds."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tutti
from tests.integration.transaction_stage import (
    Invitation,
    Stage,
    all_idle,
    decision,
    fails_with,
    meeting,
    serving,
    until,
)
from tutti.errors import TransactionAborted, UncheckedTransaction
from tutti.model.messages import Decide, Ended, Prepare, Received, Vote
from tutti.model.subjects import token
from tutti.runtime.transactions.channel import Channel, signed
from tutti.runtime.transactions.keys import SigningKey
from tutti.runtime.transactions.trust import Trust

ROOT = Path(__file__).parents[2]


class Process:
    """One of `transaction_processes`; it serves when this returns."""

    def __init__(self, stage: Stage, url: str, name: str, *words: str) -> None:
        arguments = (stage.url, stage.namespace, str(stage.folder / "journal"), url, name, *words)
        self._process = subprocess.Popen(
            (sys.executable, "-m", "tests.integration.transaction_processes", *arguments),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    async def hear(self, line: str) -> None:
        assert self._process.stdout is not None
        async with asyncio.timeout(30):
            while True:
                said = await asyncio.to_thread(self._process.stdout.readline)
                assert said, f"it ended before it said {line!r}"
                if said.strip() == line:
                    return

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


class Troupe:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._started: list[Process] = []

    async def start(self, url: str, name: str = "rooms", *words: str) -> Process:
        process = Process(self._stage, url, name, *words)
        self._started.append(process)
        await process.hear("serving")
        return process

    def end(self) -> None:
        for process in self._started:
            process.kill()


@pytest.fixture
def troupe(stage: Stage) -> Iterator[Troupe]:
    troupe = Troupe(stage)
    yield troupe
    troupe.end()


async def one_voted(stage: Stage, url: str) -> bool:
    return len(await stage.prepared(url)) == 1


@pytest.mark.parametrize("outcome", ["commit", "abort"])
async def test_who_dies_after_its_yes_finishes_after_a_restart_from_its_own_log(
    stage: Stage, troupe: Troupe, outcome: str
) -> None:
    """When it is back, the manager is gone: a peer tells it what the manager signed."""
    publisher, peers = await stage.bus(), await stage.bus()
    peer, url = await stage.member("peer"), await stage.database()
    peer.mood = "slow"
    first = await troupe.start(url)
    async with serving(peers, peer):
        async with meeting(publisher, 2) as tx:
            await tx.publish(Invitation("FW26"))
            with fails_with(UncheckedTransaction):
                await tx.commit(timeout=0.2)
            await until(lambda: one_voted(stage, url), "its yes")
            first.kill()
            if outcome == "commit":
                peer.release.set()
                await tx.commit()
            else:
                await tx.abort()
        assert await decision(publisher, tx.id) == outcome
        await all_idle(peers)
        assert await stage.booked(url) == []
        assert await one_voted(stage, url), "nobody else touches it"
        await publisher.close()
        await troupe.start(url)
        await until(lambda: _settled(stage, url), "the prepared branch is finished")
    assert await stage.booked(url) == (["FW26"] if outcome == "commit" else [])
    assert await peer.booked() == await stage.booked(url)


async def _settled(stage: Stage, url: str) -> bool:
    return not await stage.prepared(url)


async def test_another_instance_of_that_name_finishes(stage: Stage, troupe: Troupe) -> None:
    publisher, url = await stage.bus(), await stage.database()
    peer = await stage.member("peer")
    peer.mood = "slow"
    first = await troupe.start(url)
    async with serving(publisher, peer), meeting(publisher, 2) as tx:
        await tx.publish(Invitation("FW26"))
        with fails_with(UncheckedTransaction):
            await tx.commit(timeout=0.2)
        await until(lambda: one_voted(stage, url), "its yes")
        await troupe.start(url)
        first.kill()
        peer.release.set()
        await tx.commit(wait="ended")
    assert await stage.booked(url) == await peer.booked() == ["FW26"]


async def test_who_dies_before_its_vote_is_noticed_and_aborts(stage: Stage, troupe: Troupe) -> None:
    publisher, url = await stage.bus(), await stage.database()
    peer = await stage.member("peer")
    first = await troupe.start(url)
    async with serving(publisher, peer):
        with fails_with(TransactionAborted):
            async with meeting(publisher, 2) as tx:
                await tx.publish(Invitation("stuck"))
                await first.hear("handled stuck")
                first.kill()
                await tx.commit(timeout=15)
        assert await decision(publisher, tx.id) == "abort"
        await all_idle(publisher)
    assert (await stage.booked(url), await peer.booked()) == ([], [])


async def test_who_had_committed_and_dies_is_undone_after_a_restart(stage: Stage, troupe: Troupe) -> None:
    publisher, url = await stage.bus(), await stage.database()
    peer = await stage.member("peer")
    peer.mood = "slow"
    first = await troupe.start(url, "tickets", "compensatable")
    async with serving(publisher, peer):
        async with meeting(publisher, 2) as tx:
            await tx.publish(Invitation("FW26"))
            with fails_with(UncheckedTransaction):
                await tx.commit(timeout=0.2)
            await until(lambda: stage.booked(url), "it has voted, and committed")
            first.kill()
            await tx.abort()
        again = await troupe.start(url, "tickets", "compensatable")
        await again.hear("undone FW26")
        await until(lambda: _empty(stage, url))
        await all_idle(publisher)
    assert await peer.booked() == []


async def _empty(stage: Stage, url: str) -> bool:
    return not await stage.booked(url)


# Strangers


async def test_forged_stale_and_repeated_messages_on_the_wire_change_nothing(stage: Stage) -> None:
    """The stranger hears everything, knows every pseudonym and hash, and signs with keys of its own."""
    bus, elsewhere = await stage.bus(), await stage.bus()
    rooms, peer = await stage.member("rooms"), await stage.member("peer")
    peer.mood = "slow"
    context = elsewhere.context
    trust = Trust(context.transport)
    channel = Channel(context.transport, context.clock, lambda: trust.key)
    listener = await channel.listen(f"{context.layout.namespace}.control.>")
    heard: list[tuple[str, Received]] = []

    async def listen() -> None:
        async for record in listener:
            await trust.load()
            if record.data and ".heartbeat." not in record.subject:
                heard.extend((record.subject, given) for given in channel.open(record.data))

    listening = asyncio.create_task(listen())
    key = SigningKey.fresh()
    async with serving(bus, rooms, peer):
        async with meeting(bus, 2) as tx:
            contact, me = context.layout.manager(tx.id), tx.members[0].hash
            members = context.layout.members(token("Meeting"), tx.id)
            await tx.publish(Invitation("FW26"))
            await peer.at_work.wait()
            forged: list[Any] = [
                Vote(tx.id, 1, round_, m.hash, "no", "forged") for round_ in (0, 1) for m in tx.members
            ]
            forged += [Vote(tx.id, 1, 1, m.hash, "yes") for m in tx.members] + [Ended(tx.id, me, "abort")]
            for message in forged:
                for who in (key, None):
                    channel.emit(contact, signed(message, who))
            for message in (Decide(tx.id, 9, "abort"), Decide(tx.id, 1, "commit"), Prepare(tx.id, 9, 9, {}, 1.0)):
                channel.emit(members, signed(message, key, manager=True))
            with fails_with(UncheckedTransaction):
                await tx.commit(timeout=0.3)
            assert await decision(bus, tx.id) == "undecided"
            assert any(tx.id in subject and subject == members for subject, _ in heard), "it was in the right place"
            assert rooms.calls == ["FW26"]
            for subject, given in heard:  # all that was ever said, again, and once more
                for _ in range(2):
                    channel.emit(subject, given.verbatim)
            peer.release.set()
            await tx.commit(wait="ended")
            for subject, given in heard:
                channel.emit(subject, given.verbatim)
        async with meeting(bus, 2) as other:
            await other.publish(Invitation("FW27"))
            await other.commit(wait="ended")
        assert await decision(bus, tx.id) == "commit"
        await all_idle(bus)
    await listener.close()
    await listening
    assert await rooms.booked() == await peer.booked() == ["FW26", "FW27"]


# Journals


async def test_a_journal_on_postgresql_decides_and_a_successor_finishes_for_a_publisher_that_is_gone(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUTTI_DATA", str(stage.folder))  # the journal's key
    journal, mine = await stage.database(), await stage.database()
    calendar = await stage.resource("host", mine)
    first, serves = await stage.bus(journal=journal), await stage.bus(journal=journal)
    rooms = await stage.member("rooms")
    async with serving(serves, rooms):
        async with meeting(first, 1) as tx:
            db = await tx.enlist(calendar)
            await db.execute("insert into booked (room, tx) values ('mine', $1)", tx.id)
            await tx.publish(Invitation("FW26"))
            await tx.commit(wait="ended")
        assert await rooms.booked() == ["FW26"]
        assert await stage.booked(mine) == ["mine"]

        rooms.mood = "slow"
        left = meeting(first, 1)
        await left.__aenter__()
        db = await left.enlist(calendar)
        await db.execute("insert into booked (room, tx) values ('mine too', $1)", left.id)
        await left.publish(Invitation("FW27"))
        with fails_with(UncheckedTransaction):
            await left.commit(timeout=0.5)  # its own branch is prepared by now
        assert len(await stage.prepared(mine)) == 1
        await first.close()
        again = await stage.resource("host", mine)
        second = await stage.bus(journal=journal, resources=(again,))
        await second.coordinator()
        await until(lambda: _aborted(second, left.id), "a successor takes over")
        await until(lambda: _settled(stage, mine), "the publisher's branch")
        rooms.release.set()
        await all_idle(serves)
    assert await stage.booked(mine) == ["mine"]
    assert await rooms.booked() == ["FW26"]


async def _aborted(bus: tutti.Bus, tx: str) -> bool:
    return await decision(bus, tx) == "abort"
