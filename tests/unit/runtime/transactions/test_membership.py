"""Membership in a standing group: durable, and in the hands of one of a subscriber's instances at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

import tutti
from tutti.bus.memory import MemoryCluster, MemoryTransport
from tutti.bus.port import Transport
from tutti.model.enrolment import Enrolment, decode_enrolment, encode_enrolment, enrolment_key
from tutti.model.subjects import Layout
from tutti.model.transaction import member_hash
from tutti.runtime.bus import Bus
from tutti.runtime.transactions import membership as module
from tutti.runtime.transactions.keys import SigningKey
from tutti.runtime.transactions.membership import Membership
from tutti.runtime.transactions.own_log import log_opener
from tutti.runtime.transactions.site import Site


class Invitation(tutti.Event):
    room: str


class Meeting(tutti.TxType, events=[Invitation]):
    subject: str


class House:
    """Processes that share a server and a participants' log, each with a member of the group `venues`."""

    def __init__(self, folder: Path) -> None:
        self.cluster = MemoryCluster()
        self.folder = folder
        self.buses: list[Bus] = []
        self.members: list[Membership] = []

    async def member(self, instance: str, name: str = "rooms", *, vital: bool = True) -> Membership:
        bus = Bus(self._transport, open_log=log_opener(self.folder))
        await bus.open()
        self.buses.append(bus)
        subscriber = tutti.Subscriber(name)
        subscriber.enrol("venues", Meeting, vital=vital)

        @subscriber.on(Invitation)
        async def book(event: Invitation, tx: tutti.Branch) -> None: ...

        parts = subscriber.parts()
        site = Site(bus.context, parts, await bus.participant_log(), instance)
        member = Membership(site, parts.joinings[0])
        self.members.append(member)
        return member

    async def _transport(self, layout: Layout) -> Transport:
        transport = MemoryTransport(layout, cluster=self.cluster)
        await transport.start()
        return transport

    async def beating(self, instance: str) -> asyncio.Task[None]:
        """Somebody else's process lives, as its heartbeat says."""
        context = self.buses[0].context

        async def beat() -> None:
            while True:
                context.transport.emit(context.layout.heartbeat(instance), {}, b"")
                await asyncio.sleep(0.01)

        return asyncio.create_task(beat())

    async def record(self, name: str = "rooms") -> Enrolment | None:
        entry = await self.buses[0].context.transport.state_get(enrolment_key("venues", name))
        return decode_enrolment(entry.key, entry.value) if entry is not None and entry.value else None

    async def put(self, record: Enrolment) -> None:
        transport = self.buses[0].context.transport
        entry = await transport.state_get(record.record_key)
        await transport.state_put(
            record.record_key, encode_enrolment(record), expected=entry.revision if entry is not None else 0
        )

    async def close(self) -> None:
        for member in self.members:
            await member.stop()
        for bus in self.buses:
            await bus.close()


@pytest.fixture
async def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[House]:
    monkeypatch.setattr(module, "PARTICIPANT_SILENCE_SECONDS", 0.2)
    monkeypatch.setattr(module, "PARTICIPANT_TURN_SECONDS", 0.02)
    house = House(tmp_path)
    yield house
    await house.close()


