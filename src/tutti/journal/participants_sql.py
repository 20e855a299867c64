"""The participants' log over any database that `Session` can be written for: every call becomes statements."""

from __future__ import annotations

from tutti.journal import participating
from tutti.journal.participants import Enrolment, LogRow, Parked, Resolution
from tutti.journal.store import SqlStore
from tutti.limits import JOURNAL_LEASE_SECONDS
from tutti.model.transaction import Consumed, Outcome, ParticipantRecord


class SqlParticipantLog(SqlStore):
    """See `tutti.journal.participants`."""

    # Rows

    async def write(self, row: LogRow) -> None:
        await self._write(lambda rows: participating.write(rows, row))

    async def close_row(self, subscriber: str, tx: str, record: ParticipantRecord) -> None:
        await self._write(lambda rows: participating.close_row(rows, subscriber, tx, record))

    async def open_rows(self, subscriber: str = "") -> tuple[LogRow, ...]:
        return await self._ask(lambda rows: participating.open_rows(rows, subscriber))

    async def rows_of(self, tx: str) -> tuple[LogRow, ...]:
        return await self._ask(lambda rows: participating.rows_of(rows, tx))

    async def find(self, subscriber: str, tx: str) -> LogRow | None:
        return await self._ask(lambda rows: participating.find(rows, subscriber, tx))

    # Instances

    async def beat(self, instance: str, *, seconds: float = JOURNAL_LEASE_SECONDS) -> float:
        return await self._write(lambda rows: participating.beat(rows, instance, seconds))

    async def release(self, instance: str) -> None:
        await self._write(lambda rows: participating.release(rows, instance))

    async def take_over(self, subscriber: str, instance: str, *, tx: str = "") -> tuple[LogRow, ...]:
        return await self._write(lambda rows: participating.take_over(rows, subscriber, instance, tx))

    async def living(self) -> frozenset[str]:
        return await self._ask(participating.living)

    # The operator's word

    async def resolve(self, subscriber: str, tx: str, outcome: Outcome, by: str = "") -> Resolution:
        return await self._write(lambda rows: participating.resolve(rows, subscriber, tx, outcome, by))

    async def resolutions(self, subscriber: str = "") -> tuple[Resolution, ...]:
        return await self._ask(lambda rows: participating.resolutions(rows, subscriber))

    async def carried_out(self, subscriber: str, tx: str, decided: Outcome | None = None) -> None:
        await self._write(lambda rows: participating.carried_out(rows, subscriber, tx, decided))

    async def withdraw(self, subscriber: str, tx: str) -> bool:
        return await self._write(lambda rows: participating.withdraw(rows, subscriber, tx))

    # The operator's queue

    async def park(self, subscriber: str, tx: str, event: Consumed, reason: str) -> None:
        await self._write(lambda rows: participating.park(rows, subscriber, tx, event, reason))

    async def parked(self, subscriber: str = "") -> tuple[Parked, ...]:
        return await self._ask(lambda rows: participating.parked(rows, subscriber))

    async def unpark(self, subscriber: str, tx: str, event: Consumed) -> bool:
        return await self._write(lambda rows: participating.unpark(rows, subscriber, tx, event))

    # Standing groups

    async def enrol(self, enrolment: Enrolment) -> Enrolment:
        return await self._write(lambda rows: participating.enrol(rows, enrolment))

    async def enrolment(self, group: str, subscriber: str) -> Enrolment | None:
        return await self._ask(lambda rows: participating.find_enrolment(rows, group, subscriber))

    async def resign(self, group: str, subscriber: str) -> bool:
        return await self._write(lambda rows: participating.resign(rows, group, subscriber))

    # Retention

    async def forget(self, before: float) -> int:
        return await self._write(lambda rows: participating.forget(rows, before))
