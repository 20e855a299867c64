"""The publisher's own resources in its transaction: prepared with the members, finished with the decision.

One that cannot prepare (SQLite) is the last resource: it is asked to commit when everything else is certain, and what
it did *is* the outcome. The journal knows that before (`delegate`), so a successor reads the outcome there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from tutti.errors import DeclarationError, ResourceError, TransactionClosed
from tutti.journal import Journal
from tutti.model.transaction import Decision, Outcome
from tutti.resources import BranchId, Resource, Vote, Work
from tutti.runtime.transactions.insisting import insist

OWNER: Final = "publisher"
_ROUND: Final = 1  # a publisher prepares once: it publishes nothing after it wants to commit


def own_branch(tx: str, resource: str) -> BranchId:
    return BranchId(OWNER, tx, f"{resource}-{_ROUND}")


class OwnWork:
    """What one publisher enlisted in one transaction."""

    def __init__(self, tx: str) -> None:
        self._tx = tx
        self._resources: dict[str, Resource[Any]] = {}
        self._works: dict[str, Work[Any]] = {}
        self._prepared: set[str] = set()
        self._turn = asyncio.Lock()
        self._closed = False

    @property
    def any(self) -> bool:
        """Whether anything was enlisted."""
        return bool(self._works)

    @property
    def last(self) -> str:
        """The name of the last resource, or empty."""
        return next((name for name, resource in self._resources.items() if not resource.prepares), "")

    async def begin(self, resource: Resource[Any]) -> Any:
        """The connection. The caller has told the journal. `TransactionClosed` if it ended meanwhile."""
        async with self._turn:
            return await self._begin(resource)

    async def _begin(self, resource: Resource[Any]) -> Any:
        if self._closed:
            raise TransactionClosed(
                f"{resource.name} is enlisted in {self._tx} after its work has ended",
                tx=self._tx,
                hint="begin another transaction",
            )
        if self._resources.get(resource.name, resource) is not resource:
            raise DeclarationError(
                f"two resources of {self._tx} are called {resource.name!r}", hint="give each a name of its own"
            )
        if not resource.prepares and self.last not in {"", resource.name}:
            raise DeclarationError(
                f"{resource.name} and {self.last} both cannot prepare, so one transaction cannot have both",
                hint="one of them can be the last resource; put the other into a compensatable subscriber",
            )
        work = self._works.get(resource.name)
        if work is None:
            if not resource.prepares:
                await resource.preflight(barrier=True)
            work = await resource.begin(own_branch(self._tx, resource.name))
            self._resources[resource.name], self._works[resource.name] = resource, work
        return work.connection

    async def prepare(self) -> None:
        """All but the last resource. After an error, `finish` rolls back whatever there is."""
        async with self._turn:
            self._closed = True
            await self._prepare()

    async def _prepare(self) -> None:
        works = [(name, work) for name, work in self._works.items() if name != self.last]
        votes = await asyncio.gather(*(work.prepare() for _, work in works), return_exceptions=True)
        for (name, _), vote in zip(works, votes, strict=True):
            if vote is not Vote.READ_ONLY:
                self._prepared.add(name)  # after an error too: it may have been prepared all the same
        for vote in votes:
            if isinstance(vote, BaseException):
                raise vote

    async def decide(self, decision: Decision, journal: Journal) -> tuple[Decision, str]:
        """Let the last resource decide, if there is one. The decision, and where it was read."""
        name = self.last
        if not name or decision.outcome == "abort":
            return decision, ""
        stands = await journal.delegate(self._tx, decision.epoch, name)
        if stands is not None:
            return stands, ""
        try:
            outcome = await self._works[name].commit_last()
        except ResourceError:  # whether it has committed, the marker tells; if it has not, it never will
            outcome = await self._resources[name].settle_last(own_branch(self._tx, name))
        return _read(decision, outcome, name), name

    async def finish(self, outcome: Outcome) -> None:
        """An abort may come while the work is being prepared: what that leaves is rolled back after it."""
        async with self._turn:
            self._closed = True
            await self._finish(outcome)

    async def _finish(self, outcome: Outcome) -> None:
        for name, work in self._works.items():
            if name in self._prepared:
                await finish_branch(self._resources[name], self._tx, outcome)
            elif not (name == self.last and outcome == "commit"):
                await insist(work.rollback, f"{self._tx}: {name}")


class InheritedWork:
    """The same for a publisher that does not come back, by the names that the journal knows. `resources`: those that
    this process can reach."""

    def __init__(
        self,
        tx: str,
        names: tuple[str, ...],
        delegated_to: str,
        resources: Mapping[str, Resource[Any]],
        ready: Callable[[Resource[Any]], Awaitable[None]],
    ) -> None:
        self._ready = ready
        self._tx = tx
        self._names = names
        self._delegated_to = delegated_to
        self._resources = resources

    def unreachable(self) -> tuple[str, ...]:
        return tuple(name for name in self._names if name not in self._resources)

    async def decide(self, decision: Decision) -> tuple[Decision, str]:
        name = self._delegated_to
        if not name:
            return decision, ""
        outcome = await (await self._resource(name)).settle_last(own_branch(self._tx, name))
        return _read(decision, outcome, name), name

    async def finish(self, outcome: Outcome) -> None:
        for name in self._names:
            resource = await self._resource(name)
            if resource.prepares:
                await finish_branch(resource, self._tx, outcome)

    async def _resource(self, name: str) -> Resource[Any]:
        if name not in self._resources:
            raise DeclarationError(
                f"{self._tx}: the publisher's resource {name!r} is not known in this process",
                hint="name it in `tutti.connect(resources=[…])` of a process that shares the journal",
            )
        resource = self._resources[name]
        await self._ready(resource)
        return resource


async def finish_branch(resource: Resource[Any], tx: str, outcome: Outcome) -> None:
    """Until it is done."""
    finish = resource.commit if outcome == "commit" else resource.rollback
    await insist(lambda: finish(own_branch(tx, resource.name), decided=True), f"{tx}: {resource.name}")


def _read(decision: Decision, outcome: Outcome, name: str) -> Decision:
    if outcome == decision.outcome:
        return decision
    reason = f"{name}, the last resource, says {outcome}"
    return Decision(decision.tx, outcome, decision.epoch, decision.branch, reason, decision.excluded)
