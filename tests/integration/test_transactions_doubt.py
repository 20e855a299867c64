"""The three states of doubt: whoever missed what the manager said asks its peers, who pass it on verbatim."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from tests.integration.transaction_stage import Invitation, Stage, all_idle, meeting, serving
from tutti.errors import InvalidMessage
from tutti.model.messages import MANAGER, Begin, Decide, Inquiry, Prepare, Received, Relay, decode, decode_envelope
from tutti.runtime.bus import Bus
from tutti.runtime.transactions.participant import Participants


class Wire:
    """Every envelope on the server, as it is."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.signed_by_manager: set[bytes] = set()
        self.asked: list[Inquiry] = []
        self.relayed: list[bytes] = []

    async def listen(self) -> None:
        self._listener = await self._bus.context.transport.listen(">")
        self._task = asyncio.create_task(self._hear())

    async def close(self) -> None:
        await self._listener.close()
        await self._task

    async def _hear(self) -> None:
        async for record in self._listener:
            try:
                envelopes = msgspec.msgpack.decode(record.data, type=list[bytes])
                for encoded in envelopes:
                    self._sort(encoded)
            except (msgspec.DecodeError, InvalidMessage):
                continue  # something else: an event, a status

    def _sort(self, encoded: bytes) -> None:
        envelope = decode_envelope(encoded)
        message = decode(envelope.body)
        if envelope.signer == MANAGER:
            self.signed_by_manager.add(encoded)
        if isinstance(message, Inquiry):
            self.asked.append(message)
        if isinstance(message, Relay):
            self.relayed += message.envelopes


async def in_doubt(stage: Stage, monkeypatch: pytest.MonkeyPatch, lost: type, state: str) -> None:
    """One of two members never hears this kind of message from the manager; it ends like the other all the same."""
    publisher, serves, ears = await stage.bus(), await stage.bus(), await stage.bus()
    peer, deaf = await stage.member("peer", patience=0.3), await stage.member("deaf", patience=0.3)
    hears = Participants._tell_members

    def told(self: Any, given: Received) -> None:
        if not (self.site.subscriber == "deaf" and isinstance(given.message, lost)):
            hears(self, given)

    monkeypatch.setattr(Participants, "_tell_members", told)
    wire = Wire(ears)
    await wire.listen()
    async with serving(serves, peer, deaf):
        async with meeting(publisher, 2, scope="private") as tx:
            await tx.publish(Invitation("FW26"))
            await tx.commit(wait="ended")
        await all_idle(serves)
    await wire.close()
    assert await peer.booked() == await deaf.booked() == ["FW26"]
    mine = [asked for asked in wire.asked if asked.tx == tx.id]
    assert state in {asked.state for asked in mine}, "it said what it does not know"
    kinds = {type(decode(decode_envelope(encoded).body)) for encoded in wire.relayed}
    assert lost in kinds, "a peer passed on what was lost"
    assert set(wire.relayed) <= wire.signed_by_manager, "verbatim, and nothing else"


async def test_joined_without_begin(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    await in_doubt(stage, monkeypatch, Begin, "joined")


async def test_working_without_prepare(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    await in_doubt(stage, monkeypatch, Prepare, "working")


async def test_voted_without_decision(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    await in_doubt(stage, monkeypatch, Decide, "voted")
