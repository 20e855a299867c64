"""Finishing what another process left: this subscriber's own rows, from the log or from the barrier of a resource.

Only rows of instances whose lease has run out are taken over. A prepared branch that no row knows is left alone here:
its owner may be about to write the row; `reaping` asks the journal about such branches.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import msgspec

from tutti.control.participation import messages as p
from tutti.control.participation.machine import Participation
from tutti.errors import Fenced, JournalError, ResourceError
from tutti.journal import LogRow
from tutti.limits import JOURNAL_LEASE_SECONDS, PARTICIPANT_TURN_SECONDS
from tutti.resources import BranchId, Resource
from tutti.runtime.transactions.joining import Joining
from tutti.runtime.transactions.keys import SigningKey, WrapKey
from tutti.runtime.transactions.reaping import ParticipantReaper
from tutti.runtime.transactions.taking import Taking
from tutti.runtime.transactions.undoing import decode_row

if TYPE_CHECKING:
    from tutti.runtime.transactions.participant import Participants

log = logging.getLogger("tutti.transactions")


class Recovering:
    def __init__(self, host: Participants) -> None:
        self._host = host
        self._site = host.site
        self._task: asyncio.Task[None] | None = None

    async def prepare(self) -> None:
        """Before anything is heard: whoever looks into the log from now on finds there what stands in barriers."""
        try:
            await self._read_barriers()
        except (JournalError, ResourceError) as error:
            log.warning("%s: what others left is looked for again: %s", self._site.subscriber, error)

    async def start(self) -> None:
        await self._turn(barriers=True)
        self._host.spawn(ParticipantReaper(self._host).run())
        self._task = asyncio.get_running_loop().create_task(self._take_turns())
        self._task.add_done_callback(self._ended)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._site.context.failed(task)

    async def _take_turns(self) -> None:
        turns = 0
        while True:
            await asyncio.sleep(PARTICIPANT_TURN_SECONDS)
            turns += 1
            await self._turn(barriers=turns % round(JOURNAL_LEASE_SECONDS / PARTICIPANT_TURN_SECONDS) == 0)

    async def _turn(self, *, barriers: bool) -> None:
        try:
            await self._site.log.beat(self._site.instance)
            if barriers:
                await self._read_barriers()
            rows = await self._open_rows()
            if any(row.instance != self._site.instance for row in rows):
                for row in await self._site.log.take_over(self._site.subscriber, self._site.instance):
                    self._resume(row)
            await self._follow_operator()
        except (JournalError, ResourceError) as error:
            log.warning("%s: what others left is looked for again: %s", self._site.subscriber, error)

    async def _open_rows(self) -> list[LogRow]:
        """Those that are owed anything. A process may die when all is done, and its row not closed."""
        owed = []
        for row in await self._site.log.open_rows(self._site.subscriber):
            if not _is_over(row):
                owed.append(row)
            elif not self._host.at_work(row.tx):
                await self._site.log.close_row(self._site.subscriber, row.tx, row.record)
        return owed

    async def _follow_operator(self) -> None:
        """Who resolves a branch in doubt writes it into the log; whoever forgets it takes the word out again, and then
        nobody asks for the decision any more."""
        if not self._host.takings:
            return
        words = {word.tx: word.outcome for word in await self._site.log.resolutions(self._site.subscriber)}
        for tx, taking in tuple(self._host.takings.items()):
            if tx in words:
                taking.take(p.Resolved(words[tx], self._site.now))
            elif taking.machine.outcome is not None:
                self._host.drop(taking)

    def _resume(self, row: LogRow) -> None:
        if row.tx in self._host.takings:
            return
        log.info("%s: finishes %s, which %s left %s", self._site.subscriber, row.tx, row.instance, row.record.state)
        self.revive(row)

    # From the log

    def revive(self, row: LogRow) -> Taking | None:
        """The participation as its row tells. None if another instance acts, or it cannot be finished here."""
        ended = _is_over(row)
        if not ended and row.instance != self._site.instance:
            return None
        joining = self._joining(row)
        if joining is None:
            self._site.context.report(
                f"{self._site.subscriber}: {row.tx} waits to be finished, but its type {row.type} is not joined here"
            )
            return None
        membership = self._host.membership(row.record.group) if row.record.group else None
        wrap: WrapKey | None = membership.wrap if membership is not None else None
        key, record = SigningKey(row.secret), row.record
        part = msgspec.structs.replace(
            self._host.part(joining, row.tx, record.pseudonym, key, record.deadline),
            compensatable=record.compensatable,
            epoch=record.epoch,
        )
        taking = Taking(self._host, joining, part, Participation.recovered(part, record), key, wrap=wrap)
        missing = taking.restore(row)
        if missing and not ended:
            self._site.context.report(
                f"{self._site.subscriber}: {row.tx} waits for resources that are not declared: {', '.join(missing)}"
            )
            return None
        if ended:
            self._host.forget(taking)
        else:
            self._host.takings[row.tx] = taking
            taking.take(p.Recovered(self._site.now, row.heuristic))
        return taking

    def _joining(self, row: LogRow) -> Joining | None:
        for joining in self._site.parts.joinings:
            if joining.group == row.record.group and (joining.group or joining.type.name == row.type):
                return joining
        return None

    # From barriers

    async def find(self, tx: str) -> LogRow | None:
        """The row of this transaction, wherever another process has left it."""
        row = await self._site.log.find(self._site.subscriber, tx)
        if row is None and self._compensates:
            await self._read_barriers(tx)
            row = await self._site.log.find(self._site.subscriber, tx)
        return row

    @property
    def _compensates(self) -> bool:
        return any(joining.compensatable for joining in self._site.parts.joinings)

    async def _read_barriers(self, only: str = "") -> None:
        """A compensatable participant with one resource has its row there, with the work. It becomes a row of the log,
        in the name of the instance that wrote it: so its lease counts here too."""
        if not self._compensates:
            return
        for resource in self._site.parts.resources.values():
            for tx, branches in (await self._left_in(resource, only)).items():
                known = await self._site.log.find(self._site.subscriber, tx)
                if known is None:
                    await self._enter_in_log(resource, branches)
                elif _is_over(known):  # its process died before it had forgotten this
                    for branch in branches:
                        await resource.forget(branch)

    async def _left_in(self, resource: Resource[Any], only: str) -> dict[str, list[BranchId]]:
        """By transaction; those that are not at work here."""
        found: dict[str, list[BranchId]] = {}
        for branch in await resource.unsettled(self._site.subscriber):
            if branch.tx == only or not (only or self._host.at_work(branch.tx)):
                found.setdefault(branch.tx, []).append(branch)
        return found

    async def _enter_in_log(self, resource: Resource[Any], branches: list[BranchId]) -> None:
        """The last row of one transaction."""
        steps = [
            (branch.tx, decode_row(step.entry)) for branch in branches for step in await resource.completed(branch)
        ]
        rows = [row for tx, row in steps if row is not None and row.tx == tx]
        if rows:
            try:
                await self._site.log.write(max(rows, key=_age))
            except Fenced:
                log.info("%s: %s has found its owner", self._site.subscriber, rows[0].tx)


def _is_over(row: LogRow) -> bool:
    return row.record.state in {"committed", "aborted"}


def _age(row: LogRow) -> tuple[int, int]:
    return len(row.record.consumed), row.record.round
