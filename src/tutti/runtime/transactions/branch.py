"""What a handler inside a transaction gets as `tx`: its branch of somebody else's transaction."""

from __future__ import annotations

from typing import Protocol, TypeVar

from tutti.errors import TransactionClosed
from tutti.model.transaction import Scope
from tutti.resources import Resource

C = TypeVar("C")


class Bench(Protocol):
    """Who carries out what a handler asks for."""

    async def enlist(self, resource: Resource[C]) -> C: ...
    async def publish(self, event: object) -> None: ...
    def set_abort(self, reason: str) -> None: ...


class Branch:
    """Valid while its handler runs. The outcome is everybody's: return to agree, raise or `set_abort` to abort."""

    def __init__(self, bench: Bench, *, tx: str, type_name: str, scope: Scope, deadline: float) -> None:
        self._bench: Bench | None = bench
        self.id = tx
        self.type = type_name
        self.scope = scope
        self.deadline = deadline  # seconds since the epoch: until then it is decided

    def __repr__(self) -> str:
        return f"<branch of {self.type} {self.id}>"

    async def enlist(self, resource: Resource[C]) -> C:
        """Work on a database inside the transaction: returns a connection of its driver, which is committed or rolled
        back with everybody's. The resource must be declared: `Subscriber(…, resources=[…])`."""
        return await self._open("enlist").enlist(resource)

    async def publish(self, event: object) -> None:
        """Publish inside the transaction. Returns when the bus has stored it."""
        await self._open("publish").publish(event)

    def set_abort(self, reason: str) -> None:
        """Vote to abort, now: whatever the handler does after this is undone too."""
        self._open("set_abort").set_abort(reason)

    def close(self) -> None:
        """The handler has returned."""
        self._bench = None

    def _open(self, what: str) -> Bench:
        if self._bench is None:
            raise TransactionClosed(
                f"tx.{what}() after the handler has returned", tx=self.id, hint="await everything in the handler"
            )
        return self._bench
