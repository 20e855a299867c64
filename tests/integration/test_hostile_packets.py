"""What anybody may put on the control subjects: managers and members go on, and nobody believes it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

import tutti
from tutti.model.messages import Decide, Ended, Envelope, Inquiry, Join, Message, Prepare, Standing, Vote, encode
from tutti.model.subjects import token
from tutti.model.transaction import journal_of
from tutti.runtime.transactions.channel import pack, signed
from tutti.runtime.transactions.keys import SigningKey
from tutti.testing.kit import BusKit

ONE = tutti.Census(at_most=1)
STRANGER = SigningKey(b"s" * 32)
BOTTOMLESS = b"\x91" * 50_000 + b"\xc0"


class Seat(tutti.Event):
    number: int


class Trip(tutti.TxType, events=[Seat]):
    to: str


@pytest.fixture
async def ferry(tutti_bus: BusKit) -> AsyncIterator[tutti.Subscriber]:
    ferry = tutti.Subscriber("ferry")

    @ferry.join(Trip)
    async def take_part(invite: tutti.Invite[Trip]) -> bool:
        return True

    @ferry.on(Seat)
    async def take(event: Seat, tx: tutti.Branch) -> None: ...

    await tutti_bus.advertise(Seat)
    async with tutti_bus.serve(ferry):
        yield ferry


def packets(tx: str) -> list[bytes]:
    """Nonsense, and sense that the wrong one says."""
    lies: list[Message] = [
        Inquiry(tx, "somebody", "voted", "a subject with spaces"),
        Inquiry(tx, "somebody", "voted", "$JS.API.STREAM.PURGE.tutti-status"),
        Inquiry("\x00", "\ud7ff", "voted", "_INBOX.here"),
        Inquiry(f"{journal_of(tx)}-\x00", "somebody", "voted", "_INBOX.here"),
        Inquiry("elsewhere-r-1", "somebody", "voted", "_INBOX.here"),
        Decide(tx, 9, "abort"),
        Prepare(tx, 9, 9, {}, 0.0),
        Vote(tx, 1, 1, "manager", "no"),
        Ended(tx, "manager", "abort"),
        Standing(tx, "unknown"),
        Join(tx, "\x00", STRANGER.public, wrap="no key"),
    ]
    envelopes = [signed(lie, key, manager=boast) for lie in lies for key in (STRANGER, None) for boast in (True, False)]
    invitation = b"\x84\xa4kind\xa6invite\xa2tx\xa1a\xa4type\xa1a\xa4data" + BOTTOMLESS
    envelopes += [encode(Envelope(b"\x82\xa4kind\xa6invite\xa2tx\xa1\xff")), encode(Envelope(invitation))]
    alone = [b"", b"\xff", b"\x91\xa1\xff", BOTTOMLESS, b"\x82\xa4body\xc4\x01a\xa6signer\xa1\xff", b"\x00" * 500_000]
    return [*(pack([envelope]) for envelope in envelopes), *envelopes, *alone]


async def test_a_transaction_commits_through_all_of_it(tutti_bus: BusKit, ferry: tutti.Subscriber) -> None:
    transport, layout = tutti_bus.context.transport, tutti_bus.context.layout
    coordinator = await tutti_bus.coordinator()
    await coordinator.host()
    async with tutti_bus.transaction(Trip("Texel"), census=ONE) as tx:
        subjects = [
            layout.manager(tx.id),
            layout.members(token("Trip"), tx.id),
            layout.invitations(token("Trip")),
            layout.recovery(coordinator.journal.id),
            layout.heartbeat("somebody"),
            layout.hosts,
            layout.host(tx.id),
            layout.of_type("default", token("Seat")).removesuffix(">") + "_",
            layout.of_type("default", token("Seat")).removesuffix(">") + tx.id + ".0",
        ]
        for subject in subjects:
            for packet in packets(tx.id):
                transport.emit(subject, {}, packet)
        await tutti_bus.settle()
        await tx.publish(Seat(1))
    await tutti_bus.settle()
    assert [event.number for event in tutti_bus.handled("take")] == [1]
    assert tutti_bus.health().state == "ok", tutti_bus.health().failures


@pytest.mark.parametrize("wrap", ["no key", "AAAA", "A" * 43, "\x00é"])
async def test_a_stranger_for_whom_nothing_can_be_wrapped(
    tutti_bus: BusKit, ferry: tutti.Subscriber, wrap: str
) -> None:
    """It takes part, as anybody may, and gets no key. The transaction begins all the same."""
    transport, layout = tutti_bus.context.transport, tutti_bus.context.layout
    listener = await transport.listen(layout.invitations(token("Trip")))
    begun = asyncio.ensure_future(tutti_bus.transaction(Trip("Texel"), census=tutti.Census(at_most=2)).__aenter__())
    async for record in listener:
        [given] = (await tutti_bus.coordinator()).channel.open(record.data)
        join = Join(given.message.tx, "stranger", STRANGER.public, wrap=wrap)
        transport.emit(layout.manager(join.tx), {}, pack([signed(join, STRANGER)]))
        break
    async with asyncio.timeout(5):
        tx = await begun
    assert len(tx.members) == 2
    await tx.abort()
    await tutti_bus.settle()
    assert tutti_bus.health().state == "ok", tutti_bus.health().failures
    await listener.close()
