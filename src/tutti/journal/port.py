"""The journal: a small database with its own sync, where one row decides a transaction.

Every write is durable when the call returns. Every write may be repeated: after `AnswerLost`, or a crash of the caller,
the same call answers what stands and changes nothing. Writes for a transaction carry the `epoch` of its manager and
raise `Fenced` once a successor has a higher one. All times are seconds of the journal's own clock, Unix time.

A transaction belongs to the journal that its id names; asking another one is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tutti.journal.records import Answer, Dossier, Entry, Heuristic, Proposal, QueuedStatus, Sent
from tutti.limits import JOURNAL_LEASE_SECONDS, JOURNAL_PAGE_MAX_COUNT
from tutti.model.messages import Ended
from tutti.model.status import TransactionStatus
from tutti.model.transaction import WHOLE, Decision, TransactionRecord


class Journal(Protocol):
    """See the module. After `start` and until `close`, from any task of any event loop."""

    @property
    def id(self) -> str:
        """The part of transaction ids before the first `-`. Made once, when the journal was."""

    async def start(self) -> None: ...

    async def close(self) -> None:
        """Waits for the writes under way. Leases run out by themselves; `release` ends them at once."""

    async def now(self) -> float: ...

    # Managers

    async def renew(self, manager: str, *, seconds: float = JOURNAL_LEASE_SECONDS) -> float:
        """Extend, or begin, the lease that covers all transactions of this manager; it is never shortened. Returns its
        end. A manager's name is new for every process that takes the part."""

    async def release(self, manager: str) -> None:
        """End the lease: a successor need not wait."""

    async def take_over(self, tx: str, *, expected: int, manager: str, seconds: float = JOURNAL_LEASE_SECONDS) -> int:
        """Make `manager` the manager of `tx`, if its epoch is `expected` and the lease of its manager ran out. Returns
        the new epoch. Raises LeaseHeld, or Fenced if somebody else was faster."""

    # A transaction's life

    async def register(self, record: TransactionRecord, *, lease: float = JOURNAL_LEASE_SECONDS) -> None:
        """The manager's lease is extended with it."""

    async def enlist(self, tx: str, epoch: int, resource: str) -> None:
        """Before its work is prepared: the descriptor of a resource of the publisher's own."""

    async def delegate(self, tx: str, epoch: int, resource: str) -> Decision | None:
        """Before the last resource commits: from now on the outcome stands there, and `decide` only records what was
        read there (`Proposal.read_from`). Where a decision stands already it is returned, and nothing is delegated."""

    async def decide(self, proposal: Proposal) -> Decision:
        """The decision that stands: the proposed one, or the one that was first."""

    async def decision(self, tx: str, branch: str = WHOLE) -> Answer:
        """A decision of the branch itself, else of the whole."""

    async def ended(self, reports: Sequence[Ended]) -> None:
        """Branches that have ended, of any transactions. Unknown ones are passed over: they ended long ago."""

    async def finish(self, tx: str, epoch: int) -> None:
        """Decided, and nobody is waited for any more: its manager need not think of it again."""

    # The outbox of statuses

    async def queue_status(self, status: TransactionStatus, epoch: int) -> QueuedStatus: ...

    async def unsent(self, *, after: int = 0, limit: int = JOURNAL_PAGE_MAX_COUNT) -> tuple[QueuedStatus, ...]:
        """In the order of queueing; those behind the position `after`."""

    async def mark_sent(self, sent: Sequence[Sent]) -> None: ...

    # Recovery, and the operator

    async def entries(
        self,
        *,
        undecided: bool = False,
        unfinished: bool = False,
        unannounced: bool = False,
        lapsed: bool = False,
        overdue: bool = False,
        manager: str = "",
        after: int = 0,
        limit: int = JOURNAL_PAGE_MAX_COUNT,
    ) -> tuple[Entry, ...]:
        """Transactions for which all that is asked holds, in the order of registration. `unannounced`: decided, and no
        status of it is in the outbox; `lapsed`: the manager's lease ran out; `overdue`: past its deadline."""

    async def show(self, tx: str) -> Dossier | None:
        """None if it is unknown, or has shrunk to its outcome: `decision` knows that."""

    async def record_heuristic(self, heuristic: Heuristic) -> None: ...

    async def heuristics(self) -> tuple[Heuristic, ...]: ...

    async def forget_heuristic(self, tx: str, place: str = "") -> int:
        """All of the transaction's, or the one of that place. Returns how many there were."""

    # Retention

    async def shrink(self, before: float) -> int:
        """Of finished transactions decided before then, with every status sent and no heuristic open, keep only (tx,
        outcome). Returns how many; call again while it is not 0."""

    async def forget(self, before: float) -> int:
        """Remove outcomes that have shrunk and were decided before then. From now on the answer is Unknown."""
