"""Between a transaction's publisher and its manager: what each may ask of the other, wherever the other is."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from tutti.control.transaction import messages as told
from tutti.control.transaction.sides import Intent
from tutti.journal import Journal
from tutti.model.transaction import CensusRule, Decision, Outcome
from tutti.resources import Resource
from tutti.runtime.context import Context
from tutti.runtime.transactions.keys import PayloadKey


class PublisherSide(Protocol):
    """Who began the transaction, or who finishes for it. None of the calls may raise; answers go to `Managing.take`."""

    def opened(self, effect: told.Opened) -> None: ...
    def census_failed(self, effect: told.CensusFailed) -> None: ...
    def publish(self, effect: told.Publish, prepare: bytes) -> None:
        """`prepare` is that of the effect, signed; empty if it carries none."""

    def prepare_own(self) -> None: ...
    def finish_own(self, outcome: Outcome) -> None: ...
    def answer(self, effect: told.Answer) -> None: ...
    def finished(self, outcome: Outcome | None) -> None:
        """Every branch has ended, or (None) there is nothing more to wait for here: a successor has taken over."""

    def dropped(self) -> None:
        """Its manager stops looking after it."""

    async def decide_last(self, decision: Decision, journal: Journal) -> tuple[Decision, str]:
        """With a last resource: let it decide. The decision, and the resource that it was read from ("": none)."""


class Managing(Protocol):
    """The manager of one transaction, as its publisher has it."""

    @property
    def tx(self) -> str: ...
    @property
    def epoch(self) -> int: ...
    @property
    def deadline(self) -> float: ...
    @property
    def payload_key(self) -> PayloadKey | None:
        """Of a private transaction."""

    @property
    def keys(self) -> dict[str, bytes]:
        """The same, wrapped for the members of a standing group: each event brings it along."""

    @property
    def now(self) -> float: ...
    @property
    def open(self) -> bool:
        """Whether events may be published and resources enlisted, as far as this process knows."""

    @property
    def outcome(self) -> Outcome | None: ...

    def take(self, given: told.Input) -> None: ...
    async def enlist(self, resource: Resource[Any]) -> None:
        """When this returns, the journal knows of it, and the manager."""

    def waiting_for(self) -> tuple[str, ...]: ...
    def spawn(self, work: Coroutine[Any, Any, None]) -> None: ...


class Managers(Protocol):
    """Those of this process, or those that run as a service."""

    @property
    def context(self) -> Context: ...

    async def open(
        self,
        intent: Intent,
        side: PublisherSide,
        *,
        rule: CensusRule | None = None,
        vital: Callable[[str], bool] | None = None,
    ) -> Managing:
        """The manager of a new transaction. It begins when it is told `Started`. `rule` and `vital` are the census
        rule, and who is vital in a group, in Python: where they say more than the intent."""

    async def close(self) -> None: ...
