"""Managers for publishers in other processes: what `tutti up` does besides keeping a server.

A publisher that dies is noticed by its silence: then its transaction aborts, and its own resources are finished here,
as far as this process can reach them. If this process dies, a successor does the same, and the publisher asks the
journal's recovery what became of it (`remote.py`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, assert_never

from tutti.control.conversation import Packet
from tutti.control.transaction import messages as told
from tutti.control.transaction import sides
from tutti.errors import InvalidMessage, TuttiError
from tutti.journal import Journal
from tutti.limits import ENDED_KEPT_COUNT, MANAGER_UNUSED_SECONDS
from tutti.model.subjects import is_inbox
from tutti.model.transaction import Decision, Outcome
from tutti.runtime.transactions.line import Line, sealed, unsealed, unsealed_by
from tutti.runtime.transactions.manager import Managed
from tutti.runtime.transactions.own import InheritedWork

if TYPE_CHECKING:
    from tutti.runtime.transactions.coordinator import Coordinator

log = logging.getLogger("tutti.transactions")

_QUEUE: Final = "managers"  # of several services, one is asked


class Host:
    """What it hosts ends with its coordinator."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._hosted: dict[str, Hosted] = {}  # by transaction
        self._asked: dict[str, Hosted | sides.Declined | None] = {}  # by ask; None: it is being seen to

    async def start(self) -> None:
        """When this returns, a publisher that asks is answered."""
        layout = self._coordinator.layout
        await self._coordinator.hear(layout.hosted(self._coordinator.manager), self._talked)
        await self._coordinator.hear(layout.hosts, self._questioned, group=_QUEUE)

    def _questioned(self, envelope: bytes, _: str) -> None:
        try:
            body, signer = unsealed(envelope)
            ask = sides.question(body)
        except InvalidMessage as error:
            log.info("a publisher's question cannot be read: %s", error)
            return
        if not isinstance(ask, sides.Ask) or signer != ask.key or not is_inbox(ask.inbox):
            return
        if ask.ask not in self._asked:
            while len(self._asked) >= ENDED_KEPT_COUNT:
                del self._asked[next(iter(self._asked))]
            self._asked[ask.ask] = None
            self._coordinator.spawn(self._open(ask))
        else:
            self._answer(ask, self._asked[ask.ask])

    async def _open(self, ask: sides.Ask) -> None:
        hosted = Hosted(self, self._coordinator, ask)
        try:
            managed = await self._coordinator.open(ask.intent, hosted)
        except TuttiError as error:
            self._asked[ask.ask] = sides.Declined(ask.ask, type(error).__name__, error.what, error.hint)
        else:
            hosted.begin(managed)
            self._hosted[managed.tx] = self._asked[ask.ask] = hosted
        self._answer(ask, self._asked[ask.ask])

    def _answer(self, ask: sides.Ask, known: Hosted | sides.Declined | None) -> None:
        if known is not None:
            answer = known.taken() if isinstance(known, Hosted) else known
            self.emit(ask.inbox, answer)

    def emit(self, subject: str, value: sides.Question | Packet) -> None:
        body = sealed(sides.encode(value), self._coordinator.key, manager=True)
        self._coordinator.context.transport.emit(subject, {}, body)

    def _talked(self, envelope: bytes, subject: str) -> None:
        hosted = self._hosted.get(subject.rpartition(".")[2])
        if hosted is None:
            return
        try:
            hosted.line.hear(sides.packet(unsealed_by(envelope, hosted.ask.key)))
        except InvalidMessage as error:
            log.info("%s: its publisher cannot be understood: %s", hosted.managed.tx, error)

    def ended(self, hosted: Hosted) -> None:
        self._hosted.pop(hosted.managed.tx, None)


