"""Somebody who hears every message and has no key: invents messages, and says again what others said."""

from __future__ import annotations

from collections import deque
from typing import Final, Literal

from tutti.model.messages import (
    MANAGER,
    NOBODY,
    Begin,
    Close,
    Decide,
    Dismiss,
    Ended,
    Join,
    Message,
    Prepare,
    Relay,
    Standing,
    Tally,
    To,
    Vote,
    encode,
)
from tutti.model.transaction import member_hash
from tutti.simulation.ground import Ground
from tutti.simulation.network import STRANGER, Network, Packet

REMEMBERED_COUNT: Final = 300


class Eavesdropper:
    """What it invents is about the transaction of which it just heard, so it comes at the worst moment."""

    def __init__(self, ground: Ground, network: Network) -> None:
        self._ground, self._network = ground, network
        self._heard: deque[Packet] = deque(maxlen=REMEMBERED_COUNT)
        self._rounds: dict[str, tuple[int, int]] = {}
        self._members: dict[str, dict[str, None]] = {}
        self._pseudonyms: dict[str, list[tuple[str, str]]] = {}

    def overhear(self, packet: Packet) -> None:
        self._learn(packet.message)
        self._heard.append(packet)
        ground = self._ground
        if ground.draw(ground.faults.forgery):
            self._forge(packet.message.tx)
        if ground.strikes(ground.faults.replay, "a replayed message"):
            self._replay()

    def _learn(self, message: Message) -> None:
        match message:
            case Close() | Prepare():
                asked = (message.epoch, message.round)
                self._rounds[message.tx] = max(asked, self._rounds.get(message.tx, (1, 1)))
            case Vote() | Tally() | Ended():
                self._members.setdefault(message.tx, {})[message.member] = None
            case Begin():
                self._members.setdefault(message.tx, {}).update(dict.fromkeys(message.members))
            case Join():
                self._pseudonyms.setdefault(message.tx, []).append((message.pseudonym, message.key))
            case _:
                pass

    def _replay(self) -> None:
        packet = self._ground.rng.choice(self._heard)
        tx = packet.message.tx
        if packet.signer == MANAGER:
            targets = list(self._network.audience.get(tx, ()))
        else:
            targets = list(self._network.hosts.get(tx, ()))
        for target in targets or (self._network.candidates if packet.to is To.CANDIDATES else ()):
            self._network.carry("wire", target, packet)

    def _forge(self, tx: str) -> None:
        epoch, number = self._rounds.get(tx, (1, 1))
        members = list(self._members.get(tx, ()))
        victim = self._ground.rng.choice(members) if members else member_hash(tx, "stranger")
        hosts = list(self._network.hosts.get(tx, ()))
        audience = list(self._network.audience.get(tx, ()))
        signer = self._ground.rng.choice((STRANGER, NOBODY))
        if hosts:
            lie = self._ground.rng.choice(self._to_manager(tx, epoch, number, victim))
            self._ground.fired["a forged message to a manager"] += 1
            self._network.carry("wire", self._ground.rng.choice(hosts), Packet(lie, signer))
        if audience:
            order = self._ground.rng.choice(self._to_member(tx, epoch, number))
            self._ground.fired["a forged message to a member"] += 1
            self._network.carry("wire", self._ground.rng.choice(audience), Packet(order, signer))

    def _to_manager(self, tx: str, epoch: int, number: int, victim: str) -> list[Message]:
        stranger = member_hash(tx, "stranger")
        pseudonym, key = self._ground.rng.choice(
            self._pseudonyms.get(tx, [("stranger", "a key that it does not have")])
        )
        return [
            Vote(tx, epoch, number, victim, "yes"),
            Vote(tx, epoch, number, victim, "no", "forged"),
            Vote(tx, epoch, number, victim, "open"),
            Vote(tx, epoch, number, stranger, "yes"),
            Vote(tx, epoch, number, stranger, "no", "forged"),
            Ended(tx, victim, "commit"),
            Ended(tx, victim, "abort"),
            Ended(tx, stranger, "commit"),
            Tally(tx, epoch, number, victim, 99, {}, {}, ()),
            Tally(tx, epoch, number, stranger, 99, {"Booked": 1}, {}, ()),
            Join(tx, pseudonym, key),
            Join(tx, "stranger", key),
        ]

    def _to_member(self, tx: str, epoch: int, number: int) -> list[Message]:
        outcome: Literal["commit", "abort"] = self._ground.rng.choice(("commit", "abort"))
        lie = Decide(tx, epoch, outcome)
        return [
            lie,
            lie,
            Dismiss(tx, "forged"),
            Begin(tx, epoch, (), 1e9),
            Begin(tx, epoch, tuple(self._members.get(tx, ())), 1e9),
            Close(tx, epoch, number + 1),
            Prepare(tx, epoch, number, {}, 1e9),
            Prepare(tx, epoch, number + 1, {}, 1e9),
            Standing(tx, "unknown"),
            Standing(tx, "undecided"),
            Relay(tx, (encode(lie),)),
            Relay(tx, (encode(lie),)),
        ]
