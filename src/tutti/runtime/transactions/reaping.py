"""Prepared branches that nobody would finish: whoever prepared them died before it could write that down, or was
overtaken by a successor while it stood still.

1. A branch is rolled back only if its transaction is known to have aborted: the journal says so, or the own log.
   Nothing is ever committed here.
2. What is at work in this process, or has an open row in the log, belongs to somebody who finishes it.
3. Branches of other owners or prefixes are not looked at, nor those in which a compensation is carried out.
"""

from __future__ import annotations

import asyncio
import logging
import re
from typing import TYPE_CHECKING, Any, Final

from tutti.errors import BusError, DeclarationError, JournalError, ResourceError
from tutti.limits import REAP_SECONDS, RECOVERY_ANSWER_SECONDS, ROWS_KEPT_SECONDS
from tutti.model.messages import MANAGER, Decide, Inquiry, Standing
from tutti.model.subjects import Layout
from tutti.model.transaction import Decision, journal_of
from tutti.resources import BranchId, Outcome, Resource
from tutti.resources.reaper import OutcomeOf, reap
from tutti.runtime.transactions.channel import Channel, signed
from tutti.runtime.transactions.own import OWNER

if TYPE_CHECKING:
    from tutti.runtime.transactions.coordinator import Coordinator
    from tutti.runtime.transactions.participant import Participants

log = logging.getLogger("tutti.transactions")

_UNDOING: Final = re.compile(r"-u\d+$")  # see `undoing`: its outcome stands in the barrier, not in the journal


async def ask_recovery(channel: Channel, layout: Layout, tx: str) -> Decide | Standing | None:
    """What whoever shares the transaction's journal says of it; None if nobody answers."""
    inbox = channel.inbox()
    listener = await channel.listen(inbox)
    try:
        channel.emit(layout.recovery(journal_of(tx)), signed(Inquiry(tx, "", "voted", inbox), None))
        async with asyncio.timeout(RECOVERY_ANSWER_SECONDS):
            async for record in listener:
                for given in channel.open(record.data):
                    message = given.message
                    if given.signer == MANAGER and message.tx == tx and isinstance(message, Decide | Standing):
                        return message
    except TimeoutError:
        pass
    finally:
        await listener.close()
    return None


async def reap_aborted(resource: Resource[Any], owner: str, outcome_of: OutcomeOf) -> None:
    """One look at one database. What cannot be done now is looked for again."""
    if not resource.prepares:
        return

    async def aborted(branch: BranchId) -> Outcome | None:
        if _UNDOING.search(branch.branch):
            return None
        return "abort" if await outcome_of(branch) == "abort" else None

    try:
        reaped = await reap(resource, owner, aborted)
    except (ResourceError, JournalError, BusError, TimeoutError) as error:
        log.info("%s: prepared branches of %s are looked for again: %s", resource.name, owner, error)
        return
    for branch in reaped.rolled_back:
        log.warning("%s: %s was left prepared, and its transaction has aborted: rolled back", resource.name, branch)
    for branch, why in reaped.failed:
        log.warning("%s: %s is still prepared: %s", resource.name, branch, why)


class ParticipantReaper:
    """For one subscriber in this process: what earlier processes of it left."""

    def __init__(self, host: Participants) -> None:
        self._host = host
        self._site = host.site

    async def run(self) -> None:
        while True:
            await asyncio.sleep(REAP_SECONDS)
            await self.look()

    async def look(self) -> None:
        for resource in self._site.parts.resources.values():
            await reap_aborted(resource, self._site.subscriber, self._outcome_of)
        try:
            await self._site.log.forget(await self._site.log.now() - ROWS_KEPT_SECONDS)
        except JournalError as error:
            log.info("%s: old rows are forgotten later: %s", self._site.subscriber, error)

    async def _outcome_of(self, branch: BranchId) -> Outcome | None:
        if branch.tx in self._host.takings:
            return None
        row = await self._site.log.find(self._site.subscriber, branch.tx)
        if row is not None:
            return "abort" if row.record.state == "aborted" else None
        try:
            answer = await ask_recovery(self._host.channel, self._site.context.layout, branch.tx)
        except DeclarationError:
            return None  # no transaction of ours has such an id
        return answer.outcome if isinstance(answer, Decide) else None


class PublisherReaper:
    """For the managers of one process: what publishers left in databases that this process knows."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    async def run(self) -> None:
        while True:
            await asyncio.sleep(REAP_SECONDS)
            await self.look()

    async def look(self) -> None:
        for resource in tuple(self._coordinator.resources.values()):
            await reap_aborted(resource, OWNER, self._outcome_of)

    async def _outcome_of(self, branch: BranchId) -> Outcome | None:
        journal = self._coordinator.journal
        if self._coordinator.manages(branch.tx):
            return None
        try:
            if journal_of(branch.tx) != journal.id:
                return None
        except DeclarationError:
            return None
        known = await journal.decision(branch.tx)
        return known.outcome if isinstance(known, Decision) else None
