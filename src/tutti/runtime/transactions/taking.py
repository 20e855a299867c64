"""One subscriber in one transaction: the machine, and the hands that carry out what it asks for."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, assert_never

import msgspec

from tutti.bus.port import Record, Stored
from tutti.control.participation import messages as p
from tutti.control.participation.life import Stage
from tutti.control.participation.machine import Participation
from tutti.errors import BusError, InvalidEvent, JournalError
from tutti.journal import LogRow
from tutti.limits import FETCH_ATTEMPTS_COUNT, FETCH_GRACE_SECONDS, FETCH_PAUSE_SECONDS, PARKED_LOOK_SECONDS
from tutti.model.event import EventType
from tutti.model.involvement import Involvement
from tutti.model.messages import MANAGER, Begin, Close, Ended, Prepare, Received, Relay, Send, Ticked, To, WakeAt
from tutti.model.transaction import Consumed, ParticipantRecord, Scope, journal_of
from tutti.runtime.clock import Timer
from tutti.runtime.publication import Stamp
from tutti.runtime.transactions import account
from tutti.runtime.transactions.branch import Bench, Branch
from tutti.runtime.transactions.channel import signed
from tutti.runtime.transactions.events import Heard, carried_key, carried_prepare, compose, draft, hear
from tutti.runtime.transactions.joining import Joining
from tutti.runtime.transactions.keys import PayloadKey, SigningKey, WrapKey
from tutti.runtime.transactions.log import TransactionLog
from tutti.runtime.transactions.operations import Operations

if TYPE_CHECKING:
    from tutti.runtime.transactions.participant import Participants

log = logging.getLogger("tutti.transactions")

_PUBLISH_SECONDS = 10.0  # for the bus to store what a member publishes; the deadline of the transaction is near anyway


class Taking:
    """`key` signs for it; `wrap` opens the key of a private transaction."""

    def __init__(
        self,
        host: Participants,
        joining: Joining,
        part: p.Part,
        machine: Participation,
        key: SigningKey,
        *,
        wrap: WrapKey | None = None,
    ) -> None:
        self._host = host
        self._site = host.site
        self.joining, self.part, self.machine, self.key = joining, part, machine, key
        self.tx = part.tx
        self._wrap = wrap
        self.payload_key: PayloadKey | None = None
        self.scope: Scope = "private"
        self._attempts = 1
        self._epoch, self._deadline = part.epoch, part.deadline
        self.committed_early: list[Consumed] = []
        self.last_record: ParticipantRecord | None = None  # that was written, or committed with the work
        self.operations = Operations(self._site, self)
        self._timer: Timer | None = None
        self._outgoing: tuple[EventType, object] | None = None
        self._stored: asyncio.Future[Stored] | None = None
        self._dropped = False
        self._heard: set[tuple[str, str, int]] = set()  # publisher, type and number of what came
        self._stamp = Stamp()

    def restore(self, row: LogRow) -> tuple[str, ...]:
        """From the log; the names of resources that are needed and not declared."""
        self.last_record = row.record
        self.payload_key = PayloadKey(row.payload_key) if row.payload_key else None
        if self.part.early_commit:
            self.committed_early = list(row.record.consumed)
        return self.operations.restore(row)

    # What it is told

    def take(self, given: p.Input) -> None:
        if self._dropped:
            return
        was = self.machine.stage
        effects = self.machine.step(given)
        if account.wanted():
            steps = account.member_steps(self.machine, was, given, effects, compensatable=self.part.compensatable)
            account.write(self.tx, self._site.subscriber, self.machine.member, steps)
        for effect in effects:
            self._carry_out(effect)
        if self.machine.stage is not was:
            self._host.changed()

    @property
    def refused(self) -> bool:
        """It voted no and undid its work: nothing is owed any more, whatever is decided."""
        return self.machine.stage is Stage.REFUSED

    @property
    def only_waits(self) -> bool:
        """What it did is durable, and the decision is not here yet."""
        return self.machine.stage in {Stage.VOTED, Stage.RESOLVED}

    def receive(self, given: Received) -> None:
        message = given.message
        if given.signer == MANAGER:
            if isinstance(message, Begin):
                self._learn_key(message.keys.get(self.machine.member, b""))
                self._deadline = message.deadline
            if isinstance(message, Begin | Close | Prepare):
                self._epoch = max(self._epoch, message.epoch)
        self.take(given)

    def hear(self, record: Record, heard: Heard) -> None:
        """An event of the transaction, from the wire or fetched."""
        self.scope, self._attempts = heard.involvement.scope, heard.involvement.attempts
        if self.payload_key is None:
            self._learn_key(carried_key(record, self.machine.member))
        event = heard.consumed
        self._heard.add((event.publisher, event.type, event.number))
        if event.type in self.part.handles:
            self.operations.heard.setdefault((event.publisher, event.type, event.number), heard)
            self.take(p.Arrived(event, self._site.now))
        prepare = carried_prepare(record)
        given = self._host.channel.opened(prepare) if prepare else None
        if given is not None:
            self.receive(given)

    def _learn_key(self, wrapped: bytes) -> None:
        if not wrapped or self._wrap is None:
            return
        try:
            self.payload_key = self._wrap.unwrap(wrapped)
        except InvalidEvent as error:
            log.warning("%s: %s: %s", self._site.subscriber, self.tx, error.what)  # its events fail, and say so

    # What handlers ask for

    def branch(self, bench: Bench) -> Branch:
        name = self.joining.type.name
        return Branch(bench, tx=self.tx, type_name=name, scope=self.scope, deadline=self._deadline)

    def set_abort(self, reason: str) -> None:
        self.take(p.AbortSet(reason, self._site.now))

    def publish(self, kind: EventType, event: object) -> asyncio.Future[Stored]:
        """Only while the machine says that it may. The number is taken when nothing can be wrong with the event."""
        kind.encode(event)
        kind.routing_tokens(event)
        self._outgoing = (kind, event)
        self.take(p.Publishing(kind.name, kind.name))
        stored, self._stored = self._stored, None
        assert stored is not None  # noqa: S101  for the type checker: the machine answers with `Publish`
        return stored

    def early_record(self, consumed: tuple[Consumed, ...]) -> ParticipantRecord:
        """What is written with each event that is committed at once."""
        part = self.part
        return ParticipantRecord(
            tx=part.tx,
            pseudonym=part.pseudonym,
            key=part.key,
            state="working",
            epoch=self._epoch,
            round=0,
            deadline=self._deadline,
            compensatable=True,
            group=part.group,
            consumed=consumed,
        )

    # Effects

    def _carry_out(self, effect: p.Effect) -> None:
        match effect:
            case Send():
                self._send(effect)
            case WakeAt():
                self._wake_at(effect.time)
            case p.Fetch():
                asyncio.get_running_loop().call_later(FETCH_GRACE_SECONDS, self._fetch_late, effect)
            case p.Publish():
                self._append(effect)
            case p.Stuck():
                self._site.context.report(f"{self._site.subscriber}: {self.tx}: {effect.reason}")
            case p.Forget():
                self._host.forget(self)
            case (
                p.Handle()
                | p.PrepareResources()
                | p.CommitWork()
                | p.WriteLog()
                | p.CommitResources()
                | p.RollbackResources()
                | p.RunCompensator()
                | p.CloseLog()
                | p.RecordHeuristic()
                | p.Park()
            ):
                self.operations.enqueue(effect)
            case _:
                assert_never(effect)

    def _send(self, effect: Send) -> None:
        layout, channel = self._site.context.layout, self._host.channel
        match effect.to:
            case To.MANAGER if isinstance(effect.message, Ended):
                self._host.ended(self.tx, signed(effect.message, self.key))
            case To.MANAGER:
                channel.emit(layout.manager(self.tx), signed(effect.message, self.key))
            case To.MEMBERS:
                channel.emit(self._members_subject(), signed(effect.message, self.key))
            case To.RECOVERY:
                channel.emit(layout.recovery(journal_of(self.tx)), signed(effect.message, self.key))
            case To.INBOX:
                answer = effect.message
                if isinstance(answer, Relay):
                    answer = msgspec.structs.replace(answer, member=self.machine.member)
                channel.emit(effect.inbox, signed(answer, self.key))
            case To.CANDIDATES:
                pass  # only managers say that
            case _:
                assert_never(effect.to)

    def _members_subject(self) -> str:
        layout = self._site.context.layout
        if self.part.group:
            return layout.group(self.part.group, self.tx)
        return layout.members(self.joining.type.token, self.tx)

    def _wake_at(self, time: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if time is not None and not self._dropped:
            clock = self._site.context.clock
            self._timer = clock.call_at(clock.monotonic() + max(0.0, time - clock.wall()), self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.take(Ticked(self._site.now))

    def _append(self, effect: p.Publish) -> None:
        assert self._outgoing is not None  # noqa: S101  for the type checker: `publish` has just set it
        kind, event = self._outgoing
        context = self._site.context
        involvement = Involvement(
            tx=self.tx,
            publisher=self.machine.member,
            number=effect.number,
            scope=self.scope,
            contact=context.layout.manager(self.tx),
            epoch=self._epoch,
            deadline=self._deadline,
            group=self.part.group,
            attempts=self._attempts,
        )
        source, time = context.publisher.source, self._stamp.text(self._site.now)
        try:
            made = compose(
                context.layout, draft(kind, event), involvement, source=source, time=time, key=self.payload_key
            )
        except InvalidEvent as error:
            self._stored = asyncio.get_running_loop().create_future()
            self._stored.set_exception(error)
            return
        self._stored = context.transport.append(made.subject, made.headers, made.data, timeout=_PUBLISH_SECONDS)

    def _fetch_late(self, fetch: p.Fetch) -> None:
        """A prepare may overtake the last events on the way: most of what was missing has come by now."""
        if not self._dropped and self._lacking(fetch):
            self._host.spawn(self._fetch(fetch))

    def _lacking(self, fetch: p.Fetch) -> set[int]:
        return {number for number in fetch.numbers if (fetch.publisher, fetch.type, number) not in self._heard}

    async def _fetch(self, fetch: p.Fetch) -> None:
        """From the log, by the transaction's subject. Only a log that could be read tells that an event is gone."""
        kind = next((event for event in self.joining.type.events if event.name == fetch.type), None)
        wanted, looks = self._lacking(fetch), 0
        while kind is not None and looks < FETCH_ATTEMPTS_COUNT and not self._dropped:
            try:
                wanted -= await self._look(kind, fetch, wanted)
                looks += 1
            except (BusError, TimeoutError) as error:
                log.info("%s: %s: the log cannot be read now: %s", self._site.subscriber, self.tx, error)
            if not wanted:
                return
            await asyncio.sleep(FETCH_PAUSE_SECONDS)
        for number in sorted(wanted):
            self.take(p.EventGone(fetch.publisher, fetch.type, number, self._site.now))

    async def _look(self, kind: EventType, fetch: p.Fetch, wanted: set[int]) -> set[int]:
        context = self._site.context
        info = await context.transport.stream_info(context.layout.event_stream(kind.stream))
        found: set[int] = set()
        if info is None or not info.messages:
            return found
        records = TransactionLog(context.transport, context.layout).records_of(
            kind.stream, self.tx, info.first, info.last
        )
        async for batch in records:
            for record in batch:
                try:
                    heard = hear(record)
                except InvalidEvent:
                    continue
                if heard is None or heard.consumed.type != fetch.type or heard.consumed.publisher != fetch.publisher:
                    continue
                if heard.consumed.number in wanted:
                    found.add(heard.consumed.number)
                    self.hear(record, heard)
        return found

    # The operator

    def parked(self, event: Consumed) -> None:
        self._host.spawn(self._until_unparked(event))

    async def _until_unparked(self, event: Consumed) -> None:
        """The operator takes it out of the queue to have it tried again."""
        while not self._dropped:
            await asyncio.sleep(PARKED_LOOK_SECONDS)
            try:
                waiting = await self._site.log.parked(self._site.subscriber)
            except JournalError:
                continue
            if not any(found.tx == self.tx and found.event == event for found in waiting):
                self.take(p.CompensationResumed(self._site.now))
                return

    # The end

    def fenced(self) -> None:
        """Another instance acts for this subscriber: nothing more is done here."""
        log.warning("%s: %s: another instance has taken it over", self._site.subscriber, self.tx)
        self._host.drop(self)

    def drop(self) -> None:
        self._wake_at(None)
        self._dropped = True

    async def close(self) -> None:
        self.drop()
        await self.operations.close()
