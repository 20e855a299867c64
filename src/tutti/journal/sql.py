"""The journal over any database that `Session` can be written for: every call becomes statements for a scribe."""

from __future__ import annotations

from collections.abc import Sequence

from tutti.errors import DeclarationError
from tutti.journal import deciding, keeping, outbox
from tutti.journal.records import Answer, Dossier, Entry, Heuristic, Proposal, QueuedStatus, Sent
from tutti.journal.store import SqlStore
from tutti.limits import JOURNAL_LEASE_SECONDS, JOURNAL_PAGE_MAX_COUNT
from tutti.model.messages import Ended
from tutti.model.status import TransactionStatus
from tutti.model.transaction import WHOLE, Decision, TransactionRecord, journal_of


class SqlJournal(SqlStore):
    """See `tutti.journal.port`. The database's id is the journal's."""

    @property
    def id(self) -> str:
        return self._id

    # Managers

    async def renew(self, manager: str, *, seconds: float = JOURNAL_LEASE_SECONDS) -> float:
        return await self._write(lambda rows: deciding.renew(rows, manager, seconds))

    async def release(self, manager: str) -> None:
        await self._write(lambda rows: deciding.release(rows, manager))

    async def take_over(self, tx: str, *, expected: int, manager: str, seconds: float = JOURNAL_LEASE_SECONDS) -> int:
        self._own(tx)
        return await self._write(lambda rows: deciding.take_over(rows, tx, expected, manager, seconds))

    # A transaction's life

    async def register(self, record: TransactionRecord, *, lease: float = JOURNAL_LEASE_SECONDS) -> None:
        self._own(record.tx)
        await self._write(lambda rows: deciding.register(rows, record, lease))

    async def enlist(self, tx: str, epoch: int, resource: str) -> None:
        self._own(tx)
        await self._write(lambda rows: deciding.enlist(rows, tx, epoch, resource))

    async def delegate(self, tx: str, epoch: int, resource: str) -> Decision | None:
        self._own(tx)
        return await self._write(lambda rows: deciding.delegate(rows, tx, epoch, resource))

    async def decide(self, proposal: Proposal) -> Decision:
        self._own(proposal.tx)
        return await self._write(lambda rows: deciding.decide(rows, proposal))

    async def decision(self, tx: str, branch: str = WHOLE) -> Answer:
        self._own(tx)
        return await self._ask(lambda rows: deciding.answer(rows, tx, branch))

    async def ended(self, reports: Sequence[Ended]) -> None:
        await self._write(lambda rows: deciding.ended(rows, reports))

    async def finish(self, tx: str, epoch: int) -> None:
        self._own(tx)
        await self._write(lambda rows: deciding.finish(rows, tx, epoch))

    # The outbox of statuses

    async def queue_status(self, status: TransactionStatus, epoch: int) -> QueuedStatus:
        self._own(status.tx)
        return await self._write(lambda rows: deciding.queue_status(rows, status, epoch))

    async def unsent(self, *, after: int = 0, limit: int = JOURNAL_PAGE_MAX_COUNT) -> tuple[QueuedStatus, ...]:
        return await self._ask(lambda rows: outbox.unsent(rows, after, _page(limit)))

    async def mark_sent(self, sent: Sequence[Sent]) -> None:
        await self._write(lambda rows: outbox.mark_sent(rows, sent))

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
        wanted = keeping.Wanted(undecided, unfinished, unannounced, lapsed, overdue, manager, after)
        return await self._ask(lambda rows: keeping.entries(rows, wanted, _page(limit)))

    async def show(self, tx: str) -> Dossier | None:
        self._own(tx)
        return await self._ask(lambda rows: keeping.show(rows, tx))

    async def record_heuristic(self, heuristic: Heuristic) -> None:
        self._own(heuristic.tx)
        await self._write(lambda rows: keeping.record_heuristic(rows, heuristic))

    async def heuristics(self) -> tuple[Heuristic, ...]:
        return await self._ask(keeping.heuristics)

    async def forget_heuristic(self, tx: str, place: str = "") -> int:
        self._own(tx)
        return await self._write(lambda rows: keeping.forget_heuristic(rows, tx, place))

    # Retention

    async def shrink(self, before: float) -> int:
        return await self._write(lambda rows: keeping.shrink(rows, before))

    async def forget(self, before: float) -> int:
        return await self._write(lambda rows: keeping.forget(rows, before))

    def _own(self, tx: str) -> None:
        if (named := journal_of(tx)) != self._id:
            raise DeclarationError(
                f"{tx} belongs to the journal {named}; this is {self._id or 'not started'}",
                hint="ask on the recovery subject of that journal, or connect to it",
            )


def _page(limit: int) -> int:
    return max(1, min(limit, JOURNAL_PAGE_MAX_COUNT))
