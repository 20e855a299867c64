"""Where a handler's wishes are carried out: enlisting, publishing, and the wish to abort."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from tutti.bus.port import Stored
from tutti.errors import DeclarationError, TransactionClosed
from tutti.model.event import event_type
from tutti.resources import Resource
from tutti.runtime.transactions.sessions import Session
from tutti.runtime.transactions.site import Site, sayable

if TYPE_CHECKING:
    from tutti.runtime.transactions.taking import Taking

C = TypeVar("C")


class HandlerBench:
    """For the handlers of one event."""

    def __init__(self, site: Site, taking: Taking, session: Session) -> None:
        self._site, self._taking, self._session = site, taking, session
        self._stored: list[asyncio.Future[Stored]] = []

    async def enlist(self, resource: Resource[C]) -> C:
        check_resource(self._site, resource, compensatable=self._taking.part.compensatable)
        return await self._session.enlist(resource)

    async def publish(self, event: object) -> None:
        kind = event_type(event)
        self._taking.joining.type.check_event(kind)
        catalogue = self._site.context.catalogue
        if not catalogue.may_publish(kind):
            await catalogue.require(kind)
        if not self._taking.machine.may_publish:
            raise TransactionClosed(
                f"{kind.name} is published in {self._taking.tx} when its work is over",
                tx=self._taking.tx,
                hint="publish before the handler returns, and not after set_abort",
            )
        stored = self._taking.publish(kind, event)
        self._stored.append(stored)
        await asyncio.shield(stored)

    def set_abort(self, reason: str) -> None:
        self._taking.set_abort(sayable(reason))

    @property
    def published(self) -> bool:
        """Something that cannot be taken back."""
        return bool(self._stored)

    async def failure(self) -> str:
        """Why an event that a handler published is not stored, though the handler returned. Nothing: all are."""
        for outcome in await asyncio.gather(*self._stored, return_exceptions=True):
            if isinstance(outcome, BaseException):
                return f"an event was not published: {outcome}"
        return ""


class CompensatorBench:
    """For a compensator: it may work on resources, and nothing else."""

    def __init__(self, site: Site, tx: str, session: Session) -> None:
        self._site, self._tx, self._session = site, tx, session

    async def enlist(self, resource: Resource[C]) -> C:
        check_resource(self._site, resource, compensatable=True)
        return await self._session.enlist(resource)

    async def publish(self, event: object) -> None:
        raise TransactionClosed(
            f"a compensator publishes {type(event).__name__} in {self._tx}, which has aborted",
            tx=self._tx,
            hint="publish outside of the transaction, on the bus",
        )

    def set_abort(self, reason: str) -> None:
        raise TransactionClosed(
            f"{self._tx} has aborted: a compensator cannot ({reason})",
            tx=self._tx,
            hint="raise an exception to have the compensation tried again",
        )


def check_resource(site: Site, resource: Resource[Any], *, compensatable: bool) -> None:
    """Whoever finishes after a crash must know the resource by its name."""
    name = getattr(resource, "name", resource)  # of what is no resource, itself
    if site.parts.resources.get(str(name)) is not resource:
        raise DeclarationError(
            f"subscriber {site.subscriber!r} enlists {name!r}, which it does not declare",
            hint=f"Subscriber({site.subscriber!r}, resources=[…]): after a crash it is found by its name",
        )
    if not resource.prepares and not compensatable:
        raise DeclarationError(
            f"subscriber {site.subscriber!r} enlists {resource.name!r}, which cannot prepare",
            hint="join with compensatable=True, and give every handler a compensator",
        )
