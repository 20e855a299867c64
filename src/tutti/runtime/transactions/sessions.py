"""The works of one participant that end together: one for each resource that its handlers enlisted.

A session prepares as a whole, for somebody else's decision; or commits as a whole, for a participant that is
compensatable. Its branches are called `<resource>-<suffix>`; with that name, and the resource, a later process finishes
them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, TypeVar

from tutti.errors import DeclarationError, ResourceError, TransactionClosed
from tutti.resources import Admission, BranchId, Resource, Vote, Work

C = TypeVar("C")

_SEPARATOR: Final = " "  # in a descriptor, between the resource's name and the suffix; no name holds it


class Session:
    """`prepared`: the resources in which something waits for an outcome, or may."""

    def __init__(self, owner: str, tx: str, suffix: str) -> None:
        self.owner, self.tx, self.suffix = owner, tx, suffix
        self._resources: dict[str, Resource[Any]] = {}  # in the order in which they were enlisted
        self._works: dict[str, Work[Any]] = {}
        self._turn = asyncio.Lock()
        self._closed = False
        self._attempt: AsyncExitStack | None = None
        self.prepared: set[str] = set()
        self.committed = False  # by a decision of the participant's own: from now on only forward

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._resources)

    @property
    def home(self) -> str:
        """Where its barrier rows are: the resource that was enlisted first."""
        return next(iter(self._resources), "")

    @property
    def descriptors(self) -> tuple[str, ...]:
        """What a later process needs to finish what is prepared."""
        return tuple(f"{name}{_SEPARATOR}{self.suffix}" for name in self._resources if name in self.prepared)

    def branch(self, name: str) -> BranchId:
        return BranchId(self.owner, self.tx, f"{name}-{self.suffix}")

    def work(self, name: str) -> Work[Any]:
        return self._works[name]

    async def enlist(self, resource: Resource[C]) -> C:
        """The connection in which this participant works on the resource."""
        async with self._turn:
            if self._closed:
                raise TransactionClosed(
                    f"{resource.name} is enlisted in {self.tx} after its work has ended",
                    tx=self.tx,
                    hint="enlist in a handler, before it returns",
                )
            known = self._resources.get(resource.name)
            if known is not None and known is not resource:
                raise DeclarationError(
                    f"two resources are called {resource.name!r}", hint="give each resource a name of its own"
                )
            if known is None:
                await self.adopt(resource, await resource.begin(self.branch(resource.name)))
            connection: C = self._works[resource.name].connection
            return connection

    async def adopt(self, resource: Resource[Any], work: Work[Any]) -> None:
        """A work that was begun elsewhere ends with the others."""
        self._resources[resource.name] = resource
        self._works[resource.name] = work
        if self._attempt is not None:
            await self._attempt.enter_async_context(work.attempt())

    @asynccontextmanager
    async def attempt(self) -> AsyncIterator[None]:
        """A part of the work that may fail: an exception undoes it in every resource, those enlisted within it
        included, and the session goes on."""
        async with AsyncExitStack() as stack:
            for work in self._works.values():
                await stack.enter_async_context(work.attempt())
            self._attempt = stack
            try:
                yield
            finally:
                self._attempt = None

    def restore(self, resource: Resource[Any]) -> None:
        """What an earlier process prepared."""
        self._closed = True
        self._resources[resource.name] = resource
        self.prepared.add(resource.name)

    # Ends

    async def prepare(self, *, without: str = "") -> None:
        """All of them. After an error some may be prepared: `roll_back`."""
        self._closed = True
        names = [name for name in self._works if name != without]
        self.prepared.update(names)
        votes = await _all(self._works[name].prepare() for name in names)
        self.prepared.difference_update(name for name, vote in zip(names, votes, strict=True) if vote is Vote.READ_ONLY)

    async def commit(self) -> None:
        """What is prepared. May be repeated."""
        self._closed = True
        names = list(self.prepared)
        await _all(self._resources[name].commit(self.branch(name), decided=True) for name in names)
        self.prepared.difference_update(names)

    async def roll_back(self) -> None:
        """What is at work or prepared. May be repeated."""
        self._closed = True
        await _all(work.rollback() for work in self._works.values())
        names = list(self.prepared)
        await _all(self._resources[name].rollback(self.branch(name), decided=True) for name in names)
        self.prepared.difference_update(names)

    async def enter(self, steps: Mapping[int, bytes]) -> None:
        """The barrier rows of these steps of work, in the home. `Undone` if a compensation was there first."""
        work = self._works[self.home]
        for step, entry in steps.items():
            if await work.enter(step, entry) is Admission.LATE:
                raise Undone(f"{self.branch(self.home)}: step {step} was undone before it was done")

    async def commit_home(self) -> None:
        """In one phase, with its barrier rows."""
        self._closed = True
        await self._works[self.home].commit()

    async def was_committed(self, step: int) -> bool:
        """After a commit whose answer was lost: whether it happened. If not, it never will."""
        resource = self._resources[self.home]
        work = await resource.begin(self.branch(self.home))
        try:
            return await work.enter(step) is Admission.REPEATED
        finally:
            await work.rollback()


class Undone(ResourceError):
    """The compensation of this work came first: it must not happen any more."""


def restored(
    owner: str, tx: str, descriptors: Sequence[str], resources: Mapping[str, Resource[Any]]
) -> tuple[dict[str, Session], tuple[str, ...]]:
    """The sessions that descriptors name, by suffix; and the resources that nobody declares any more."""
    sessions: dict[str, Session] = {}
    missing: list[str] = []
    for descriptor in descriptors:
        name, _, suffix = descriptor.partition(_SEPARATOR)
        if name not in resources:
            missing.append(name)
            continue
        sessions.setdefault(suffix, Session(owner, tx, suffix)).restore(resources[name])
    return sessions, tuple(missing)


async def _all(works: Iterable[Coroutine[Any, Any, Any]]) -> list[Any]:
    """At once; all of them have ended when this returns or raises."""
    started = list(works)
    if len(started) == 1:
        return [await started[0]]
    outcomes = await asyncio.gather(*started, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return list(outcomes)
