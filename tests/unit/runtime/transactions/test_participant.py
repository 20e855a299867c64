"""A subscriber in transactions, over a bus in memory, with a manager that the test plays."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import tutti
from tests.scripted_manager import Script, ScriptedManager
from tutti.model.enrolment import decode_enrolment
from tutti.model.event import event_type
from tutti.model.messages import Decide, Ended, Inquiry, Tally, Vote
from tutti.model.transaction import PUBLISHER, member_hash
from tutti.resources.memory import MemoryResource, MemoryStore
from tutti.runtime.bus import Bus
from tutti.runtime.transactions import participant, taking
from tutti.runtime.transactions.channel import signed
from tutti.runtime.transactions.keys import SigningKey
from tutti.runtime.transactions.taking import Taking
from tutti.runtime.transactions.trust import Trust


class Invitation(tutti.Event):
    room: str


class Reaction(tutti.Event):
    room: str


class Meeting(tutti.TxType, events=[Invitation, Reaction]):
    subject: str


@pytest.fixture
async def bus() -> AsyncIterator[Bus]:
    async with tutti.connect("memory://") as opened:
        await opened.advertise(Invitation, Reaction)
        yield opened


@pytest.fixture
async def manager(bus: Bus) -> AsyncIterator[ScriptedManager]:
    async with ScriptedManager(bus) as scripted:
        yield scripted


class Rooms:
    """A subscriber with a database, and what its callbacks saw."""

    def __init__(self, name: str = "rooms", *, compensatable: bool = False, early_commit: bool = False) -> None:
        self.store = MemoryStore()
        self.calendar = MemoryResource("calendar", self.store)
        self.subscriber = tutti.Subscriber(name, resources=[self.calendar])
        self.invites: list[tutti.Invite[Meeting]] = []
        self.undone: list[str] = []
        self.answer: object = True
        self.failing_compensations = 0

        @self.subscriber.join(
            Meeting, where="subject = 'DSOnline'", compensatable=compensatable, early_commit=early_commit, patience=0.2
        )
        async def interested(invite: tutti.Invite[Meeting]) -> object:
            self.invites.append(invite)
            return self.answer

        @self.subscriber.on(Invitation)
        async def book(event: Invitation, tx: tutti.Branch) -> None:
            if event.room == "closed":
                raise ValueError("no such room")
            if event.room == "abort":
                tx.set_abort("we do not like it")
                await asyncio.sleep(30)
            db = await tx.enlist(self.calendar)
            db.put(event.room, tx.id)
            if event.room == "reacts":
                await tx.publish(Reaction("reacted"))

        @book.compensate
        async def release(event: Invitation, tx: tutti.Branch) -> None:
            if self.failing_compensations:
                self.failing_compensations -= 1
                raise ValueError("not now")
            db = await tx.enlist(self.calendar)
            db.put(event.room, None)
            self.undone.append(event.room)


async def committed(script: Script) -> None:
    script.prepare()
    vote = await script.manager.vote(script.tx)
    assert vote.value == "yes", vote.reason
    script.decide("commit")


async def ended(script: Script) -> Ended:
    while True:
        given = await script.manager.next(Ended, script.tx)
        assert isinstance(given.message, Ended)
        if given.message.state == "ended":
            return given.message


@pytest.mark.parametrize("scope", ["private", "public"])
async def test_work_is_prepared_voted_for_and_committed(bus: Bus, manager: ScriptedManager, scope: Any) -> None:
    rooms = Rooms()
    async with bus.serve(rooms.subscriber):
        script = Script(manager, Meeting("DSOnline"), scope=scope)
        [join] = await script.census()
        await script.publish(Invitation("FW26"))
        script.prepare()
        vote = await manager.vote(script.tx)
        assert (vote.value, vote.member, vote.round) == ("yes", member_hash(script.tx, join.pseudonym), 1)
        assert rooms.store.data == {}
        assert [str(found.branch) for found in rooms.store.prepared] == [f"rooms:{script.tx}:calendar-1"]
        script.decide("commit")
        assert (await ended(script)).outcome == "commit"
        assert rooms.store.data == {"FW26": script.tx}
        assert not rooms.store.prepared
    assert [(i.data, i.type, i.scope, i.tx) for i in rooms.invites] == [
        (Meeting("DSOnline"), "Meeting", scope, script.tx)
    ]


async def test_an_abort_leaves_nothing(bus: Bus, manager: ScriptedManager) -> None:
    rooms = Rooms()
    async with bus.serve(rooms.subscriber):
        script = Script(manager, Meeting("DSOnline"))
        await script.census()
        await script.publish(Invitation("FW26"))
        script.prepare()
        assert (await manager.vote(script.tx)).value == "yes"
        script.decide("abort")
        assert (await ended(script)).outcome == "abort"
        assert rooms.store.data == {}
        assert not rooms.store.prepared


@pytest.mark.parametrize(("room", "reason"), [("closed", "no such room"), ("abort", "we do not like it")])
async def test_a_handler_that_fails_votes_no_at_once(
    bus: Bus, manager: ScriptedManager, room: str, reason: str
) -> None:
    rooms = Rooms()
    async with bus.serve(rooms.subscriber):
        script = Script(manager, Meeting("DSOnline"))
        await script.census()
        await script.publish(Invitation("FW26"))
        await script.publish(Invitation(room))
        vote = await manager.vote(script.tx)
        assert vote.value == "no"
        assert reason in vote.reason
        script.decide("abort")
        assert (await ended(script)).outcome == "abort"
        assert rooms.store.data == {}


async def test_who_has_voted_no_does_not_wait_for_the_decision_when_it_stops(
    bus: Bus, manager: ScriptedManager
) -> None:
    rooms = Rooms()
    service = await bus.start(rooms.subscriber)
    script = Script(manager, Meeting("DSOnline"))
    await script.census()
    await script.publish(Invitation("closed"))
    assert (await manager.vote(script.tx)).value == "no"
    assert await bus.stop(service, grace=5.0), "the manager never says anything again"
    assert rooms.store.data == {}


async def test_who_does_not_match_or_declines_says_nothing(bus: Bus, manager: ScriptedManager) -> None:
    rooms = Rooms()
    async with bus.serve(rooms.subscriber):
        Script(manager, Meeting("other"), 1).invite()
        rooms.answer = False
        declined = Script(manager, Meeting("DSOnline"), 2)
        declined.invite()
        while not rooms.invites:
            await asyncio.sleep(0)
        rooms.answer = {"price": 12}
        offered = Script(manager, Meeting("DSOnline"), 3)
        offered.invite()
        assert (await offered.join()).offer == {"price": 12}
        offered.accept()
        assert [given.message.tx for given in manager.heard] == []
    assert [invite.tx for invite in rooms.invites] == ["j1-r1-2", "j1-r1-3"]


async def test_an_invitation_of_a_stranger_changes_nothing(bus: Bus, manager: ScriptedManager) -> None:
    rooms = Rooms()
    async with bus.serve(rooms.subscriber):
        script = Script(manager, Meeting("DSOnline"), 1)
        genuine, manager.key = manager.key, SigningKey.fresh()
        script.invite()
        manager.key = genuine
        honest = Script(manager, Meeting("DSOnline"), 2)
        honest.invite()
        await honest.join()
        honest.accept()
    assert [invite.tx for invite in rooms.invites] == ["j1-r1-2"]


async def test_who_is_not_on_the_list_had_never_joined(bus: Bus, manager: ScriptedManager) -> None:
    rooms = Rooms()
    async with bus.serve(rooms.subscriber):
        script = Script(manager, Meeting("DSOnline"))
        script.invite()
        await script.join()
        script.accept()
        await script.publish(Invitation("FW26"))
        script.prepare()
        script.decide("commit")
        other = Script(manager, Meeting("DSOnline"), 2)
        await other.census()
        await committed(other)
        await ended(other)
        assert [given.message for given in manager.heard if given.message.tx == script.tx] == []
    assert rooms.store.data == {}


async def test_a_last_event_carries_the_prepare_even_to_those_who_do_not_handle_it(
    bus: Bus, manager: ScriptedManager
) -> None:
    rooms = Rooms()
    async with bus.serve(rooms.subscriber):
        script = Script(manager, Meeting("DSOnline"))
        await script.census()
        await script.publish(Invitation("FW26"))
        await script.publish(Reaction("unhandled"), last=True)
        assert (await manager.vote(script.tx)).value == "yes"
        script.decide("commit")
        await ended(script)
    assert rooms.store.data == {"FW26": script.tx}


async def test_an_event_that_the_wire_lost_is_fetched_from_the_log(bus: Bus, manager: ScriptedManager) -> None:
    rooms = Rooms()
    script = Script(manager, Meeting("DSOnline"))
    await script.publish(Invitation("FW26"))  # nobody listens yet
    async with bus.serve(rooms.subscriber):
        await script.census()
        await script.publish(Invitation("FW27"))
        script.prepare()
        assert (await manager.vote(script.tx)).value == "yes"
        script.decide("commit")
        await ended(script)
    assert set(rooms.store.data) == {"FW26", "FW27"}


async def test_an_event_that_is_gone_from_the_log_is_a_no(bus: Bus, manager: ScriptedManager) -> None:
    rooms = Rooms()
    async with bus.serve(rooms.subscriber):
        script = Script(manager, Meeting("DSOnline"))
        await script.census()
        await script.publish(Invitation("FW26"))
        script.counts["manager"]["Invitation"] = 2
        script.prepare()
        vote = await manager.vote(script.tx)
        assert vote.value == "no"
        assert "event 2 of type Invitation is not in the log" in vote.reason


async def test_members_publish_too_and_say_so_when_they_are_counted(bus: Bus, manager: ScriptedManager) -> None:
    rooms = Rooms()
    async with bus.serve(rooms.subscriber):
        script = Script(manager, Meeting("DSOnline"))
        await script.census()
        await script.publish(Invitation("reacts"))
        script.prepare()
        assert (await manager.vote(script.tx)).value == "open"
        script.close(2)
        given = await manager.next(Tally, script.tx)
        assert isinstance(given.message, Tally)
        assert given.message.sent == {"Reaction": 1}
        script.counts[given.message.member] = {"Reaction": 1}
        script.prepare(3)
        assert (await manager.vote(script.tx)).value == "yes"
        script.decide("commit")
        await ended(script)


async def test_a_peer_in_doubt_is_told_verbatim_what_the_manager_signed(bus: Bus, manager: ScriptedManager) -> None:
    rooms = Rooms()
    async with bus.serve(rooms.subscriber):
        script = Script(manager, Meeting("DSOnline"))
        await script.census()
        await script.publish(Invitation("FW26"))
        await committed(script)
        await ended(script)
        inbox = manager.channel.inbox()
        listener = await manager.channel.listen(inbox)
        manager.channel.emit(script.subject, signed(Inquiry(script.tx, "somebody", "voted", inbox), None))
        record = await anext(aiter(listener))
        [told] = manager.channel.open(record.data)
        assert told.signer == "manager"
        assert getattr(told.message, "outcome", "") == "commit"
        await listener.close()


async def test_who_hears_nothing_asks_peers_and_then_the_journal(bus: Bus, manager: ScriptedManager) -> None:
    rooms = Rooms()
    recovery = await manager.channel.listen(manager.layout.recovery("j1"))
    async with bus.serve(rooms.subscriber):
        script = Script(manager, Meeting("DSOnline"))
        await script.census()
        await script.publish(Invitation("FW26"))
        script.prepare()
        await manager.vote(script.tx)
        record = await anext(aiter(recovery))
        [asked] = manager.channel.open(record.data)
        assert isinstance(asked.message, Inquiry)
        assert asked.message.state == "voted"
        manager.say(asked.message.inbox, Decide(script.tx, 1, "commit"))
        assert (await ended(script)).outcome == "commit"
    await recovery.close()


# Compensation


@pytest.mark.parametrize("early", [False, True])
async def test_compensatable_work_is_committed_with_the_vote_and_undone_on_abort(
    bus: Bus, manager: ScriptedManager, early: bool
) -> None:
    rooms = Rooms(compensatable=True, early_commit=early)
    rooms.failing_compensations = 1
    async with bus.serve(rooms.subscriber):
        script = Script(manager, Meeting("DSOnline"))
        await script.census()
        await script.publish(Invitation("FW26"))
        await script.publish(Invitation("FW27"))
        script.prepare()
        assert (await manager.vote(script.tx)).value == "yes"
        assert set(rooms.store.data) == {"FW26", "FW27"}
        assert not rooms.store.prepared
        script.decide("abort")
        assert (await ended(script)).outcome == "abort"
        assert rooms.undone == ["FW27", "FW26"]
        assert rooms.store.data == {}


async def test_compensatable_work_stays_on_commit_and_its_barrier_is_forgotten(
    bus: Bus, manager: ScriptedManager
) -> None:
    rooms = Rooms(compensatable=True)
    async with bus.serve(rooms.subscriber):
        script = Script(manager, Meeting("DSOnline"))
        await script.census()
        await script.publish(Invitation("FW26"))
        await committed(script)
        assert (await ended(script)).outcome == "commit"
    assert rooms.store.data == {"FW26": script.tx}
    assert rooms.undone == []
    assert rooms.store.rows() == []


# Groups


async def test_a_group_needs_no_census(bus: Bus, manager: ScriptedManager) -> None:
    store = MemoryStore()
    calendar = MemoryResource("calendar", store)
    hosts = tutti.Subscriber("hosts", resources=[calendar])
    hosts.enrol("venues", Meeting)

    @hosts.on(Invitation)
    async def book(event: Invitation, tx: tutti.Branch) -> None:
        (await tx.enlist(calendar)).put(event.room, tx.id)

    async with bus.serve(hosts):
        [entry] = await bus.context.transport.state_list("group.venues")
        enrolment = decode_enrolment(entry.key, entry.value)
        assert (enrolment.subscriber, enrolment.type, enrolment.handles) == ("hosts", "Meeting", ("Invitation",))
        assert enrolment.instance == bus.services[0].instance
        script = Script(manager, Meeting("DSOnline"), group="venues")
        script.stand([enrolment])
        await script.publish(Invitation("FW26"), last=True)
        given = await manager.next(Vote, script.tx)
        assert given.signer == enrolment.key
        assert getattr(given.message, "value", "") == "yes"
        script.decide("commit")
        assert (await ended(script)).outcome == "commit"
        # A late event of an ended transaction begins nothing.
        await script.publish(Invitation("FW27"))
        again = Script(manager, Meeting("DSOnline"), 2, group="venues")
        again.stand([enrolment])
        await again.publish(Invitation("FW28"), last=True)
        await committed_in_group(again)
    assert set(store.data) == {"FW26", "FW28"}
    [left] = await bus.context.transport.state_list("group.venues")
    assert decode_enrolment(left.key, left.value).instance == ""


async def test_who_ends_alone_says_so_at_once(
    bus: Bus, manager: ScriptedManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(participant, "ENDED_COLLECT_SECONDS", 1_000.0)
    rooms = Rooms()
    async with bus.serve(rooms.subscriber):
        script = Script(manager, Meeting("DSOnline"))
        await script.census()
        await script.publish(Invitation("FW26"))
        await committed(script)
        assert (await ended(script)).outcome == "commit"


async def test_an_event_that_its_prepare_overtook_is_not_looked_for(
    bus: Bus, manager: ScriptedManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[object] = []
    look = Taking._look

    async def noted(self: Taking, *of_what: Any) -> set[int]:
        looked.append(of_what)
        return await look(self, *of_what)

    monkeypatch.setattr(Taking, "_look", noted)
    monkeypatch.setattr(taking, "FETCH_GRACE_SECONDS", 0.5)
    rooms = Rooms()
    async with bus.serve(rooms.subscriber):
        script = Script(manager, Meeting("DSOnline"))
        await script.census()
        script.counts = {PUBLISHER: {event_type(Invitation).name: 1}}
        script.prepare()
        script.counts = {}
        await script.publish(Invitation("FW26"))
        assert (await manager.vote(script.tx)).value == "yes"
        script.decide("commit")
        await ended(script)
    assert not looked


async def test_an_event_that_was_held_up_is_no_second_participation(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who starts before the first transaction learns its journal with the first message, and the next one, on another
    subject, may be through with that first. One member would say yes and no to the same transaction."""
    free, held, handling, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event(), asyncio.Event()
    handled: list[str] = []
    slow = tutti.Subscriber("slow")
    slow.enrol("venues", Meeting)

    @slow.on(Invitation)
    async def book(event: Invitation, tx: tutti.Branch) -> None:
        handled.append(event.room)
        handling.set()
        await go_on.wait()

    load, reads = Trust.load, 0

    async def hold_up_the_first(self: Trust) -> str:
        nonlocal reads
        reads += 1
        if reads == 1:
            held.set()
            await free.wait()
        return await load(self)

    async with bus.serve(slow), ScriptedManager(bus) as manager:
        monkeypatch.setattr(Trust, "load", hold_up_the_first)
        [entry] = await bus.context.transport.state_list("group.venues")
        script = Script(manager, Meeting("DSOnline"), group="venues")
        script.stand([decode_enrolment(entry.key, entry.value)])
        await script.publish(Invitation("FW26"))
        await held.wait()
        script.prepare()
        await handling.wait()  # of the event as the log has it
        free.set()
        await script.publish(Invitation("behind it"))  # heard after the one that was held up
        go_on.set()
        script.prepare(2)
        assert (await manager.vote(script.tx)).value in {"yes", "open"}
        script.prepare(3)
        while (vote := await manager.vote(script.tx)).round < 3:
            pass
        assert vote.value == "yes"
        script.decide("commit")
        given = await manager.next(Ended, script.tx)
        assert isinstance(given.message, Ended)
        assert (given.message.outcome, given.message.state) == ("commit", "ended")
    assert handled == ["FW26", "behind it"]


async def committed_in_group(script: Script) -> None:
    assert (await script.manager.vote(script.tx)).value == "yes"
    script.decide("commit")
    await ended(script)


async def test_ends_of_many_transactions_share_packets(bus: Bus, manager: ScriptedManager) -> None:
    rooms = Rooms()
    async with bus.serve(rooms.subscriber):
        scripts = [Script(manager, Meeting("DSOnline"), number) for number in range(1, 21)]
        for number, script in enumerate(scripts):
            await script.census()
            await script.publish(Invitation(f"room-{number}"))
            script.prepare()
            await manager.vote(script.tx)
        before = manager.packets
        for script in scripts:
            script.decide("commit")
        for script in scripts:
            await ended(script)
        assert manager.packets - before < len(scripts)
    assert len(rooms.store.data) == len(scripts)
