"""A subscriber's process: it drives one `Participation` for each transaction, as the runtime does.

Durable are its database and its own log; the key of a group is too, that of a census dies with the process."""

from __future__ import annotations

from typing import assert_never

import msgspec

from tutti.control.participation import messages as p
from tutti.control.participation.life import Stage
from tutti.control.participation.machine import Participation
from tutti.model.messages import (
    MANAGER,
    Close,
    Decide,
    Invite,
    Message,
    Prepare,
    Received,
    Relay,
    Send,
    Ticked,
    WakeAt,
    decode,
)
from tutti.model.transaction import PUBLISHER, Outcome, ParticipantRecord, member_hash
from tutti.simulation.facts import HeuristicShown, Joined, OperatorResolved
from tutti.simulation.ground import Ground
from tutti.simulation.log import Kept
from tutti.simulation.network import BUS, Network, Packet, stirred
from tutti.simulation.operations import Operations
from tutti.simulation.site import Alarm
from tutti.simulation.workloads import Habits
from tutti.simulation.workplace import Workplace

REREAD_SECONDS = 2.0  # an event that did not come is offered again
PATIENCE_SECONDS = 5.0
FETCH_ATTEMPTS_COUNT = 3
PARKED_SECONDS = 5.0  # until the operator has a compensation tried again
OVER = frozenset({Stage.ENDED, Stage.FORGOTTEN})


class Standing(msgspec.Struct, frozen=True):
    """What an event says about the transaction of a group."""

    group: str
    deadline: float


class Node:
    """One participation."""

    def __init__(self, part: p.Part, machine: Participation, alarm: Alarm, operations: Operations) -> None:
        self.part, self.machine, self.alarm, self.operations = part, machine, alarm, operations

    @property
    def place(self) -> str:
        return self.machine.member


