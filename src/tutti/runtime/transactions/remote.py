"""Managers that run as a service, as a publisher sees them: no journal is needed in its process.

What the machine is told, and what it asks for, goes over a conversation that loses nothing. A service that falls silent
is not waited for: its successor decides, and until it has, this process asks the journal's recovery.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable, Coroutine
from typing import Any, assert_never

from tutti import errors
from tutti.bus.port import Listener
from tutti.control.conversation import Packet
from tutti.control.transaction import messages as told
from tutti.control.transaction import sides
from tutti.errors import (
    DeclarationError,
    InvalidMessage,
    TransactionClosed,
    TransactionError,
    TuttiError,
)
from tutti.limits import DOUBT_ASK_SECONDS, MANAGER_ANSWER_SECONDS, MANAGER_ASK_SECONDS
from tutti.model.messages import MANAGER, Decide, Inquiry, Standing
from tutti.model.transaction import PUBLISHER, CensusRule, Outcome, everybody, journal_of
from tutti.resources import Resource
from tutti.runtime.context import Context
from tutti.runtime.transactions.channel import Channel, passed_over, signed
from tutti.runtime.transactions.keys import PayloadKey, SigningKey, WrapKey
from tutti.runtime.transactions.line import Line, sealed, unsealed_by
from tutti.runtime.transactions.managing import PublisherSide
from tutti.runtime.transactions.trust import Trust

log = logging.getLogger("tutti.transactions")


class RemoteManagers:
    """For the publishers of one process. `start` once, then `close`."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._trust = Trust(context.transport, context.trusted)
        self.channel = Channel(context.transport, context.clock, lambda: self._trust.key)
        self.inbox = self.channel.inbox()  # what services say
        self.recovery_inbox = self.channel.inbox()  # what the journal's recovery says
        self._asking: dict[str, asyncio.Future[sides.Taken | sides.Declined]] = {}
        self._talking: dict[str, RemoteManaged] = {}
        self._listeners: list[Listener] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        for inbox, take in ((self.inbox, self._told), (self.recovery_inbox, self._recovered)):
            listener = await self.channel.listen(inbox)
            self._listeners.append(listener)
            self.spawn(self._hear(listener, take))

    async def close(self) -> None:
        for managed in tuple(self._talking.values()):
            managed.drop()
        for listener in self._listeners:
            await listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.context.failed(task)

    async def _hear(self, listener: Listener, take: Callable[[bytes], None]) -> None:
        async for record in listener:
            try:
                take(record.data)
            except Exception as error:  # noqa: BLE001  reported; we must not become deaf to the others
                passed_over(error, record, self.context)

    # A transaction

    async def open(
        self,
        intent: sides.Intent,
        side: PublisherSide,
        *,
        rule: CensusRule | None = None,
        vital: Callable[[str], bool] | None = None,
    ) -> RemoteManaged:
        if vital is not None or (rule is not None and (rule.predicate is not None or rule.vital is not everybody)):
            raise DeclarationError(
                "a predicate, or a choice of vital members, is Python code: it cannot travel to a manager elsewhere",
                hint='connect with manager="here", or let the members declare what is vital when they enrol',
            )
        key, wrap = SigningKey.fresh(), WrapKey.fresh()
        ask = sides.Ask(secrets.token_hex(16), intent, key.public, wrap.public, self.inbox)
        answer = await self._ask(ask, key)
        if isinstance(answer, sides.Declined):
            raise _error(answer)
        managed = RemoteManaged(self, answer, key, side)
        if answer.payload:
            managed.payload_key = wrap.unwrap(answer.payload)
        self._talking[managed.tx] = managed
        return managed

    async def _ask(self, ask: sides.Ask, key: SigningKey) -> sides.Taken | sides.Declined:
        answer: asyncio.Future[sides.Taken | sides.Declined]
        answer = self._asking[ask.ask] = asyncio.get_running_loop().create_future()
        envelope = sealed(sides.encode(ask), key)
        try:
            async with asyncio.timeout(MANAGER_ANSWER_SECONDS):
                while not answer.done():
                    if await self._trust.load():  # nobody is believed before there is a journal
                        self.context.transport.emit(self.context.layout.hosts, {}, envelope)
                    await asyncio.wait([answer], timeout=MANAGER_ASK_SECONDS)
                return answer.result()
        except TimeoutError:
            raise TransactionError(
                f"no manager answers within {MANAGER_ANSWER_SECONDS:g} seconds: {ask.intent.type} does not begin",
                hint='keep `tutti up` running on some host, or connect with manager="here"',
            ) from None
        finally:
            del self._asking[ask.ask]

    def forget(self, tx: str) -> None:
        self._talking.pop(tx, None)

    def emit(self, tx: str, packet: Packet, key: SigningKey) -> None:
        self.context.transport.emit(self.context.layout.host(tx), {}, sealed(sides.encode(packet), key))

    # What comes

    def _told(self, envelope: bytes) -> None:
        try:
            body = unsealed_by(envelope, self._trust.key)
            try:
                packet = sides.packet(body)
            except InvalidMessage:
                self._answered(sides.question(body))
                return
        except InvalidMessage as error:
            log.info("what a manager says cannot be understood: %s", error)
            return
        managed = self._talking.get(packet.tx)
        if managed is not None:
            managed.line.hear(packet)

    def _answered(self, answer: sides.Question) -> None:
        waiting = self._asking.get(answer.ask)
        if waiting is not None and not waiting.done() and not isinstance(answer, sides.Ask):
            waiting.set_result(answer)

    def _recovered(self, packet: bytes) -> None:
        for given in self.channel.open(packet):
            managed = self._talking.get(given.message.tx)
            if managed is not None and given.signer == MANAGER and isinstance(given.message, Decide | Standing):
                managed.learn(given.message)


