"""Who stands in for a publisher that does not come back: it finishes, by what the journal knows, and nothing more."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from tutti.control.transaction import messages as told
from tutti.errors import TuttiError
from tutti.journal import Entry, Journal
from tutti.model.transaction import Decision, Outcome
from tutti.resources import Resource
from tutti.runtime.transactions.own import InheritedWork

if TYPE_CHECKING:
    from tutti.runtime.transactions.manager import Managed

log = logging.getLogger("tutti.transactions")


class Successor:
    """The publisher's side of a transaction that was taken over."""

    def __init__(
        self,
        managed: Managed,
        entry: Entry,
        resources: Mapping[str, Resource[Any]],
        ready: Callable[[Resource[Any]], Awaitable[None]],
    ) -> None:
        self._managed = managed
        self._work = InheritedWork(entry.record.tx, entry.record.resources, entry.delegated_to, resources, ready)

    def opened(self, effect: told.Opened) -> None: ...
    def census_failed(self, effect: told.CensusFailed) -> None: ...
    def publish(self, effect: told.Publish, prepare: bytes) -> None: ...
    def prepare_own(self) -> None: ...
    def answer(self, effect: told.Answer) -> None: ...
    def finished(self, outcome: Outcome | None) -> None: ...
    def dropped(self) -> None: ...

    def finish_own(self, outcome: Outcome) -> None:
        self._managed.spawn(self._finish(outcome))

    async def _finish(self, outcome: Outcome) -> None:
        if elsewhere := self._work.unreachable():
            # Nothing is wrong here: it is decided, and whoever can reach them finds it in the journal.
            log.info("%s: %s must be finished in another process", self._managed.tx, ", ".join(elsewhere))
            return
        try:
            await self._work.finish(outcome)
        except TuttiError as error:
            # It stays unfinished in the journal, where `tutti tx ls` shows it, until somebody can reach the resource.
            self._managed.report(f"{self._managed.tx}: {error}")
        else:
            self._managed.take(told.OwnFinished(self._managed.now))

    async def decide_last(self, decision: Decision, journal: Journal) -> tuple[Decision, str]:  # noqa: ARG002  it was told before
        return await self._work.decide(decision)
