"""The managers of one process: what their transactions share.

One listener for all that members say, one journal whose writes are gathered, one lease, one watch over heartbeats. It
also takes over what others left (`_succeed`), and answers members in doubt on the journal's recovery subject.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from tutti.bus.port import Listener
from tutti.control.transaction import machine
from tutti.control.transaction import messages as told
from tutti.control.transaction.sides import Intent
from tutti.errors import BusError, Fenced, GroupUnfit, InvalidMessage, JournalError, LeaseHeld, TuttiError
from tutti.journal import Entry, Journal, Undecided, Unknown
from tutti.limits import (
    JOURNAL_LEASE_SECONDS,
    MANAGER_CLOSE_SECONDS,
    MANAGER_WATCH_SECONDS,
    MEMBER_LOST_SECONDS,
    OUTCOMES_KEPT_SECONDS,
    RECORDS_KEPT_SECONDS,
)
from tutti.model.messages import MANAGER, Decide, Ended, Inquiry, Standing
from tutti.model.status import ManifestReference, Span, TransactionStatus, named, spans_of
from tutti.model.subjects import token
from tutti.model.transaction import CensusRule, Decision
from tutti.resources import Resource
from tutti.runtime.context import Context
from tutti.runtime.transactions.channel import Channel, passed_over, signed
from tutti.runtime.transactions.groups import Groups
from tutti.runtime.transactions.hosting import Host
from tutti.runtime.transactions.keys import PayloadKey, SigningKey
from tutti.runtime.transactions.log import TransactionLog
from tutti.runtime.transactions.manager import Managed
from tutti.runtime.transactions.managing import PublisherSide
from tutti.runtime.transactions.reaping import PublisherReaper
from tutti.runtime.transactions.statuses import StatusRelay
from tutti.runtime.transactions.successor import Successor
from tutti.runtime.transactions.trust import Trust

log = logging.getLogger("tutti.transactions")

_KEEP_SECONDS: Final = JOURNAL_LEASE_SECONDS / 3  # two renewals may fail before the lease runs out


class Coordinator:
    """`resources`: what this process can finish for publishers that do not come back, by name."""

    def __init__(
        self, context: Context, journal: Journal, key: SigningKey, resources: Mapping[str, Resource[Any]]
    ) -> None:
        self.context = context
        self.clock = context.clock
        self.layout = context.layout
        self.journal = journal
        self.key = key
        self.resources = dict(resources)
        self.trust = Trust(context.transport, context.trusted)
        self.channel = Channel(context.transport, context.clock, lambda: self.trust.key)
        self._relay = StatusRelay(
            context.transport,
            context.layout,
            journal,
            clock=context.clock,
            report=context.report,
            failed=context.failed,
        )
        self._log = TransactionLog(context.transport, context.layout, self._streams)
        self._run = secrets.token_hex(4)
        self._count = 0
        self._managed: dict[str, Managed] = {}
        self._fewer = asyncio.Event()
        self._beats: dict[str, float] = {}  # by instance: when it was heard last
        self._listeners: dict[str, Listener] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended: list[Ended] = []
        self._finished: list[tuple[str, int]] = []
        self._to_write = asyncio.Event()
        self._writing = asyncio.Lock()
        self._kept_at = 0.0
        self.listening_since = 0.0
        self.groups = Groups(self)
        self._host: Host | None = None

    # Life

    @property
    def manager(self) -> str:
        """The name of this process among those that share the journal: new in each run."""
        return f"{self.journal.id}-{self._run}"

    async def start(self) -> None:
        await self.journal.start()
        await self.trust.declare(self.journal.id, self.key.public)
        await self.journal.renew(self.manager)
        await self._relay.start()
        await self.hear(self.layout.managed(self.manager), self._from_members)
        await self.hear(self.layout.heartbeat("*"), self._beat)
        await self.hear(self.layout.recovery(self.journal.id), self._asked, group="recovery")
        self.listening_since = self.clock.monotonic()
        self.spawn(self._keep())
        self.spawn(PublisherReaper(self).run())
        self.spawn(self._write())

    async def host(self) -> None:
        """Be a service: see `hosting.py`."""
        if self._host is None:
            self._host = Host(self)
            await self._host.start()

    async def close(self) -> None:
        """What is decided may end, for a moment. What is left stays with the journal: whoever shares it goes on, now,
        and not after the lease."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(MANAGER_CLOSE_SECONDS):
                while any(managed.outcome is not None for managed in self._managed.values()):
                    self._fewer.clear()
                    await self._fewer.wait()
        for managed in tuple(self._managed.values()):
            managed.drop()
        for listener in self._listeners.values():
            await listener.close()
        with contextlib.suppress(JournalError):
            await self._write_now()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._relay.close()
        with contextlib.suppress(JournalError):
            await self.journal.release(self.manager)
        await self.journal.close()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.context.failed(task)

    # Transactions

    async def open(
        self,
        intent: Intent,
        side: PublisherSide,
        *,
        rule: CensusRule | None = None,
        vital: Callable[[str], bool] | None = None,
    ) -> Managed:
        """`GroupUnfit` before anything has begun."""
        enrolled = await self.groups.members(intent.group, intent.type) if intent.group else ()
        if intent.group and len(enrolled) < intent.minimum:
            raise GroupUnfit(
                f"the group {intent.group!r} has {len(enrolled)} members, {intent.minimum} are wanted",
                hint="start more subscribers that enrol, or lower the minimum",
            )
        tx = self._next_id()
        members = tuple(member.member(tx, vital=vital(member.subscriber) if vital else None) for member in enrolled)
        plan = told.Plan(
            tx=tx,
            type=intent.type,
            deadline=self.clock.wall() + intent.seconds,
            manager=self.manager,
            data=intent.data,
            scope=intent.scope,
            events=intent.events,
            census=rule or (intent.census.rule() if intent.census is not None else None),
            group=intent.group,
            members=members,
            minimum=intent.minimum,
        )
        subject = self._members_subject(intent.group, intent.type, tx)
        managed = Managed(self, machine.Transaction(plan), epoch=plan.epoch, members_subject=subject)
        managed.side = side
        if intent.scope == "private":
            managed.payload_key = PayloadKey.fresh()
            wraps = {mine.hash: member.wrap for mine, member in zip(members, enrolled, strict=True)}
            managed.keys = managed.wrapped_keys(wraps)
        self.manage(managed)
        return managed

    def _next_id(self) -> str:
        self._count += 1
        return f"{self.manager}-{self._count}"

    def _members_subject(self, group: str, type_name: str, tx: str) -> str:
        return self.layout.group(group, tx) if group else self.layout.members(token(type_name), tx)

    def manage(self, managed: Managed) -> None:
        self._managed[managed.tx] = managed

    def manages(self, tx: str) -> bool:
        return tx in self._managed

    def forget(self, tx: str) -> None:
        self._managed.pop(tx, None)
        self._fewer.set()

    @property
    def idle(self) -> bool:
        """Every transaction is its publisher's to go on with, or over, and that is written down and announced."""
        at_work = any(not managed.machine.open for managed in self._managed.values())
        return not (at_work or self._ended or self._finished) and self._relay.idle

    def heard(self, instance: str) -> float | None:
        """When this instance was heard last, on the monotonic clock; None: not for a while, or never."""
        return self._beats.get(instance)

    # The wire

    async def hear(self, subject: str, take: Callable[[bytes, str], None], *, group: str = "") -> None:
        listener = await self.channel.listen(subject, group=group)
        self._listeners[subject] = listener

        async def hear() -> None:
            async for record in listener:
                try:
                    take(record.data, record.subject)
                except Exception as error:  # noqa: BLE001  reported; we must not become deaf to the others
                    passed_over(error, record, self.context)

        self.spawn(hear())

    def _from_members(self, packet: bytes, _: str) -> None:
        for received in self.channel.open(packet):
            managed = self._managed.get(received.message.tx)
            if managed is not None and isinstance(received.message, Decide):
                if received.signer == MANAGER:  # an operator, or a successor, was quicker
                    self.spawn(managed.learn())
            elif managed is not None:
                managed.take(received)
            elif isinstance(received.message, Inquiry):
                self.spawn(self._answer(received.message))

    def _beat(self, group: bytes, subject: str) -> None:
        """With the name of a group: who acts in it has changed."""
        self._beats[subject.rpartition(".")[2]] = self.clock.monotonic()
        if group:
            self.groups.changed(group.decode(errors="replace"))

    def _asked(self, packet: bytes, _: str) -> None:
        for received in self.channel.open(packet):
            if isinstance(received.message, Inquiry):
                self.spawn(self._answer(received.message))

    async def _answer(self, inquiry: Inquiry) -> None:
        try:
            found = await self.journal.decision(inquiry.tx)
        except TuttiError as error:  # among others: what is no id of a transaction of this journal
            log.info("%s: %s asks, and the journal does not answer: %s", inquiry.tx, inquiry.member, error)
            return
        answer: Decide | Standing
        match found:
            case Decision():
                answer = Decide(
                    inquiry.tx, found.epoch, found.outcome, found.branch, found.reason, tuple(found.excluded)
                )
            case Undecided():
                answer = Standing(inquiry.tx, "undecided")
            case Unknown():
                answer = Standing(inquiry.tx, "unknown")
        self.channel.emit(inquiry.inbox, signed(answer, self.key, manager=True))

    # The journal, and the log

    def relay(self) -> None:
        self._relay.relay()

    async def events_of(self, tx: str) -> dict[str, set[int]]:
        return await self._log.events_of(tx)

    async def publish_manifests(self, tx: str, spans: tuple[Span, ...]) -> tuple[ManifestReference, ...]:
        return await self._log.publish_manifests(tx, spans)

    async def _streams(self) -> list[str]:
        return list(await self.context.catalogue.streams())

    def ended(self, report: Ended) -> None:
        self._ended.append(report)
        self._to_write.set()

    def finished(self, tx: str, epoch: int) -> None:
        self._finished.append((tx, epoch))
        self._to_write.set()

    async def _write(self) -> None:
        """Ends are written together: nobody waits for them."""
        while True:
            await self._to_write.wait()
            await asyncio.sleep(0.005)
            self._to_write.clear()
            try:
                await self._write_now()
            except JournalError as error:
                log.warning("ends of branches are written later: %s", error)
                await asyncio.sleep(1.0)
                self._to_write.set()

    async def _write_now(self) -> None:
        async with self._writing:  # whoever closes waits for what is being written, and does not cancel it
            ended, finished = self._ended, self._finished
            self._ended, self._finished = [], []
            # Asked for together, so that they share one sync.
            ends = self.journal.ended(ended) if ended else asyncio.sleep(0)
            writes = (ends, *(self.journal.finish(tx, epoch) for tx, epoch in finished))
            told, *outcomes = await asyncio.gather(*writes, return_exceptions=True)
            if isinstance(told, JournalError):
                self._ended[:0] = ended
            failed = [isinstance(outcome, JournalError) and not isinstance(outcome, Fenced) for outcome in outcomes]
            self._finished[:0] = [one for one, again in zip(finished, failed, strict=True) if again]
            for outcome in (told, *outcomes):
                if isinstance(outcome, BaseException) and not isinstance(outcome, Fenced):
                    raise outcome

    # Watching

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(MANAGER_WATCH_SECONDS)
            self._watch_members()
            if self.clock.monotonic() - self._kept_at >= _KEEP_SECONDS:
                self._kept_at = self.clock.monotonic()
                try:
                    await self.journal.renew(self.manager)
                    await self._succeed()
                    await self._announce_late()
                    await self._tidy()
                except (JournalError, BusError) as error:
                    log.warning("the journal is looked after later: %s", error)

    def _watch_members(self) -> None:
        """The machine is told again each time: it forgets a loss when a late message comes, or a round begins anew."""
        now = self.clock.monotonic()
        self._beats = {name: at for name, at in self._beats.items() if now - at <= MEMBER_LOST_SECONDS}
        for managed in tuple(self._managed.values()):
            for member in managed.machine.members:
                last = max(self._beats.get(member.instance, managed.since), managed.since)
                if member.instance and now - last > MEMBER_LOST_SECONDS:
                    managed.take(told.MemberLost(member.hash, self.clock.wall()))

    async def _succeed(self) -> None:
        """Finish what managers left that are silent for too long. Who cannot reach what the publisher enlisted only
        sees to it that there is a decision, and hands on: so whoever can finds it. Where the decision stands in a
        resource, only those decide that reach it."""
        for entry in await self.journal.entries(unfinished=True, lapsed=True):
            able = all(name in self.resources for name in entry.record.resources)
            decides = entry.decision is None and (not entry.delegated_to or entry.delegated_to in self.resources)
            if entry.record.tx not in self._managed and (able or decides):
                with contextlib.suppress(Fenced, LeaseHeld):
                    await self._take_over(entry, able=able)

    async def _take_over(self, entry: Entry, *, able: bool) -> None:
        record = entry.record
        name = self.manager if able else f"{self.manager}-passing"  # a lease that nobody renews
        epoch = await self.journal.take_over(
            record.tx, expected=record.epoch, manager=name, seconds=JOURNAL_LEASE_SECONDS
        )
        said = {"tx": record.tx, "step": "succeeded", "role": "manager", "epoch": epoch}
        log.warning("%s: manager takes over from one that is gone (epoch %d)", record.tx, epoch, extra=said)
        run = record.tx.rpartition("-")[0]
        if self.layout.managed(run) not in self._listeners:
            await self.hear(self.layout.managed(run), self._from_members)
        transaction = machine.Transaction.recovered(record, entry.decision, epoch)
        subject = self._members_subject(record.group, record.type, record.tx)
        managed = Managed(self, transaction, epoch=epoch, members_subject=subject)
        managed.complete = False
        managed.side = Successor(managed, entry, self.resources, self.context.bus.ready)
        self.manage(managed)
        managed.take(told.Started(self.clock.wall()))
        if not able:
            self.clock.call_at(self.clock.monotonic() + JOURNAL_LEASE_SECONDS, lambda: self._hand_on(managed))

    def _hand_on(self, managed: Managed) -> None:
        managed.drop()
        self.forget(managed.tx)

    async def _announce_late(self) -> None:
        """Statuses that could not be queued with their decision, because the log could not be read."""
        for entry in await self.journal.entries(unannounced=True):
            if entry.decision is None or entry.record.tx in self._managed:
                continue
            tx = entry.record.tx
            try:
                spans = spans_of(await self.events_of(tx))
                manifests = await self.publish_manifests(tx, spans)
            except InvalidMessage as error:
                self.context.report(f"{tx} is decided and cannot be announced: {error}")
                continue
            word: Any = "committed" if entry.decision.outcome == "commit" else "aborted"
            events, scope = named(spans, manifests), entry.record.scope
            status = TransactionStatus(tx, word, events, reason=entry.decision.reason[:500], scope=scope)
            with contextlib.suppress(Fenced):
                await self.journal.queue_status(status, entry.record.epoch)
                self.relay()

    async def _tidy(self) -> None:
        now = await self.journal.now()
        while await self.journal.shrink(now - RECORDS_KEPT_SECONDS):
            pass
        await self.journal.forget(now - OUTCOMES_KEPT_SECONDS)
