"""Carries out what the machine of one transaction asks for, at its manager.

The effects of the machine fall in two: what concerns the journal and the wire is done here; what concerns the
publisher's own events and resources is handed to its `PublisherSide`. Every answer is an input again.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any, assert_never

from tutti.control.transaction import machine
from tutti.control.transaction import messages as told
from tutti.errors import BusError, Fenced, InvalidMessage, JournalError, TuttiError
from tutti.journal import Proposal
from tutti.model.messages import Dismiss, Ended, Send, Ticked, To, WakeAt
from tutti.model.status import Span, TransactionStatus, named, spans_of
from tutti.model.transaction import PUBLISHER, Decision, Outcome
from tutti.resources import Resource
from tutti.runtime.clock import Timer
from tutti.runtime.transactions import account
from tutti.runtime.transactions.channel import signed
from tutti.runtime.transactions.keys import PayloadKey
from tutti.runtime.transactions.managing import PublisherSide

if TYPE_CHECKING:
    from tutti.runtime.transactions.coordinator import Coordinator

log = logging.getLogger("tutti.transactions")


class Managed:
    """One transaction. `stored`: the places of its events, as far as this process knows."""

    def __init__(
        self,
        coordinator: Coordinator,
        transaction: machine.Transaction,
        *,
        epoch: int,
        members_subject: str,
    ) -> None:
        self._coordinator = coordinator
        self._machine = transaction
        self.tx = transaction.tx
        self.deadline = transaction.deadline
        self.epoch = epoch
        self._members_subject = members_subject
        self.side: PublisherSide | None = None
        self.payload_key: PayloadKey | None = None
        self.keys: dict[str, bytes] = {}  # the same, wrapped for the members of a group
        self.stored: dict[str, set[int]] = {}
        self.complete = True  # `stored` holds all: no other process published in it
        self._timer: Timer | None = None
        self.since = coordinator.clock.monotonic()

    # What others ask

    @property
    def machine(self) -> machine.Transaction:
        return self._machine

    @property
    def open(self) -> bool:
        return self._machine.open

    @property
    def outcome(self) -> Outcome | None:
        return self._machine.outcome

    def waiting_for(self) -> tuple[str, ...]:
        return self._machine.waiting_for()

    @property
    def now(self) -> float:
        return self._coordinator.clock.wall()

    async def enlist(self, resource: Resource[Any]) -> None:
        """What a publisher in this process uses can be finished by this process."""
        self._coordinator.resources.setdefault(resource.name, resource)
        await self.enlist_name(resource.name)

    async def enlist_name(self, name: str) -> None:
        await self._coordinator.journal.enlist(self.tx, self.epoch, name)
        self.take(told.Enlisted(name))

    def take(self, given: told.Input) -> None:
        if isinstance(given, told.Stored) and given.stream:
            self.stored.setdefault(given.stream, set()).add(given.sequence)
        effects = self._machine.step(given)
        if account.wanted():
            for member, step in account.manager_steps(given, effects):
                account.write(self.tx, "manager", member, (step,))
        for effect in effects:
            self._carry_out(effect)

    # Effects

    def _carry_out(self, effect: told.Effect) -> None:
        side = self.side
        assert side is not None  # noqa: S101  for the type checker: it is set before the first input
        match effect:
            case Send():
                self._send(effect)
            case WakeAt():
                self._wake_at(effect.time)
            case told.Register():
                self.spawn(self._register(effect))
            case told.DecideInJournal():
                self.spawn(self._decide(effect.decision))
            case told.QueueStatus():
                self.spawn(self._queue_work_ended())
            case told.RecordEnded():
                self._coordinator.ended(Ended(self.tx, effect.member, effect.outcome, effect.state))
            case told.Finished():
                self._finish(effect.outcome)
            case told.Opened():
                side.opened(effect)
            case told.CensusFailed():
                side.census_failed(effect)
                self._end(None)
            case told.Publish():
                prepare = effect.prepare
                side.publish(effect, signed(prepare, self._coordinator.key, manager=True) if prepare else b"")
            case told.PrepareOwn():
                side.prepare_own()
            case told.FinishOwn():
                side.finish_own(effect.outcome)
            case told.Answer():
                side.answer(effect)
            case _:
                assert_never(effect)

    def _send(self, effect: Send) -> None:
        layout = self._coordinator.layout
        match effect.to:
            case To.CANDIDATES if isinstance(effect.message, Dismiss):
                subject = self._members_subject  # whoever joined listens there; of an invitation one instance hears
            case To.CANDIDATES:
                subject = layout.invitations(self._members_subject.split(".")[-2])
            case To.MEMBERS:
                subject = self._members_subject
            case To.INBOX:
                subject = effect.inbox
            case To.MANAGER | To.RECOVERY:
                return  # only members say that
            case _:
                assert_never(effect.to)
        self._coordinator.channel.emit(subject, signed(effect.message, self._coordinator.key, manager=True))

    def _wake_at(self, time: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if time is not None:
            clock = self._coordinator.clock
            self._timer = clock.call_at(clock.monotonic() + max(0.0, time - clock.wall()), self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.take(Ticked(self.now))

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._coordinator.spawn(work)

    def report(self, trouble: str) -> None:
        self._coordinator.context.report(trouble)

    # The journal

    async def _register(self, effect: told.Register) -> None:
        try:
            await self._coordinator.journal.register(effect.record)
        except Fenced:
            self.take(told.Fenced(self.now))
        except JournalError as error:
            self.take(told.JournalFailed(error.what, self.now))
        else:
            self.take(told.Registered(self.now, self.wrapped_keys(effect.wraps)))

    def wrapped_keys(self, wraps: Mapping[str, str]) -> dict[str, bytes]:
        """For each member. Who offers what is no key gets none, and cannot read what it is sent."""
        key, found = self.payload_key, dict[str, bytes]()
        for member, wrap in wraps.items():
            try:
                if wrap and key is not None:
                    found[member] = key.wrapped_for(wrap)
            except InvalidMessage as error:
                log.warning("%s: member %s: %s", self.tx, member, error.what)
        return found

    async def _decide(self, proposed: Decision) -> None:
        journal, read_from = self._coordinator.journal, ""
        assert self.side is not None  # noqa: S101  as above
        try:
            decision, read_from = await self.side.decide_last(proposed, journal)
            proposal = Proposal(
                tx=self.tx,
                outcome=decision.outcome,
                epoch=self.epoch,
                branch=decision.branch,
                reason=decision.reason,
                excluded=decision.excluded,
                status=await self._status(decision),
                read_from=read_from,
            )
            stands = await journal.decide(proposal)
        except Fenced:
            self.take(told.Fenced(self.now))
        except TuttiError as error:  # of the journal, or of a last resource: nothing is known, so it is tried again
            self.take(told.JournalFailed(error.what, self.now))
        else:
            self.take(told.JournalDecided(stands, self.now))
            self._coordinator.relay()

    async def learn(self) -> None:
        """Somebody says, with the journal's key, that it is decided, and not by us: what the journal says counts."""
        journal = self._coordinator.journal
        try:
            stands = await journal.decision(self.tx)
            if not isinstance(stands, Decision) or self._machine.outcome is not None:
                return
            self.take(told.JournalDecided(stands, self.now))
            status = await self._status(stands)
            if status is not None:
                await journal.queue_status(status, self.epoch)
                self._coordinator.relay()
        except JournalError as error:
            log.info("%s: what was decided elsewhere is learnt later: %s", self.tx, error)

    async def _status(self, decision: Decision) -> TransactionStatus | None:
        """None if the log cannot be read now: the recovery announces it later, from the log."""
        word: Any = "committed" if decision.outcome == "commit" else "aborted"
        try:
            spans = await self._spans()
            manifests = await self._coordinator.publish_manifests(self.tx, spans)
        except (BusError, InvalidMessage, TimeoutError) as error:
            log.info("%s: its status is announced later: %s", self.tx, error)
            return None
        events, scope = named(spans, manifests), self._machine.scope
        return TransactionStatus(self.tx, word, events, reason=decision.reason[:500], scope=scope)

    async def _spans(self) -> tuple[Span, ...]:
        prepare = self._machine.prepare
        alone = prepare is not None and not (set(prepare.counts) - {PUBLISHER})
        if self.complete and alone:
            return spans_of(self.stored)
        return spans_of(await self._coordinator.events_of(self.tx))

    async def _queue_work_ended(self) -> None:
        try:
            spans = spans_of(await self._coordinator.events_of(self.tx))
            manifests = await self._coordinator.publish_manifests(self.tx, spans)
            status = TransactionStatus(self.tx, "work_ended", named(spans, manifests), scope=self._machine.scope)
            await self._coordinator.journal.queue_status(status, self.epoch)
        except (BusError, InvalidMessage, JournalError, TimeoutError) as error:
            log.warning("%s: work_ended is not announced: %s", self.tx, error)
        else:
            self._coordinator.relay()

    # The end

    def _finish(self, outcome: Outcome) -> None:
        self._coordinator.finished(self.tx, self.epoch)
        self._end(outcome)

    def _end(self, outcome: Outcome | None) -> None:
        self._wake_at(None)
        self._coordinator.forget(self.tx)
        if self.side is not None:
            self.side.finished(outcome)

    def drop(self) -> None:
        """The process stops: nothing more is done here; a successor finishes."""
        self._wake_at(None)
        if self.side is not None:
            self.side.dropped()
