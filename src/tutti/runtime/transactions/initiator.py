"""A transaction as its publisher has it.

    async with bus.transaction(Meeting("DSOnline", when), census=tutti.Census(at_least=2)) as tx:
        db = await tx.enlist(calendar)
        await db.execute("insert into …")
        await tx.publish(Invitation(room="FW26"))

Leaving the block commits; an exception aborts, everywhere. `publish` does not wait for the bus to acknowledge: the
commit does. While the block runs, the manager of the transaction is in this process; if it dies, a successor aborts.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, get_args

import msgspec

from tutti.bus.port import Stored
from tutti.control.transaction import messages as told
from tutti.control.transaction.sides import CensusTerms, Intent
from tutti.errors import (
    BusError,
    CensusFailed,
    DeclarationError,
    InvalidEvent,
    TransactionAborted,
    TransactionClosed,
    TuttiError,
    UncheckedTransaction,
)
from tutti.journal import Journal
from tutti.limits import (
    COMMIT_TIMEOUT_SECONDS,
    MANAGER_GRACE_SECONDS,
    OWN_FINISH_SECONDS,
    TRANSACTION_ATTEMPTS_MAX_COUNT,
)
from tutti.model.event import event_type
from tutti.model.involvement import Involvement
from tutti.model.transaction import PUBLISHER, CensusRule, Decision, Member, Offer, Outcome, Scope, is_number
from tutti.model.txtype import TransactionType
from tutti.resources import Resource
from tutti.runtime.transactions.events import Composed, Draft, compose, draft, with_keys, with_prepare
from tutti.runtime.transactions.managing import Managers, Managing
from tutti.runtime.transactions.own import OwnWork
from tutti.runtime.transactions.site import said, sayable

ConnectionT = TypeVar("ConnectionT")
Wait = Literal["decided", "ended"]


class Wish(msgspec.Struct, frozen=True):
    """What `bus.transaction(…)` was asked for."""

    kind: TransactionType
    value: object
    scope: Scope
    seconds: float  # until the deadline
    census: CensusRule | None = None
    group: str = ""
    minimum: int = 0
    vital: Callable[[str], bool] | None = None  # by a member's name, in a group
    attempts: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.census, CensusRule | None):
            raise DeclarationError(f"census={self.census!r} is no rule of a census", hint="census=tutti.Census(…)")
        if self.scope not in get_args(Scope):
            raise DeclarationError(f"there is no scope {self.scope!r}", hint=f"one of {', '.join(get_args(Scope))}")
        if type(self.minimum) is not int or self.minimum < 0:
            raise DeclarationError(f"minimum={self.minimum!r} is no number of members", hint="0, or more")
        if self.census is not None and self.census.at_most is not None and self.minimum > self.census.at_most:
            raise DeclarationError(
                f"minimum={self.minimum}, and the census takes no more than {self.census.at_most}",
                hint="raise at_most, or lower the minimum",
            )
        if self.vital is not None and not callable(self.vital):
            raise DeclarationError(f"vital={self.vital!r} cannot be called", hint="a function of a member's name")
        if type(self.attempts) is not int or not 1 <= self.attempts <= TRANSACTION_ATTEMPTS_MAX_COUNT:
            raise DeclarationError(
                f"attempts={self.attempts!r} is no number of attempts",
                hint=f"how often a handler is tried, from 1 to {TRANSACTION_ATTEMPTS_MAX_COUNT}",
            )

    @property
    def rule(self) -> CensusRule | None:
        """With fewer members than the minimum it need not begin."""
        if self.census is None:
            return None
        return msgspec.structs.replace(self.census, at_least=max(self.census.at_least, self.minimum))

    def intent(self) -> Intent:
        rule = self.rule
        terms = None
        if rule is not None:
            terms = CensusTerms(rule.at_least, rule.at_most, rule.within, frozenset(rule.named))
        return Intent(
            type=self.kind.name,
            seconds=self.seconds,
            data=self.kind.encode(self.value),
            scope=self.scope,
            events=self.kind.event_names,
            census=terms,
            group=self.group,
            minimum=self.minimum,
        )


class Transaction:
    """What `async with bus.transaction(…) as tx` gives. One task at a time uses it."""

    def __init__(self, wish: Wish, managers: Callable[[], Awaitable[Managers]]) -> None:
        self._wish = wish
        self._managers = managers
        self._initiator: Initiator | None = None
        self._under_way = False

    # Life

    async def __aenter__(self) -> Self:
        if self._under_way:
            raise DeclarationError(
                "this transaction has begun already, and its block has not been left",
                hint="call `bus.transaction(…)` for each, and open each once",
            )
        self._under_way = True
        try:
            await self._begin()
        except BaseException:
            self._under_way = False
            raise
        return self

    async def _begin(self) -> None:
        managers, kind = await self._managers(), self._wish.kind
        self._initiator = Initiator(managers, self._wish)
        catalogue = managers.context.catalogue
        if not catalogue.may_begin(kind):
            await catalogue.advertise_transaction(kind)
        await self._initiator.begin()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                await self._leave()
            else:
                await self._give_up(error)
        finally:
            self._under_way = False

    async def _give_up(self, error: BaseException) -> None:
        try:
            await self._begun.abort(said(error))
        except TuttiError as trouble:
            error.add_note(f"the transaction {self.id} could not be aborted at once: {trouble}")

    async def _leave(self) -> None:
        """Whoever leaves the block undecided has no more choice: it aborts, unless the journal was quicker."""
        begun = self._begun
        if not begun.asked:
            try:
                await self.commit()
            except asyncio.CancelledError:
                begun.withdraw()
                raise
            except UncheckedTransaction:
                if begun.outcome is None and await begun.abort("its publisher waited no longer") != "commit":
                    raise
        elif begun.outcome is None:
            await begun.abort("its publisher left it without a decision")

    @property
    def _begun(self) -> Initiator:
        if self._initiator is None:
            raise TransactionClosed("this transaction has not begun", hint="use it as `async with bus.transaction(…)`")
        return self._initiator

    @property
    def id(self) -> str:
        """As `tutti tx show` takes it."""
        return self._begun.tx

    @property
    def members(self) -> tuple[Member, ...]:
        return self._begun.members

    @property
    def deadline(self) -> float:
        """Seconds since the epoch. What is not decided by then is aborted."""
        return self._begun.deadline

    # Work

    async def publish(self, event: object, *, last: bool = False) -> None:
        """In the transaction: members handle it now; others, if it is public, once it is committed. `last`: nothing
        more will be published, so the event takes the question for votes along."""
        await self._begun.announce(event, last=last)

    async def enlist(self, resource: Resource[ConnectionT]) -> ConnectionT:
        """A connection to the resource, whose work is part of the transaction. The same one each time."""
        connection: ConnectionT = await self._begun.enlist(resource)
        return connection

    # The end

    async def commit(self, *, timeout: float = COMMIT_TIMEOUT_SECONDS, wait: Wait = "decided") -> None:
        """Until it is decided or, with `wait="ended"`, until every member has finished too. `TransactionAborted` says
        why not; `UncheckedTransaction` what is waited for: then commit again, or abort."""
        if not is_number(timeout) or not timeout >= 0:
            raise DeclarationError(f"timeout={timeout!r} is no time to wait", hint="seconds, 0 or more")
        if wait not in get_args(Wait):
            raise DeclarationError(f"wait={wait!r}: for what?", hint=f"one of {', '.join(get_args(Wait))}")
        await self._begun.commit(timeout, wait)

    async def abort(self, reason: str = "the publisher wants it") -> None:
        """Everywhere. Raises `TransactionClosed` if it is committed already."""
        outcome = await self._begun.abort(sayable(reason))
        if outcome == "commit":
            raise TransactionClosed(f"{self.id} is committed already", tx=self.id, hint="publish what undoes it")


class Initiator:
    """The publisher's side of one transaction: what its machine asks of the publisher is done here."""

    def __init__(self, managers: Managers, wish: Wish) -> None:
        self._managers = managers
        self._context = managers.context
        self._wish = wish
        self.members: tuple[Member, ...] = ()
        self.asked = False  # for a commit or an abort
        self._own: OwnWork
        self._managing: Managing
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._over: asyncio.Future[Outcome | None] = asyncio.get_running_loop().create_future()
        self._answers: dict[int, asyncio.Future[told.CommitAnswer]] = {}
        self._ready: dict[str, Draft] = {}
        self._events = 0
        self._requests = 0
        self._finishing = False
        self._own_finished = asyncio.Event()

    # Beginning

    async def begin(self) -> None:
        wish = self._wish
        managing = await self._managers.open(wish.intent(), self, rule=wish.rule, vital=wish.vital)
        self._managing, self._own = managing, OwnWork(managing.tx)
        managing.take(told.Started(managing.now))
        try:
            await self._opened
        except asyncio.CancelledError:
            self.withdraw()
            raise

    def withdraw(self) -> None:
        """Whoever is cancelled does not wait for the answer. What is decided stands."""
        now = self._managing.now
        self._ask(lambda number: told.AbortRequested(number, "its publisher was cancelled", now))

    @property
    def tx(self) -> str:
        return self._managing.tx

    @property
    def outcome(self) -> Outcome | None:
        """As far as this process knows."""
        return self._managing.outcome

    @property
    def deadline(self) -> float:
        return self._managing.deadline

    def opened(self, effect: told.Opened) -> None:
        self.members = effect.members
        if not self._opened.done():
            self._opened.set_result(None)

    def census_failed(self, effect: told.CensusFailed) -> None:
        replies = tuple(Offer(join.pseudonym, join.name, join.offer) for join in effect.replies)
        if not self._opened.done():
            self._opened.set_exception(
                CensusFailed(
                    f"no transaction of {self._wish.kind.name} began: {effect.reason}",
                    tx=self.tx,
                    replies=replies,
                    hint="did subscribers with a `join` for it serve before it began (`tutti run` says `… serves …`)? "
                    "`replies` holds the offers that came",
                )
            )

    # Work

    def _require_open(self) -> None:
        if not self._managing.open:
            outcome = self._managing.outcome
            raise TransactionClosed(
                f"the work of {self.tx} is over" + (f": {outcome}" if outcome else ""),
                tx=self.tx,
                hint="publish and enlist before commit(), and before an event with last=True",
            )

    async def announce(self, event: object, *, last: bool) -> None:
        kind = event_type(event)
        self._wish.kind.check_event(kind)
        catalogue = self._context.catalogue
        if not catalogue.may_publish(kind):
            await catalogue.require(kind)
        self._require_open()
        self._events += 1
        name = f"{kind.name} {self._events}"
        self._ready[name] = draft(kind, event)
        self._managing.take(told.Publishing(name, kind.name, self._managing.now, last))

    def publish(self, effect: told.Publish, prepare: bytes) -> None:
        event = self._ready.pop(effect.event)
        try:
            composed = self._composed(event, effect, prepare)
        except InvalidEvent as error:
            # Not at once: the manager's machine is in the middle of a step.
            failed = told.NotStored(effect.event, error.what, self._managing.now)
            asyncio.get_running_loop().call_soon(self._managing.take, failed)
            return
        transport = self._context.transport
        answer = transport.append(composed.subject, composed.headers, composed.data, timeout=self._wish.seconds)
        answer.add_done_callback(lambda answer: self._settle(effect.event, event.kind.stream, answer))

    def _composed(self, event: Draft, effect: told.Publish, prepare: bytes) -> Composed:
        context, managing = self._context, self._managing
        place = Involvement(
            managing.tx,
            PUBLISHER,
            effect.number,
            self._wish.scope,
            context.layout.manager(managing.tx),
            managing.epoch,
            managing.deadline,
            self._wish.group,
            attempts=self._wish.attempts,
        )
        publisher, key = context.publisher, managing.payload_key
        made = compose(context.layout, event, place, source=publisher.source, time=publisher.now_text(), key=key)
        if managing.keys:
            made = with_keys(made, managing.keys)
        return with_prepare(made, prepare) if prepare else made

    def _settle(self, name: str, stream: str, answer: asyncio.Future[Stored]) -> None:
        now = self._managing.now
        if answer.cancelled():
            self._managing.take(told.NotStored(name, "publishing was cancelled", now))
        elif (error := answer.exception()) is not None:
            reason = error.what if isinstance(error, BusError) else str(error)
            self._managing.take(told.NotStored(name, reason, now))
        else:
            self._managing.take(told.Stored(name, now, stream, answer.result().sequence))

    async def enlist(self, resource: Resource[Any]) -> Any:
        self._require_open()
        if not isinstance(getattr(resource, "name", None), str) or not hasattr(resource, "prepares"):
            raise DeclarationError(
                f"{resource!r} is no resource", hint="tutti.resources.postgres.asyncpg.AsyncpgResource(…), for example"
            )
        await self._context.bus.ready(resource)
        await self._managing.enlist(resource)
        return await self._own.begin(resource)

    def prepare_own(self) -> None:
        self._managing.spawn(self._prepare())

    async def _prepare(self) -> None:
        try:
            await self._own.prepare()
        except Exception as error:  # noqa: BLE001  whatever a driver raises: what was prepared is rolled back next
            self._managing.take(told.OwnPrepareFailed(str(error), self._managing.now))
        else:
            self._managing.take(told.OwnPrepared(self._managing.now))

    def finish_own(self, outcome: Outcome) -> None:
        if not self._finishing:
            self._finishing = True
            self._managing.spawn(self._finish(outcome))

    async def _finish(self, outcome: Outcome) -> None:
        await self._own.finish(outcome)
        self._own_finished.set()
        self._managing.take(told.OwnFinished(self._managing.now))

    async def decide_last(self, decision: Decision, journal: Journal) -> tuple[Decision, str]:
        return await self._own.decide(decision, journal)

    # The end

    async def commit(self, timeout: float, wait: Wait) -> None:
        self.asked = True
        now = self._managing.now
        answer = await self._answered(
            self._ask(lambda number: told.CommitRequested(number, timeout, now)), timeout + MANAGER_GRACE_SECONDS
        )
        match answer:
            case told.Aborted():
                raise TransactionAborted(
                    f"{self.tx} is aborted: {answer.reason}",
                    tx=self.tx,
                    reason=answer.reason,
                    hint="nothing of it has happened; begin another one when the reason is gone",
                )
            case told.Unchecked():
                raise UncheckedTransaction(
                    f"{self.tx} is not decided after {timeout:g} seconds; it waits for {', '.join(answer.names)}",
                    tx=self.tx,
                    waiting_for=answer.names,
                    hint="commit again to wait longer, or abort",
                )
            case told.Committed():
                pass
        if wait == "ended":
            try:
                async with asyncio.timeout(max(0.0, timeout - (self._managing.now - now))):
                    await asyncio.shield(self._over)
            except TimeoutError:
                raise UncheckedTransaction(
                    f"{self.tx} is committed, and not everybody has finished after {timeout:g} seconds",
                    tx=self.tx,
                    waiting_for=self._managing.waiting_for(),
                    hint="they will: `tutti tx show` tells who is missing",
                ) from None

    async def abort(self, reason: str) -> Outcome:
        """What stands."""
        self.asked = True
        now = self._managing.now
        answer = await self._answered(
            self._ask(lambda number: told.AbortRequested(number, reason, now)), COMMIT_TIMEOUT_SECONDS
        )
        if isinstance(answer, told.Unchecked):
            raise UncheckedTransaction(
                f"nobody can tell yet whether {self.tx} is aborted; it waits for {', '.join(answer.names)}",
                tx=self.tx,
                waiting_for=answer.names,
                hint="at the latest its deadline ends it; `tutti tx show` tells the outcome",
            )
        return "commit" if isinstance(answer, told.Committed) else "abort"

    async def _answered(self, answer: asyncio.Future[told.CommitAnswer], timeout: float) -> told.CommitAnswer:
        """A manager answers every request; but it may be elsewhere and gone, and for an abort it needs the journal."""
        try:
            async with asyncio.timeout(timeout):
                given = await answer
        except TimeoutError:
            return told.Unchecked(self._managing.waiting_for())
        if isinstance(given, told.Aborted) and self._own.any:
            # Whoever tries again at once must not wait for locks of its own.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(OWN_FINISH_SECONDS):
                    await self._own_finished.wait()
        return given

    def _ask(self, request: Callable[[int], told.Input]) -> asyncio.Future[told.CommitAnswer]:
        self._requests += 1
        answer = self._answers[self._requests] = asyncio.get_running_loop().create_future()
        self._managing.take(request(self._requests))
        return answer

    def answer(self, effect: told.Answer) -> None:
        waiting = self._answers.pop(effect.request, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(effect.answer)

    def finished(self, outcome: Outcome | None) -> None:
        if not self._over.done():
            self._over.set_result(outcome)
        if not self._opened.done():
            self._opened.set_exception(CensusFailed(f"{self.tx} did not begin", tx=self.tx))

    def dropped(self) -> None:
        """The bus is closing: whoever waits is told that a successor goes on."""
        lost = UncheckedTransaction(
            f"the bus was closed before {self.tx} was decided",
            tx=self.tx,
            waiting_for=("a successor",),
            hint="whoever shares the journal finishes it; `tutti tx show` tells the outcome",
        )
        pending: list[asyncio.Future[Any]] = [self._opened, self._over, *self._answers.values()]
        for waiting in pending:
            if not waiting.done():
                waiting.set_exception(lost)
                waiting.exception()  # nobody may be waiting
