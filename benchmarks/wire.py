"""Messages per committed transaction, as the server counts them.

The server's own counters (`/connz`) tell how many messages the publisher's and the members' connections sent; a witness
that hears everything tells what they were. Counted like the paper: a message to everybody is one. Listed apart are
statuses and reports of the end, which many transactions share or which may be late, and heartbeats, which belong to
none.
"""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import nats

import tutti
from benchmarks.journeys import TRAVELLER, Booking, Journey, Place
from benchmarks.travel_agents import Agents
from tutti.bus.embedded import Embedded
from tutti.model.messages import decode, decode_envelope

GROUP: Final = "group"
LAST: Final = "group, last=True"
CENSUS: Final = "census"
WAYS: Final = (GROUP, LAST, CENSUS)
EXPECTED: Final = {GROUP: (1, 3), LAST: (1, 2), CENSUS: (2, 5)}  # so many per member, and so many more
TRANSACTIONS: Final = 20
_NAMESPACE: Final = "tutti"
_APART: Final = {"status": "statuses", "Ended": "acknowledgements", "beat": "heartbeats"}
_packets: Final = msgspec.msgpack.Decoder(list[bytes])


class Counted(msgspec.Struct, frozen=True):
    """Per transaction. `sent`: by the server's counters, everything that both connections published; `kinds` is what
    the witness saw."""

    members: int
    way: str
    protocol: float
    statuses: float
    acknowledgements: float
    heartbeats: float
    sent: float
    kinds: dict[str, float]


def expected(counted: Counted) -> int:
    per_member, more = EXPECTED[counted.way]
    return per_member * counted.members + more


class Witness:
    """Hears every message once."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self._heard = asyncio.Event()

    async def hear(self, message: Any) -> None:
        _, area, *rest = message.subject.split(".")
        if area == "tx":
            self.kinds["event"] += 1
        elif area == "control" and rest[0] != "beat":
            names = {type(decode(decode_envelope(one).body)).__name__ for one in _packets.decode(message.data)}
            self.kinds["+".join(sorted(names))] += 1
        else:
            self.kinds[rest[0] if area == "control" else area] += 1
        self._heard.set()

    async def statuses(self, number: int) -> None:
        """They follow the decisions in their own time."""
        while self.kinds["status"] < number:
            self._heard.clear()
            await self._heard.wait()


async def count(place: Place, members: Sequence[int]) -> list[Counted]:
    """For each number of members: with a standing group, with `last=True`, and with a census."""
    counted: list[Counted] = []
    async with await Embedded.acquire(place.data) as server:
        for number in members:
            agents = Agents([(str(place.data), f"--idle={number}")])
            try:
                async with tutti.connect(data=place.data, name="counted-publisher") as bus:
                    await bus.advertise(Booking)
                    await asyncio.to_thread(agents.wait)
                    counted += [await _counted(bus, server, number, way) for way in WAYS]
            finally:
                agents.end()
    return counted


async def _counted(bus: tutti.Bus, server: Embedded, number: int, way: str) -> Counted:
    census = tutti.Census(at_least=number, at_most=number, within=10.0)
    who: dict[str, Any] = {"census": census} if way == CENSUS else {"group": f"idle-{number}"}
    await _transact(bus, who, way)  # everybody is known now, and everything is open
    witness, client = Witness(), await nats.connect(server.current_url())
    await client.subscribe(f"{_NAMESPACE}.>", cb=witness.hear)
    await client.flush()
    before = await asyncio.to_thread(_sent, server)
    for _ in range(TRANSACTIONS):
        await _transact(bus, who, way)
    await witness.statuses(TRANSACTIONS)
    after = await asyncio.to_thread(_sent, server)
    await client.close()
    kinds = {kind: count / TRANSACTIONS for kind, count in sorted(witness.kinds.items())}
    apart = {name: kinds.get(kind, 0.0) for kind, name in _APART.items()}
    return Counted(
        members=number,
        way=way,
        protocol=round(sum(kinds.values()) - sum(apart.values()), 3),
        sent=(after - before) / TRANSACTIONS,
        kinds=kinds,
        **apart,
    )


async def _transact(bus: tutti.Bus, who: dict[str, Any], way: str) -> None:
    async with bus.transaction(Journey("Turin"), **who) as tx:
        await tx.publish(Booking(1, TRAVELLER), last=way == LAST)
        await tx.commit(wait="ended")


def _sent(server: Embedded) -> int:
    """Messages that Tutti's connections have published. The witness publishes nothing."""
    with urllib.request.urlopen(f"{server.monitor_url}/connz?limit=1000") as page:  # noqa: S310  our own server
        connections = json.load(page)["connections"]
    return sum(connection["in_msgs"] for connection in connections)