class RemoteManaged:
    """One transaction whose manager is elsewhere."""

    def __init__(self, managers: RemoteManagers, taken: sides.Taken, key: SigningKey, side: PublisherSide) -> None:
        self._managers = managers
        self._side = side
        self.tx, self.epoch, self.deadline = taken.tx, taken.epoch, taken.deadline
        self.keys = taken.keys
        self.payload_key: PayloadKey | None = None
        self._stands = sides.Stands(open=False)
        self._closed = False  # by what we said ourselves
        self._requests: set[int] = set()
        self._enlisting: dict[str, asyncio.Future[str]] = {}
        self._alone = False
        self._over = False
        self.line = Line(
            taken.tx,
            managers.context.clock,
            emit=lambda packet: managers.emit(taken.tx, packet, key),
            deliver=self._said,
            lost=self._lost,
        )

    @property
    def now(self) -> float:
        return self._managers.context.clock.wall()

    @property
    def open(self) -> bool:
        return self._stands.open and not self._closed

    @property
    def outcome(self) -> Outcome | None:
        return self._stands.outcome

    def waiting_for(self) -> tuple[str, ...]:
        return ("its manager, which does not answer",) if self._alone else ("its manager",)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._managers.spawn(work)

    # What the publisher says

    def take(self, given: told.Input) -> None:
        match given:
            case told.CommitRequested() | told.AbortRequested() if self._over:
                self._side.answer(told.Answer(given.request, self._standing()))
                return
            case told.CommitRequested() | told.AbortRequested():
                self._requests.add(given.request)
                self._closed = True
            case told.Publishing(last=True):
                self._closed = True
            case _:
                pass
        assert isinstance(given, sides.FromPublisher)  # noqa: S101  for the type checker: a publisher says nothing else
        self.line.say(given)

    async def enlist(self, resource: Resource[Any]) -> None:
        if not resource.prepares:
            raise DeclarationError(
                f"{resource.name} cannot prepare, so it must be where its manager is",
                hint='connect with manager="here", or put its work into a compensatable subscriber',
            )
        waiting = self._enlisting.get(resource.name)
        if waiting is None:
            waiting = self._enlisting[resource.name] = asyncio.get_running_loop().create_future()
            self.line.say(told.Enlisted(resource.name))
        error = await asyncio.shield(waiting)
        if error:
            raise TransactionClosed(
                f"{resource.name} cannot be enlisted in {self.tx}: {error}", tx=self.tx, hint="begin another one"
            )

    # What the manager says

    def _said(self, item: bytes) -> None:
        try:
            given = sides.from_manager(item)
        except InvalidMessage as error:
            log.warning("%s: its manager says what nobody understands: %s", self.tx, error)
            return
        match given:
            case told.Opened():
                self._stands = sides.Stands(open=True)
                self._side.opened(given)
            case told.CensusFailed():
                self._side.census_failed(given)
            case sides.Carried():
                self._side.publish(given.publish, given.prepare)
            case told.PrepareOwn():
                self._side.prepare_own()
            case told.FinishOwn():
                self._side.finish_own(given.outcome)
            case told.Answer():
                self._answer(given)
            case sides.Enlisting():
                self._enlisted(given.resource, given.error)
            case sides.Stands():
                self._stands = given
            case sides.Over():
                self._end(given.outcome)
            case _:
                assert_never(given)

    def _standing(self) -> told.CommitAnswer:
        """After the end."""
        if self._stands.outcome == "commit":
            return told.Committed()
        return told.Aborted(self._stands.reason or "there is no such transaction")

    def _answer(self, answer: told.Answer) -> None:
        self._requests.discard(answer.request)
        self._side.answer(answer)

    def _enlisted(self, name: str, error: str) -> None:
        waiting = self._enlisting.get(name)
        if waiting is not None and not waiting.done():
            waiting.set_result(error)
        if error:
            self._enlisting.pop(name, None)

    def _end(self, outcome: Outcome | None) -> None:
        if not self._over:
            self._over = True
            self._managers.forget(self.tx)
            self.line.hang_up()
            self._side.finished(outcome)

    def drop(self) -> None:
        """This process stops: the manager notices, and aborts what is undecided."""
        self.line.hang_up()
        self._side.dropped()

    # Without a manager

    def _lost(self) -> None:
        if self._alone:  # lost, heard, and lost again: the journal is being asked
            return
        log.warning("%s: its manager is silent; the journal is asked what became of it", self.tx)
        self._alone = True
        self.spawn(self._ask_recovery())

    async def _ask_recovery(self) -> None:
        managers = self._managers
        question = Inquiry(self.tx, PUBLISHER, "voted", managers.recovery_inbox)
        subject = managers.context.layout.recovery(journal_of(self.tx))
        while self._alone and not self._over:
            managers.channel.emit(subject, signed(question, None))
            await asyncio.sleep(DOUBT_ASK_SECONDS)

    def learn(self, answer: Decide | Standing) -> None:
        """From the journal: by a successor, or by whoever shares it."""
        if isinstance(answer, Standing):
            if answer.answer == "unknown" and not self._stands.open and self._stands.outcome is None:
                self._side.census_failed(told.CensusFailed("its manager is gone", ()))
                self._end(None)
            return
        self._stands = sides.Stands(open=False, outcome=answer.outcome, reason=answer.reason)
        for request in sorted(self._requests):
            self._answer(told.Answer(request, self._standing()))
        for name in tuple(self._enlisting):
            self._enlisted(name, f"it is decided: {answer.outcome}")
        self._side.finish_own(answer.outcome)
        self._end(None)


def _error(declined: sides.Declined) -> TuttiError:
    """The exception that the service met, as if it had been raised here."""
    kind = getattr(errors, declined.error, None)
    if not (isinstance(kind, type) and issubclass(kind, TuttiError)):
        kind = TransactionError
    with contextlib.suppress(TypeError):
        return kind(declined.what, hint=declined.hint)
    return TransactionError(declined.what, hint=declined.hint)