class Hosted:
    """The publisher's side of a transaction, at a manager that is a service: everything is passed on to the publisher,
    and done here when that is gone."""

    managed: Managed
    line: Line

    def __init__(self, host: Host, coordinator: Coordinator, ask: sides.Ask) -> None:
        self._host = host
        self._coordinator = coordinator
        self.ask = ask
        self._begun = False
        self._names: list[str] = []  # of the publisher's own resources
        self._finishing: Outcome | None = None  # asked for, and not done
        self._gone = False
        self._over = False
        self._stands: sides.Stands | None = None

    def begin(self, managed: Managed) -> None:
        self.managed = managed
        self.line = Line(
            managed.tx,
            self._coordinator.clock,
            emit=lambda packet: self._host.emit(self.ask.inbox, packet),
            deliver=self._said,
            lost=self._lost,
        )
        clock = self._coordinator.clock
        clock.call_at(clock.monotonic() + MANAGER_UNUSED_SECONDS, self._unless_begun)

    def taken(self) -> sides.Taken:
        managed, key = self.managed, self.managed.payload_key
        payload = key.wrapped_for(self.ask.wrap) if key is not None else b""
        return sides.Taken(self.ask.ask, managed.tx, managed.epoch, managed.deadline, payload, managed.keys)

    def _unless_begun(self) -> None:
        if not self._begun:
            self._coordinator.forget(self.managed.tx)
            self.finished(None)

    # What the publisher says

    def _said(self, item: bytes) -> None:
        managed = self.managed
        if self._over and not self._begun:  # it was given up before its publisher came
            return
        try:
            given = sides.from_publisher(item)
        except InvalidMessage as error:
            log.warning("%s: its publisher says what nobody understands: %s", managed.tx, error)
            return
        now = managed.now
        match given:
            case told.Started():
                self._begun = True
                managed.take(told.Started(now))
            case told.Publishing():
                if managed.open:  # else it was closed, or decided, while this was on its way
                    managed.take(told.Publishing(given.event, given.type, now, given.last))
            case told.Stored():
                managed.take(told.Stored(given.event, now, given.stream, given.sequence))
            case told.NotStored():
                managed.take(told.NotStored(given.event, given.reason, now))
            case told.Enlisted():
                managed.spawn(self._enlist(given.resource))
            case told.CommitRequested():
                managed.take(told.CommitRequested(given.request, given.timeout, now))
            case told.AbortRequested():
                managed.take(told.AbortRequested(given.request, given.reason, now))
            case told.OwnPrepared():
                managed.take(told.OwnPrepared(now))
            case told.OwnPrepareFailed():
                managed.take(told.OwnPrepareFailed(given.reason, now))
            case told.OwnFinished():
                self._finishing = None
                managed.take(told.OwnFinished(now))
            case _:
                assert_never(given)
        self._tell_standing()

    async def _enlist(self, name: str) -> None:
        error = "" if self.managed.open else f"the work of {self.managed.tx} is over"
        if not error:
            try:
                await self.managed.enlist_name(name)
                self._names.append(name)
            except TuttiError as trouble:
                error = trouble.what
        self.line.say(sides.Enlisting(name, error))

    def _lost(self) -> None:
        if self._over:  # there was nothing more to say to each other
            self._hang_up()
            return
        log.warning("%s: its publisher is gone", self.managed.tx)
        self._gone = True
        self.managed.take(told.PublisherLost(self.managed.now))
        if self._finishing is not None:
            self.finish_own(self._finishing)

    # What the manager says

    def _tell_standing(self) -> None:
        row = self.managed.machine.decision
        stands = sides.Stands(self.managed.open, row.outcome, row.reason) if row else sides.Stands(self.managed.open)
        if stands != self._stands:
            self._stands = stands
            self.line.say(stands)

    def opened(self, effect: told.Opened) -> None:
        self.line.say(effect)

    def census_failed(self, effect: told.CensusFailed) -> None:
        self.line.say(effect)

    def publish(self, effect: told.Publish, prepare: bytes) -> None:
        self.line.say(sides.Carried(effect, prepare))

    def prepare_own(self) -> None:
        self.line.say(told.PrepareOwn())

    def answer(self, effect: told.Answer) -> None:
        self.line.say(effect)

    def finish_own(self, outcome: Outcome) -> None:
        self._finishing = outcome
        self._tell_standing()
        self.line.say(told.FinishOwn(outcome))
        if self._gone:
            self.managed.spawn(self._finish(outcome))

    async def _finish(self, outcome: Outcome) -> None:
        """In the publisher's place. It may come back and do the same: that is harmless."""
        coordinator = self._coordinator
        work = InheritedWork(
            self.managed.tx, tuple(self._names), "", coordinator.resources, coordinator.context.bus.ready
        )
        try:
            await work.finish(outcome)
        except TuttiError as error:
            # It stays unfinished in the journal, where `tutti tx ls` shows it, until somebody can reach the resource.
            self.managed.report(f"{self.managed.tx}: {error}")
        else:
            self._finishing = None
            self.managed.take(told.OwnFinished(self.managed.now))

    async def decide_last(self, decision: Decision, journal: Journal) -> tuple[Decision, str]:  # noqa: ARG002  no last resource is far from its manager
        return decision, ""

    def finished(self, outcome: Outcome | None) -> None:
        self._over = True
        self._tell_standing()
        self.line.say(sides.Over(outcome))
        clock = self._coordinator.clock
        clock.call_at(clock.monotonic() + MANAGER_UNUSED_SECONDS, self._hang_up)  # it may have to be repeated

    def dropped(self) -> None:
        self._hang_up()

    def _hang_up(self) -> None:
        self.line.hang_up()
        self._host.ended(self)