async def until(condition: Callable[[], bool] | Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(10):
        while True:
            found = condition()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(0.01)


async def test_the_first_start_enrols_and_says_what_others_must_know(house: House) -> None:
    member = await house.member("rooms-1", vital=False)
    await member.start()
    assert member.acting
    record = await house.record()
    assert record is not None
    assert (record.subscriber, record.type, record.handles, record.vital) == (
        "rooms",
        "Meeting",
        ("Invitation",),
        False,
    )
    assert (record.key, record.wrap, record.instance) == (member.key.public, member.wrap.public, "rooms-1")
    assert member.member("j-r-1") == member_hash("j-r-1", record.pseudonym)
    assert member.key.seed not in encode_enrolment(record)


async def test_it_outlives_the_process(house: House) -> None:
    first = await house.member("rooms-1")
    await first.start()
    before = await house.record()
    await first.stop()
    left = await house.record()
    assert before is not None
    assert left == msgspec.structs.replace(before, instance="")
    second = await house.member("rooms-2")
    await second.start()
    assert await house.record() == msgspec.structs.replace(before, instance="rooms-2")
    assert (second.pseudonym, second.key.public, second.wrap.public) == (
        first.pseudonym,
        first.key.public,
        first.wrap.public,
    )


async def test_another_instance_stands_by_while_the_first_lives_and_acts_when_it_is_silent(house: House) -> None:
    first = await house.member("rooms-1")
    await first.start()
    heart = await house.beating("rooms-1")
    second = await house.member("rooms-2")
    await second.start()
    assert (first.acting, second.acting) == (True, False)
    # The first one is paused: it says nothing, and does not see that it lost its part.
    heart.cancel()
    await until(lambda: second.acting)
    record = await house.record()
    assert record is not None
    assert record.instance == "rooms-2"
    await until(lambda: not first.acting)
    await first.stop()
    assert await house.record() == record, "who lost the part does not clear the other's name"


async def test_a_stop_hands_over_at_once(house: House) -> None:
    first, second = await house.member("rooms-1"), await house.member("rooms-2")
    await first.start()
    heart = await house.beating("rooms-1")  # its process lives on: nobody would hear a silence
    await second.start()
    assert not second.acting
    await first.stop()
    await until(lambda: second.acting)
    heart.cancel()


async def test_who_takes_the_part_at_the_same_moment_yields_to_the_other(house: House) -> None:
    first, second = await house.member("rooms-1"), await house.member("rooms-2")
    hearts = [await house.beating("rooms-1"), await house.beating("rooms-2")]
    await asyncio.gather(first.start(), second.start())
    record = await house.record()
    assert record is not None
    assert [m.acting for m in (first, second)] == [record.instance == "rooms-1", record.instance == "rooms-2"]
    for heart in hearts:
        heart.cancel()


async def test_a_record_with_another_key_is_replaced(house: House) -> None:
    """Its log was lost, and with it the keys: what is wrapped for the old ones nobody can open."""
    member = await house.member("rooms-1")
    await house.put(Enrolment("venues", "rooms", "Meeting", "old", SigningKey.fresh().public, "w", instance="rooms-0"))
    heart = await house.beating("rooms-0")
    await member.start()
    record = await house.record()
    assert record is not None
    assert (record.key, record.instance) == (member.key.public, "rooms-1")
    heart.cancel()


async def test_who_resigns_is_forgotten_and_enrols_anew_with_other_keys(house: House) -> None:
    member = await house.member("rooms-1")
    await member.start()
    await member.resign()
    assert await house.record() is None
    again = await house.member("rooms-2")
    await again.start()
    assert again.pseudonym != member.pseudonym
    assert again.key.public != member.key.public


async def test_who_is_taken_out_stays_out_until_it_is_started_again(house: House) -> None:
    acts, stands_by = await house.member("rooms-1"), await house.member("rooms-2")
    await acts.start()
    beating = await house.beating("rooms-1")
    await stands_by.start()
    entry = await house.buses[0].context.transport.state_get(enrolment_key("venues", "rooms"))
    assert entry is not None
    await house.buses[0].context.transport.state_put(entry.key, b"", expected=entry.revision)
    await until(lambda: not acts.acting)
    await asyncio.gather(*(task for member in (acts, stands_by) if (task := member._task) is not None))
    beating.cancel()
    assert await house.record() is None, "neither of them enrols behind the operator's back"
    await (await house.member("rooms-3")).start()
    assert await house.record() is not None


async def test_a_service_leaves_a_group_for_good(tmp_path: Path) -> None:
    rooms = tutti.Subscriber("rooms")
    rooms.enrol("venues", Meeting)

    @rooms.on(Invitation)
    async def book(event: Invitation, tx: tutti.Branch) -> None: ...

    async with tutti.connect("memory://", journal=tmp_path) as bus:
        await bus.advertise(Invitation)
        service = await bus.start(rooms)
        assert len(await bus.context.transport.state_list("group.venues")) == 1
        with pytest.raises(tutti.DeclarationError, match="not enrolled in the group 'desks'"):
            await service.resign("desks")
        await service.resign("venues")
        assert list(await bus.context.transport.state_list("group.venues")) == []
