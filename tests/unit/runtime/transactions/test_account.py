"""The account of a transaction in the log: nothing is missing, and who told whom can be read."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

import tutti
from tests.scripted_manager import Script, ScriptedManager
from tutti.model.messages import Decide, Ended, Inquiry
from tutti.resources.memory import MemoryResource, MemoryStore
from tutti.runtime.bus import Bus
from tutti.runtime.transactions import account


class Invitation(tutti.Event):
    room: str


class Meeting(tutti.TxType, events=[Invitation]):
    subject: str


@pytest.fixture(autouse=True)
def recorded(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tutti.transactions")


@pytest.fixture
async def bus() -> AsyncIterator[Bus]:
    async with tutti.connect("memory://") as opened:
        await opened.advertise(Invitation)
        yield opened


def member(name: str, *, compensatable: bool = False) -> tutti.Subscriber:
    calendar = MemoryResource("calendar", MemoryStore())
    made = tutti.Subscriber(name, resources=[calendar])

    @made.join(Meeting, compensatable=compensatable, patience=0.2)
    async def always(_: tutti.Invite[Meeting]) -> bool:
        return True

    @made.on(Invitation)
    async def book(event: Invitation, tx: tutti.Branch) -> None:
        if event.room == f"not for {name}":
            raise ValueError("it is taken")
        (await tx.enlist(calendar)).put(event.room, tx.id)

    @book.compensate
    async def release(event: Invitation, tx: tutti.Branch) -> None:
        (await tx.enlist(calendar)).put(event.room, None)

    return made


def steps(caplog: pytest.LogCaptureFixture, role: str) -> list[str]:
    return [said["step"] for said in said_by(caplog, role)]


def said_by(caplog: pytest.LogCaptureFixture, role: str) -> list[dict[str, Any]]:
    found = [vars(record) for record in caplog.records if record.name == "tutti.transactions"]
    return [said for said in found if said.get("role") == role]


async def test_a_commit_is_told_from_beginning_to_end(bus: Bus, caplog: pytest.LogCaptureFixture) -> None:
    async with bus.serve(member("rooms"), member("tickets", compensatable=True)):
        census = tutti.Census(at_least=2, at_most=2, within=2.0)
        async with bus.transaction(Meeting("DSOnline"), census=census) as tx:
            await tx.publish(Invitation("FW26"))
            await tx.commit(wait="ended")
    worked = ["joined", "handling", "handled"]
    assert steps(caplog, "rooms") == [*worked, "prepared", "voted", "learned", "finished"]
    assert steps(caplog, "tickets") == [*worked, "committed", "voted", "learned"]
    managed = steps(caplog, "manager")
    assert [step for step in managed if step not in {"heard", "ended", "finished"}] == [
        *("invited", "begun", "published", "asked", "proposed", "decided", "announced", "over")
    ]
    assert (managed.count("heard"), managed.count("ended")) == (2, 2)
    [begun] = [said for said in said_by(caplog, "manager") if said["step"] == "begun"]
    assert {said_by(caplog, name)[0]["member"] for name in ("rooms", "tickets")} == set(begun["members"])
    assert {said["tx"] for role in ("manager", "rooms", "tickets") for said in said_by(caplog, role)} == {tx.id}


async def test_an_abort_says_why_and_what_was_undone(bus: Bus, caplog: pytest.LogCaptureFixture) -> None:
    async with bus.serve(member("rooms"), member("tickets", compensatable=True)):
        census = tutti.Census(at_least=2, at_most=2, within=2.0)
        with pytest.raises(tutti.TransactionAborted):
            async with bus.transaction(Meeting("DSOnline"), census=census) as tx:
                await tx.publish(Invitation("not for rooms"))
    assert steps(caplog, "rooms")[-3:] == ["voted", "finished", "learned"]
    [voted] = [said for said in said_by(caplog, "rooms") if said["step"] == "voted"]
    assert (voted["vote"], voted["reason"]) == ("no", "ValueError: it is taken")
    [decided] = [said for said in said_by(caplog, "manager") if said["step"] == "decided"]
    assert decided["outcome"] == "abort"
    assert f"{tx.id}: rooms votes no: ValueError: it is taken" in caplog.messages


async def test_work_that_was_committed_at_once_is_undone_aloud(bus: Bus, caplog: pytest.LogCaptureFixture) -> None:
    async with ScriptedManager(bus) as manager, bus.serve(member("tickets", compensatable=True)):
        script = Script(manager, Meeting("DSOnline"))
        await script.census()
        await script.publish(Invitation("FW26"))
        script.prepare()
        await manager.vote(script.tx)
        script.decide("abort")
        while getattr((await manager.next(Ended, script.tx)).message, "state", "") != "ended":
            pass
    assert steps(caplog, "tickets")[-4:] == ["voted", "learned", "undoing", "undone"]


async def test_who_told_whom_can_be_read(bus: Bus, caplog: pytest.LogCaptureFixture) -> None:
    async with ScriptedManager(bus) as manager, bus.serve(member("ann"), member("bob")):
        recovery = await manager.channel.listen(manager.layout.recovery("j1"))
        script = Script(manager, Meeting("DSOnline"))
        await script.census(2)
        await script.publish(Invitation("FW26"))
        script.prepare()
        for _ in range(2):
            await manager.vote(script.tx)
        [asked] = manager.channel.open((await anext(aiter(recovery))).data)
        assert isinstance(asked.message, Inquiry)
        manager.say(asked.message.inbox, Decide(script.tx, 1, "commit"))  # to this one alone
        for _ in range(2):
            await manager.next(Ended, script.tx)
        await recovery.close()
    learned = {name: next(s for s in said_by(caplog, name) if s["step"] == "learned") for name in ("ann", "bob")}
    [first] = [name for name, said in learned.items() if not said["peer"]]
    [second] = {"ann", "bob"} - {first}
    assert learned[second]["peer"] == learned[first]["member"] == asked.message.member
    assert learned[second]["member"] in {said["peer"] for said in said_by(caplog, first) if said["step"] == "told"}
    assert "doubted" in steps(caplog, second)


async def test_nothing_is_put_into_words_that_nobody_reads(caplog: pytest.LogCaptureFixture) -> None:
    assert account.wanted()
    caplog.set_level(logging.WARNING, "tutti.transactions")
    assert not account.wanted()
