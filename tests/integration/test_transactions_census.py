"""Who takes part: censuses on a real server, by real subscribers."""

from __future__ import annotations

import asyncio
from typing import Any, Self

import pytest

import tutti
from tests.integration.transaction_stage import (
    PATIENCE_SECONDS,
    Invitation,
    Meeting,
    Stage,
    Stray,
    all_idle,
    fails_with,
    meeting,
    serving,
    until,
)
from tutti.errors import CensusFailed, DeclarationError
from tutti.model.messages import Begin, Decide, Join, Prepare
from tutti.model.transaction import member_hash
from tutti.runtime.bus import Bus
from tutti.runtime.transactions.channel import Channel
from tutti.runtime.transactions.trust import Trust


class Overheard:
    """All protocol messages on the wire of a namespace."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.messages: list[tuple[str, Any, str]] = []  # subject, message, signer
        self.raw = b""

    async def __aenter__(self) -> Self:
        context = self._bus.context
        trust = Trust(context.transport)
        channel = Channel(context.transport, context.clock, lambda: trust.key)
        self._listener = await channel.listen(f"{context.layout.namespace}.control.>")

        async def hear() -> None:
            async for record in self._listener:
                if ".heartbeat." in record.subject or not record.data:
                    continue
                await trust.load()
                self.raw += record.data
                self.messages += [(record.subject, one.message, one.signer) for one in channel.open(record.data)]

        self._task = asyncio.create_task(hear())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._listener.close()
        await self._task

    def of(self, kind: type) -> list[Any]:
        return [message for _, message, _ in self.messages if isinstance(message, kind)]


async def test_who_matches_and_agrees_takes_part_and_nobody_else(stage: Stage) -> None:
    bus = await stage.bus()
    joins = await stage.member("joins", where="subject = 'DSOnline' AND seats > 5")
    other = await stage.member("other", where="subject = 'Elsewhere'")
    declines = await stage.member("declines")
    declines.answer = False
    async with serving(bus, joins, other, declines), meeting(bus, 1) as tx:
        assert len(tx.members) == 1
        await tx.publish(Invitation("FW26"))
        await tx.commit(wait="ended")
    assert [await member.booked() for member in (joins, other, declines)] == [["FW26"], [], []]
    assert [len(member.invites) for member in (joins, other, declines)] == [1, 0, 1]
    assert other.calls == declines.calls == []


async def test_the_first_win_and_the_others_behave_as_if_they_had_never_joined(stage: Stage) -> None:
    bus = await stage.bus()
    members = [await stage.member(f"rooms-{number}", patience=0.2) for number in range(4)]
    async with Overheard(bus) as heard, serving(bus, *members):
        async with meeting(bus, 2) as tx:
            await until(lambda: all(member.invites for member in members), "all were asked")
            await tx.publish(Invitation("FW26"))
            await tx.commit(wait="ended")
        booked = [await member.booked() for member in members]
        assert sorted(booked) == [[], [], ["FW26"], ["FW26"]]
        assert [member.calls for member in members] == booked
        # Nobody of those outside is left with anything to do.
        await all_idle(bus)
        [begin] = {str(message.members): message for message in heard.of(Begin)}.values()
        assert len(begin.members) == 2


async def test_the_begin_carries_hashes_and_no_pseudonym_or_name(stage: Stage) -> None:
    bus = await stage.bus()
    known = await stage.member("known", identity="room-service")
    unknown = await stage.member("unknown")
    async with Overheard(bus) as heard, serving(bus, known, unknown):
        for _ in range(2):
            async with meeting(bus, 2) as tx:
                await tx.publish(Invitation("FW26"))
        joins = heard.of(Join)
        assert {join.name for join in joins} == {"room-service", ""}
        assert len({join.pseudonym for join in joins}) == 4, "a pseudonym is for one transaction"
        assert len({join.key for join in joins}) == 4
        for begin in heard.of(Begin):
            mine = [join.pseudonym for join in joins if join.tx == begin.tx]
            assert sorted(begin.members) == sorted(member_hash(begin.tx, pseudonym) for pseudonym in mine)
        said = repr(heard.of(Begin) + heard.of(Prepare) + heard.of(Decide))
        assert not any(join.pseudonym in said for join in joins)
        assert "room-service" not in said


async def test_too_few_fail_and_their_replies_are_told(stage: Stage) -> None:
    bus = await stage.bus()
    cheap = await stage.member("cheap", identity="cheap")
    cheap.answer = {"price": 10}
    async with serving(bus, cheap):
        with fails_with(CensusFailed) as caught:
            async with bus.transaction(Meeting("DSOnline"), census=tutti.Census(at_least=2, within=0.5)):
                raise AssertionError("it must not begin")
        assert [(reply.name, reply.data) for reply in caught.value.replies] == [("cheap", {"price": 10})]
        await all_idle(bus)  # who had joined was told
    assert cheap.calls == []


@pytest.mark.parametrize("most", [15, 5])
async def test_a_predicate_over_the_offers_decides(stage: Stage, most: int) -> None:
    bus = await stage.bus()
    one, two = await stage.member("one"), await stage.member("two")
    one.answer, two.answer = {"price": 10}, {"price": 20}
    rule = tutti.Census(
        at_least=2,
        at_most=2,
        within=PATIENCE_SECONDS,
        predicate=lambda offers: min(offer.data["price"] for offer in offers) <= most,
    )
    async with serving(bus, one, two):
        if most == 15:
            async with bus.transaction(Meeting("DSOnline"), census=rule) as tx:
                await tx.publish(Invitation("FW26"))
                await tx.commit(wait="ended")
            assert await one.booked() == await two.booked() == ["FW26"]
        else:
            with fails_with(CensusFailed) as caught:
                async with bus.transaction(Meeting("DSOnline"), census=rule):
                    raise AssertionError("it must not begin")
            assert sorted(reply.data["price"] for reply in caught.value.replies) == [10, 20]


async def test_the_named_are_waited_for_and_one_that_is_missing_fails_the_census(stage: Stage) -> None:
    bus = await stage.bus()
    anna, ben = await stage.member("anna", identity="anna"), await stage.member("ben", identity="ben")
    async with serving(bus, anna, ben):
        rule = tutti.Census(named=frozenset({"anna", "ben"}), within=PATIENCE_SECONDS)
        async with bus.transaction(Meeting("DSOnline"), census=rule) as tx:
            assert {member.name for member in tx.members} == {"anna", "ben"}
            await tx.publish(Invitation("FW26"))
            await tx.commit(wait="ended")
        absent = tutti.Census(named=frozenset({"anna", "carl"}), within=0.5)
        with fails_with(CensusFailed, match="carl") as caught:
            async with bus.transaction(Meeting("DSOnline"), census=absent):
                raise AssertionError("it must not begin")
        assert {reply.name for reply in caught.value.replies} == {"anna", "ben"}


async def test_an_event_that_the_type_does_not_name_is_refused_to_publisher_and_member(stage: Stage) -> None:
    bus = await stage.bus()
    await bus.advertise(Stray)
    rooms = await stage.member("rooms")
    tried: list[str] = []

    async def strays(event: Invitation, tx: tutti.Branch) -> None:
        try:
            await tx.publish(Stray("hello"))
        except DeclarationError as error:
            tried.append(error.what)

    rooms.subscriber.on(Invitation, name="strays")(strays)
    async with serving(bus, rooms), meeting(bus, 1) as tx:
        with pytest.raises(DeclarationError, match="Stray is not among the events of Meeting"):
            await tx.publish(Stray("hello"))
        await tx.publish(Invitation("FW26"))
        await tx.commit(wait="ended")
    assert await rooms.booked() == ["FW26"]
    [complaint] = tried
    assert "Stray is not among the events of Meeting" in complaint