class Subscriber(Workplace):
    """`groups`: what it knows of transactions of its groups, from their events."""

    def __init__(self, name: str, ground: Ground, network: Network, habits: Habits) -> None:
        super().__init__(name, ground, habits)
        self._network = network
        self.groups: dict[str, Standing] = {}
        self.nodes: dict[str, Node] = {}
        self._got: set[tuple[str, int]] = set()

    @property
    def key(self) -> str:
        """Of its enrolment in groups."""
        return f"key of {self.name}"

    def place_in(self, tx: str) -> str:
        """Its hash in a transaction of a group."""
        return member_hash(tx, self.name)

    # Life

    def lose(self) -> None:
        for node in self.nodes.values():
            node.operations.die()
        self.nodes.clear()
        self._got.clear()
        self.database.lose_sessions()

    def begin(self) -> None:
        for tx, place, number in self.database.prepared():  # what was prepared and never voted for
            record = self.records.get(place)
            if record is None or number not in record.branches:
                self.database.roll_back(tx, place, (number,))
        for record in list(self.records.values()):
            if record.state in {"working", "voted"} and self.up:
                self._recover(record)
        for tx, sites in self._network.audience.items():
            if self.name in sites:
                for kept in self.log.of(tx):
                    self.offer(kept)

    def _recover(self, record: ParticipantRecord) -> Node | None:
        part = msgspec.structs.replace(
            self._part(record.tx, record.pseudonym, record.key, record.deadline), group=record.group
        )
        node = self._host(part, Participation.recovered(part, record))
        self.tell(node, p.Recovered(self.now, self.heuristics.get(node.place)))
        return self.nodes.get(record.tx)

    def _part(self, tx: str, pseudonym: str, key: str, deadline: float) -> p.Part:
        habits = self.habits
        return p.Part(
            tx=tx,
            pseudonym=pseudonym,
            key=key,
            inbox=self.name,
            deadline=deadline,
            handles=habits.handles,
            compensatable=habits.compensatable,
            early_commit=habits.early_commit,
            patience=PATIENCE_SECONDS,
        )

    def _host(self, part: p.Part, machine: Participation) -> Node:
        alarm = self.alarm(lambda now: self.tell(node, Ticked(now)))
        operations = Operations(self, part, machine, lambda given: self.tell(node, given))
        node = Node(part, machine, alarm, operations)
        self.nodes[part.tx] = node
        return node

    # What it hears

    def receive(self, packet: Packet) -> None:
        message = packet.message
        match message:
            case Invite():
                self._invited(packet, message)
            case Relay():
                self._open(message)
            case _:
                node = self.nodes.get(message.tx) or self._awaken(message.tx, packet)
                if node is not None:
                    self.tell(node, Received(message, packet.signer, self.now, packet.verbatim))

    def _open(self, relay: Relay) -> None:
        for envelope in relay.envelopes:
            if self.believes(envelope) and self.up:
                self.receive(Packet(decode(envelope), MANAGER, envelope))

    def believes(self, envelope: bytes) -> bool:
        """Whether the manager signed it."""
        return envelope in self._network.signed

    def _invited(self, packet: Packet, invite: Invite) -> None:
        known = invite.tx in self.nodes or any(record.tx == invite.tx for record in self.records.values())
        if packet.signer != MANAGER or known or not self.ground.draw(self.habits.joins):
            return
        pseudonym = f"{self.name}#{self.incarnation} in {invite.tx}"
        part = self._part(invite.tx, pseudonym, f"key of {pseudonym}", invite.deadline)
        self._network.audience.setdefault(invite.tx, {})[self.name] = None
        node = self._host(part, Participation(part))
        self.introduce(invite.tx, node.place, part.key)
        self.tell(node, p.Accepted(self.now, name=self.name, instance=f"{self.name}#{self.incarnation}"))

    def introduce(self, tx: str, place: str, key: str) -> None:
        habits = self.habits
        self.ground.see(self.name, Joined(tx, place, key, self.name, habits.handles, habits.compensatable))

    def _awaken(self, tx: str, packet: Packet | None) -> Node | None:
        """A transaction that no machine is at work for: ended here, or of a group and not heard of before."""
        place = self.place_in(tx)
        record = next((r for r in self.records.values() if r.tx == tx), None)
        if record is not None:
            return self._recover(record)
        asked = packet.message if packet is not None and packet.signer == MANAGER else None
        standing = self.groups.get(tx)
        if standing is None or (packet is not None and not isinstance(asked, Prepare | Close | Decide)):
            return None
        epoch = _epoch(asked)
        part = msgspec.structs.replace(
            self._part(tx, self.name, self.key, standing.deadline), group=standing.group, epoch=epoch
        )
        node = self._host(part, Participation(part))
        assert node.place == place  # noqa: S101  the hash that the publisher used
        self.tell(node, p.Enrolled(self.now))
        return self.nodes.get(tx)

    # Events

    def offer(self, kept: Kept) -> None:
        """The bus has it; it is offered until it was taken."""
        if self.habits.handles.count(kept.event.type) == 0 and kept.prepare is None:
            return
        if not self.up or (kept.tx, kept.event.sequence) in self._got:
            return
        self._network.convey(BUS, self.name, lambda: self._take(kept))
        self.later(REREAD_SECONDS, lambda: self.offer(kept))

    def _take(self, kept: Kept) -> None:
        self._got.add((kept.tx, kept.event.sequence))
        if self.nodes.get(kept.tx) is None and self._awaken(kept.tx, None) is None:
            return
        if kept.event.type in self.habits.handles:
            self._arrived(kept)
        node = self.nodes.get(kept.tx)
        if kept.prepare is not None and node is not None:
            self.tell(node, Received(kept.prepare.message, MANAGER, self.now, kept.prepare.verbatim))

    def _arrived(self, kept: Kept) -> None:
        node = self.nodes.get(kept.tx)
        if node is not None:
            deferred = self.habits.defers and kept.event.publisher == PUBLISHER
            self.tell(node, p.Arrived(kept.event, self.now, deferred))

    def read_status(self, tx: str) -> None:
        """`work_ended` stands on the log."""
        node = self.nodes.get(tx)
        if node is not None:
            self.tell(node, p.WorkEnded(self.now))

    # What it does

    def tell(self, node: Node, given: p.Input) -> None:
        ground, born = self.ground, self.incarnation
        if self.nodes.get(node.part.tx) is not node:
            return
        ground.say(self.name, node.part.tx, given)
        before = node.machine.stage
        effects = node.machine.step(given)
        moved = node.machine.stage is not before
        if (wrong := stirred(self, node.alarm, given, effects, moved=moved)) is not None:
            ground.see(self.name, wrong)
        if ground.scenario.self_checks:
            node.machine.check()
        for effect in effects:
            down = ground.crash_due("member", effect, "before")
            if down is not None:
                self.crash(down)
                return
            ground.say(self.name, node.part.tx, effect)
            self._perform(node, effect)
            if self.incarnation != born:
                return
            if not node.operations.takes(effect) and (down := ground.crash_due("member", effect, "after")) is not None:
                self.crash(down)
                return

    def _perform(self, node: Node, effect: p.Effect) -> None:
        tx = node.part.tx
        match effect:
            case Send():
                self._network.cast(self.name, effect, node.part.key)
            case WakeAt():
                node.alarm.set(effect.time)
            case p.Fetch():
                for number in effect.numbers:
                    self._fetch(node, effect, number, FETCH_ATTEMPTS_COUNT)
            case p.Publish():
                node.operations.publish(effect)
            case p.Park():
                self.later(PARKED_SECONDS, lambda: self._resume(node))
            case p.RecordHeuristic():
                self.heuristics.setdefault(node.place, effect.finished)
                self.ground.see(self.name, HeuristicShown(tx, node.place, effect.finished, effect.decided))
            case p.Forget():
                if self.habits.forgetful:
                    self.nodes.pop(tx, None)
            case p.Stuck():
                pass
            case (
                p.Handle()
                | p.PrepareResources()
                | p.CommitWork()
                | p.WriteLog()
                | p.CommitResources()
                | p.RollbackResources()
                | p.RunCompensator()
                | p.CloseLog()
            ):
                node.operations.enqueue(effect)
            case _:
                assert_never(effect)

    def _fetch(self, node: Node, fetch: p.Fetch, number: int, attempts: int) -> None:
        def look() -> None:
            found = self.log.find(node.part.tx, fetch.publisher, fetch.type, number)
            if found is not None:
                self._arrived(found)
            elif attempts > 1:
                self.later(REREAD_SECONDS / 2, lambda: self._fetch(node, fetch, number, attempts - 1))
            else:
                self.tell(node, p.EventGone(fetch.publisher, fetch.type, number, self.now))

        self.later(self.ground.latency(), look)

    def _resume(self, node: Node) -> None:
        """The operator had the compensator mended, and says so."""
        self.mended = True
        self.tell(node, p.CompensationResumed(self.now))

    def resolve(self, tx: str, outcome: Outcome) -> None:
        """The operator's word. He is shown what the database holds: a branch that is not there (it was committed before
        a crash, perhaps) cannot be resolved."""
        node = self.nodes.get(tx)
        if node is not None and node.machine.stage is Stage.VOTED and self._holds(node):
            self.ground.see(self.name, OperatorResolved(tx, node.place, outcome))
            self.tell(node, p.Resolved(outcome, self.now))

    def _holds(self, node: Node) -> bool:
        return self.habits.compensatable or any(place == node.place for _, place, _ in self.database.prepared())

    # For the world

    def in_doubt(self) -> list[str]:
        return [tx for tx, node in self.nodes.items() if node.machine.stage is Stage.VOTED]

    def settled(self) -> bool:
        """Nothing is under way here."""
        return (
            self.up
            and all(node.machine.stage in OVER for node in self.nodes.values())
            and all(record.state in {"committed", "aborted"} for record in self.records.values())
        )


def _epoch(asked: Message | None) -> int:
    return asked.epoch if isinstance(asked, Prepare | Close | Decide) else 1
