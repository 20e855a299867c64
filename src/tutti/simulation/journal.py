"""The journal as a server with a disk: writes wait together for one sync, and nobody is answered before it.

In a crash a beginning of what waits may have reached the disk, and none of it was answered. What was answered stands.
The rules (epoch, lease, who was first) are those of `journal.port`."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tutti.limits import JOURNAL_LEASE_SECONDS
from tutti.model.transaction import Decision, Outcome, TransactionRecord
from tutti.simulation.facts import Decided, EndRecorded, Finished, Registered, TakenOver
from tutti.simulation.faults import JOURNAL
from tutti.simulation.ground import Ground
from tutti.simulation.network import Network
from tutti.simulation.site import Site


class Failed(msgspec.Struct, frozen=True):
    """Not written, or nobody can tell."""

    reason: str


class Fenced(msgspec.Struct, frozen=True):
    pass


class Row:
    """What stands about one transaction."""

    __slots__ = ("decision", "ended", "finished", "record")

    def __init__(self, record: TransactionRecord) -> None:
        self.record = record
        self.decision: Decision | None = None
        self.ended: dict[str, Outcome] = {}
        self.finished = False


Answer = object  # of a write, as its docstring says, or `Failed`, or `Fenced`
Write = Callable[[], Answer]


class Journal(Site):
    """`fenced` can be taken away by a planted bug."""

    def __init__(self, ground: Ground, network: Network) -> None:
        super().__init__(JOURNAL, ground)
        self._network = network
        self._tail: list[tuple[Write, Callable[[Answer], None]]] = []
        self._leases: dict[str, float] = {}
        self.rows: dict[str, Row] = {}

    # How it is asked

    def write(self, caller: Site, act: Write, reply: Callable[[Answer], None]) -> None:
        """`reply` is called in the caller, if that still lives."""
        ground, born = self.ground, caller.incarnation

        def answer(said: Answer) -> None:
            if caller.incarnation == born:
                caller.later(ground.latency(), lambda: reply(said))

        def arrive() -> None:
            if self._unreachable(caller):
                answer(Failed("unreachable"))
                return
            self._tail.append((act, answer))
            if len(self._tail) == 1:
                self.later(ground.latency() / 2, self._sync)

        ground.agenda.later(ground.latency() / 2, arrive)

    def read(self, caller: Site, look: Callable[[], Answer], reply: Callable[[Answer], None]) -> None:
        ground, born = self.ground, caller.incarnation

        def arrive() -> None:
            said = Failed("unreachable") if self._unreachable(caller) else look()
            if caller.incarnation == born:
                caller.later(ground.latency() / 2, lambda: reply(said))

        ground.agenda.later(ground.latency() / 2, arrive)

    def _unreachable(self, caller: Site) -> bool:
        ground = self.ground
        if not self.up or self._network.blocked(caller.name, JOURNAL):
            return True
        return ground.strikes(ground.faults.journal_unreachable, "the journal is unreachable")

    def _sync(self) -> None:
        tail, self._tail = self._tail, []
        for act, answer in tail:
            said = act()
            if self.ground.strikes(self.ground.faults.answer_lost, "the journal's answer is lost"):
                said = Failed("no answer")
            answer(said)

    def lose(self) -> None:
        tail, self._tail = self._tail, []
        kept = self.ground.rng.randint(0, len(tail))
        if kept:
            self.ground.fired["the journal crashes and keeps its tail"] += 1
        if kept < len(tail):
            self.ground.fired["the journal crashes and loses its tail"] += 1
        for number, (act, answer) in enumerate(tail):
            if number < kept:
                act()
            answer(Failed("it crashed"))

    # Writes

    def fenced(self, tx: str, epoch: int) -> bool:
        row = self.rows.get(tx)
        return row is not None and epoch < row.record.epoch

    def register(self, record: TransactionRecord) -> Answer:
        """None."""
        if self.fenced(record.tx, record.epoch):
            return Fenced()
        if record.tx not in self.rows:
            self.rows[record.tx] = Row(record)
            self.ground.see(JOURNAL, Registered(record.tx, record))
        self.renew(record.manager)
        return None

    def enlist(self, tx: str, epoch: int, resource: str) -> Answer:
        """None."""
        if self.fenced(tx, epoch):
            return Fenced()
        row = self.rows[tx]
        if resource not in row.record.resources:
            row.record = msgspec.structs.replace(row.record, resources=(*row.record.resources, resource))
        return None

    def decide(self, proposal: Decision) -> Answer:
        """The decision that stands."""
        if self.fenced(proposal.tx, proposal.epoch):
            return Fenced()
        row = self.rows[proposal.tx]
        if row.decision is None:
            row.decision = proposal
            self.ground.see(JOURNAL, Decided(proposal.tx, proposal))
        return row.decision

    def take_over(self, tx: str, expected: int, manager: str) -> Answer:
        """The row, with its new epoch."""
        row = self.rows[tx]
        if row.record.epoch != expected:
            return Fenced()
        if row.record.manager != manager and not self._lapsed(row.record.manager):
            return Failed("the lease is held")
        row.record = msgspec.structs.replace(row.record, manager=manager, epoch=expected + 1)
        self.ground.see(JOURNAL, TakenOver(tx, expected + 1))
        self.renew(manager)
        return row

    def renew(self, manager: str) -> Answer:
        """None."""
        self._leases[manager] = max(self._leases.get(manager, 0.0), self.now + JOURNAL_LEASE_SECONDS)
        return None

    def record_ended(self, tx: str, member: str, outcome: Outcome) -> Answer:
        """None."""
        row = self.rows.get(tx)
        if row is not None and member not in row.ended:
            row.ended[member] = outcome
            self.ground.see(JOURNAL, EndRecorded(tx, member, outcome))
        return None

    def finish(self, tx: str, epoch: int) -> Answer:
        """None."""
        if self.fenced(tx, epoch):
            return Fenced()
        row = self.rows[tx]
        if not row.finished:
            row.finished = True
            self.ground.see(JOURNAL, Finished(tx))
        return None

    # Reads

    def orphans(self, manager: str) -> tuple[tuple[str, int], ...]:
        """Unfinished transactions whose manager is silent, and this one's own: id and epoch."""
        return tuple(
            (tx, row.record.epoch)
            for tx, row in self.rows.items()
            if not row.finished and (row.record.manager == manager or self._lapsed(row.record.manager))
        )

    def _lapsed(self, manager: str) -> bool:
        return self._leases.get(manager, 0.0) <= self.now

    def decision(self, tx: str) -> tuple[bool, Decision | None]:
        """Whether it is known, and the row."""
        row = self.rows.get(tx)
        return row is not None, row.decision if row is not None else None
