"""The bus: a log of events. What it acknowledged is kept; acknowledgements are lost, and the same append repeated."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tutti.model.messages import Prepare
from tutti.model.transaction import Consumed
from tutti.simulation.facts import Stored
from tutti.simulation.ground import Ground
from tutti.simulation.network import BUS, Network, Packet
from tutti.simulation.site import Site

RETRY_SECONDS = 0.5


class Kept(msgspec.Struct, frozen=True):
    """An event with what it carries."""

    tx: str
    event: Consumed
    prepare: Packet | None = None


class Append(msgspec.Struct, frozen=True):
    tx: str
    publisher: str
    type: str
    number: int
    prepare: Prepare | None = None

    @property
    def key(self) -> tuple[str, str, str, int]:
        return self.tx, self.publisher, self.type, self.number


class Log:
    """`offer` hands a stored event to everybody who listens to its transaction."""

    def __init__(self, ground: Ground, network: Network, offer: Callable[[str, Kept], None]) -> None:
        self._ground, self._network, self._offer = ground, network, offer
        self._by_key: dict[tuple[str, str, str, int], Kept] = {}
        self._by_tx: dict[str, list[Kept]] = {}
        self._sequence = 0

    def find(self, tx: str, publisher: str, event_type: str, number: int) -> Kept | None:
        return self._by_key.get((tx, publisher, event_type, number))

    def of(self, tx: str) -> list[Kept]:
        return self._by_tx.get(tx, [])

    def append(self, writer: Site, append: Append, carried: Packet | None, reply: Callable[[str], None]) -> None:
        """`reply("")` when it is acknowledged, else with the reason. It is tried until one of the two is known."""
        ground, faults = self._ground, self._ground.faults

        def again() -> None:
            writer.later(RETRY_SECONDS, lambda: self.append(writer, append, carried, reply))

        def arrive() -> None:
            if ground.strikes(faults.append_lost, "an append is lost on its way"):
                again()
                return
            if append.key not in self._by_key and ground.strikes(faults.append_refused, "an append is refused"):
                writer.later(ground.latency(), lambda: reply("the stream is full"))
                return
            self._store(append, carried)
            if ground.strikes(faults.ack_lost, "an append's acknowledgement is lost"):
                again()
                return
            writer.later(ground.latency(), lambda: reply(""))

        writer.later(ground.latency(), arrive)

    def _store(self, append: Append, carried: Packet | None) -> None:
        if append.key in self._by_key:
            return
        self._sequence += 1
        event = Consumed(append.publisher, append.type, append.number, self._sequence)
        kept = Kept(append.tx, event, carried)
        self._by_key[append.key] = kept
        self._by_tx.setdefault(append.tx, []).append(kept)
        self._ground.see(BUS, Stored(append.tx, event))
        for target in list(self._network.audience.get(append.tx, ())):
            self._offer(target, kept)
