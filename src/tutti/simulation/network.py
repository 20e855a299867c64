"""How messages travel: they are lost, doubled, late, out of order, or cut off; and somebody listens."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from tutti.model.messages import MANAGER, NOBODY, Inquiry, Message, Received, Send, To, WakeAt, encode
from tutti.simulation.facts import Sent, Stirred
from tutti.simulation.faults import Partition
from tutti.simulation.ground import Ground
from tutti.simulation.site import Alarm, Site

STRANGER = "stranger's key"
BUS = "bus"  # events come from here; no partition cuts it off


class Packet(msgspec.Struct, frozen=True):
    """As the receiver's driver sees it, with the signature checked. `verbatim` of what the manager signed."""

    message: Message
    signer: str
    verbatim: bytes = b""
    to: To = To.MEMBERS


class Receiver(Protocol):
    """A site that hears messages."""

    name: str
    up: bool

    @property
    def awake(self) -> bool: ...

    def later(self, delay: float, act: Callable[[], None]) -> None: ...

    def receive(self, packet: Packet) -> None: ...


class Network:
    """`audience`: who listens to a transaction's subject. `hosts`: who listens to its manager's. `signed`: all that the
    journal's key ever signed; what is not in here cannot pass for it."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._receivers: dict[str, Receiver] = {}
        self._arrived: dict[tuple[str, str], float] = {}
        self._partitions: list[Partition] = []
        self.audience: dict[str, dict[str, None]] = {}
        self.hosts: dict[str, dict[str, None]] = {}
        self.candidates: tuple[str, ...] = ()
        self.recovery: tuple[str, ...] = ()
        self.signed: set[bytes] = set()
        self.overhear: Callable[[Packet], None] = _nobody

    def attach(self, receiver: Receiver) -> None:
        self._receivers[receiver.name] = receiver

    # Partitions

    def cut(self, partition: Partition) -> None:
        self._partitions.append(partition)
        kind = "one-way" if partition.one_way else "full"
        self._ground.fired[f"{kind} partition"] += 1
        self._ground.say("network", "", f"{kind} partition: {', '.join(partition.apart)} are apart")

    def mend(self, partition: Partition) -> None:
        if partition in self._partitions:
            self._partitions.remove(partition)
            self._ground.say("network", "", f"{', '.join(partition.apart)} are back")

    def mend_all(self) -> None:
        self._partitions.clear()

    def blocked(self, source: str, target: str) -> bool:
        for partition in self._partitions:
            out, into = source in partition.apart, target in partition.apart
            if out != into and (out or not partition.one_way):
                return True
        return False

    def hears(self, listener: str, speaker: str) -> bool:
        """Whether heartbeats of the speaker come through."""
        return self._receivers[speaker].awake and not self.blocked(speaker, listener)

    # Messages

    def sign(self, message: Message) -> bytes:
        """With the journal's key."""
        verbatim = encode(message)
        self.signed.add(verbatim)
        return verbatim

    def cast(self, source: str, send: Send, signer: str) -> None:
        """By an honest process."""
        message = send.message
        self._ground.see(source, Sent(message.tx, source, message, signer))
        verbatim = self.sign(message) if signer == MANAGER else b""
        packet = Packet(message, signer, verbatim, send.to)
        for target in self._targets(send):
            if target != source:
                self.carry(source, target, packet)
        self.overhear(packet)

    def _targets(self, send: Send) -> Iterable[str]:
        tx = send.message.tx
        match send.to:
            case To.CANDIDATES:
                return self.candidates
            case To.MEMBERS if isinstance(send.message, Inquiry):
                return [*self.audience.get(tx, ()), *self.hosts.get(tx, ())]
            case To.MEMBERS:
                return list(self.audience.get(tx, ()))
            case To.MANAGER:
                return list(self.hosts.get(tx, ()))
            case To.RECOVERY:
                return (self._ground.rng.choice(self.recovery),)
            case To.INBOX:
                return (send.inbox,)

    def carry(self, source: str, target: str, packet: Packet) -> None:
        receiver = self._receivers[target]
        self.convey(source, target, lambda: receiver.receive(packet))

    def convey(self, source: str, target: str, arrive: Callable[[], None]) -> None:
        """Once, never, or twice."""
        ground, faults = self._ground, self._ground.faults
        if ground.strikes(faults.loss, "a message is lost"):
            return
        twice = ground.strikes(faults.duplication, "a message comes twice")
        for _ in range(2 if twice else 1):
            self._convey_once(source, target, arrive)

    def _convey_once(self, source: str, target: str, arrive: Callable[[], None]) -> None:
        ground, faults, link = self._ground, self._ground.faults, (source, target)
        site = self._receivers[target]
        time = ground.now + ground.latency()
        if ground.strikes(faults.delay, "a message is late"):
            time += ground.rng.uniform(1.0, 8.0)
        before = self._arrived.get(link, 0.0)
        if time < before:
            if faults.reordering:
                ground.fired["a message overtakes another"] += 1
            else:
                time = before
        self._arrived[link] = max(before, time)

        def reach() -> None:
            if site.up and not self.blocked(source, target):
                site.later(0.0, arrive)

        ground.agenda.at(time, reach)


def stirred(site: Site, alarm: Alarm, given: object, effects: Iterable[object], *, moved: bool) -> Stirred | None:
    """Whether a stranger's message had an effect. What was due anyway at this time does not count."""
    forged = isinstance(given, Received) and given.signer in {STRANGER, NOBODY}
    if not forged or not isinstance(given, Received) or (alarm.time is not None and alarm.time <= site.now):
        return None
    done = tuple(type(effect).__name__ for effect in effects if not isinstance(effect, WakeAt))
    if not done and not moved:
        return None
    return Stirred(given.message.tx, site.name, type(given.message).__name__, given.signer, done)


def _nobody(packet: Packet) -> None:
    pass
