"""A subscriber that takes part in transactions: its standing listeners, its heartbeat, and one `Taking` for each
transaction.

Nothing is subscribed for a single transaction (`docs/adr/0009`): invitations, what managers say to members of a type or
a group, and the events that a type may publish are listened to once, and sorted by the transaction that they name.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import secrets
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any, Final

import msgspec

from tutti.bus.port import Listener, Record
from tutti.control.participation import messages as p
from tutti.control.participation.life import FINISHING
from tutti.control.participation.machine import Participation
from tutti.control.participation.unknown import answer_unknown
from tutti.errors import BusError, InvalidEvent, JournalError, ResourceError, TuttiError
from tutti.flow.matcher import Matcher, Seen
from tutti.journal import ParticipantLog
from tutti.limits import (
    DECISION_WAIT_SECONDS,
    ENDED_COLLECT_SECONDS,
    ENDED_KEPT_COUNT,
    ENDED_PACKET_MAX_COUNT,
    OFFER_MAX_BYTES,
    PARTICIPANT_BEAT_SECONDS,
)
from tutti.model import attributes
from tutti.model.messages import MANAGER, Close, Decide, Invite, Prepare, Received
from tutti.model.txtype import Invite as Invited
from tutti.runtime.context import Context
from tutti.runtime.transactions.channel import Channel, passed_over, signed
from tutti.runtime.transactions.events import Heard, hear
from tutti.runtime.transactions.joining import Joining, Parts
from tutti.runtime.transactions.keys import SigningKey, WrapKey
from tutti.runtime.transactions.membership import Membership
from tutti.runtime.transactions.recovering import Recovering
from tutti.runtime.transactions.site import Site
from tutti.runtime.transactions.taking import Taking
from tutti.runtime.transactions.trust import Trust

log = logging.getLogger("tutti.transactions")

_GROUP_HEADER: Final = f"ce-{attributes.TX_GROUP}"


class Participants:
    """For one subscriber in this process. `start`, then `stop`, always both."""

    def __init__(self, context: Context, parts: Parts, own_log: ParticipantLog, instance: str) -> None:
        self.site = Site(context, parts, own_log, instance)
        self._trust = Trust(context.transport, context.trusted)
        self.channel = Channel(context.transport, context.clock, lambda: self._trust.key)
        self.inbox = self.channel.inbox()
        self.takings: dict[str, Taking] = {}
        self._over: OrderedDict[str, Taking | None] = OrderedDict()  # ended, or (None) known to be none of ours
        self._waking: dict[str, list[Callable[[Taking], None]]] = {}
        self._memberships = {j.group: Membership(self.site, j) for j in parts.joinings if j.group}
        self._matchers = {j.type.name: Matcher(j.filter, None, j.type.kind.python) for j in parts.joinings}
        self._reports: dict[str, list[tuple[str, bytes]]] = {}  # of ends, by the manager's run
        self._recovering = Recovering(self)
        self._invitations: list[Listener] = []
        self._listeners: list[Listener] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._changed = asyncio.Event()
        self._stands_by = False

    @property
    def idle(self) -> bool:
        """No transaction is under way here."""
        return not self._waking and all(taking.operations.idle for taking in self.takings.values())

    # Life

    async def start(self) -> None:
        """When this returns, an invitation or an event that comes later is taken up."""
        parts, layout = self.site.parts, self.site.context.layout
        await self._know_journal()
        for joining in parts.joinings:
            await self.site.context.catalogue.check_transaction(joining.type)
        await self.site.log.beat(self.site.instance)
        compensates = any(joining.compensatable for joining in parts.joinings)
        for resource in parts.resources.values():
            await self.site.context.bus.ready(resource)
            await resource.preflight(barrier=compensates)
        await self._recovering.prepare()
        self.spawn(self._beat())
        await self._listen(self.inbox, self._tell_known)
        for kind in {joining.type.token for joining in parts.joinings if not joining.group}:
            await self._listen(layout.members(kind, "*"), self._tell_members)
        for membership in self._memberships.values():
            await self._listen(layout.group(membership.group, "*"), self._group_speaker(membership))
        for event in {event for joining in parts.joinings for event in joining.type.events}:
            await self.site.context.catalogue.ensure_stream(event.stream)
            listener = await self.site.context.transport.listen(layout.of_type(event.stream, event.token))
            self._listeners.append(listener)
            self.spawn(self._hear(listener))
        for membership in self._memberships.values():
            await membership.start()
        await self._recovering.start()
        for joining in parts.joinings:
            if not joining.group:
                await self._invite(joining)

    async def stop(self, grace: float) -> bool:
        """Take up nothing more, and wait for what is under way. False if something still was after `grace` seconds:
        another instance finishes it. A decision is not waited for so long: a vote is in the log, for the next start."""
        for listener in self._invitations:
            await listener.close()
        for membership in self._memberships.values():
            await membership.stop()
        finished = await self._until(lambda taking: taking.refused or taking.only_waits, grace)
        await self._until(lambda taking: taking.refused, min(grace, DECISION_WAIT_SECONDS))
        await self.close()
        return finished

    async def _until(self, holds: Callable[[Taking], bool], seconds: float) -> bool:
        """Until it holds for every transaction here."""
        try:
            async with asyncio.timeout(seconds):
                while not all(holds(taking) for taking in self.takings.values()):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        await self._recovering.stop()
        for membership in self._memberships.values():
            await membership.stop()
        for listener in (*self._invitations, *self._listeners):
            await listener.close()
        over = [taking for taking in self._over.values() if taking is not None]
        for taking in over:
            await taking.operations.settled()
        await asyncio.gather(*(taking.close() for taking in (*self.takings.values(), *over)))
        self._report_ends()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            await self.site.log.release(self.site.instance)
        except JournalError as error:
            log.info("%s: its lease runs out by itself: %s", self.site.subscriber, error)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.site.context.failed(task)

    async def _beat(self) -> None:
        transport, subject = self.site.context.transport, self.site.context.layout.heartbeat(self.site.instance)
        while True:
            transport.emit(subject, {}, b"")
            await asyncio.sleep(PARTICIPANT_BEAT_SECONDS)

    # Listening

    async def _listen(self, subject: str, tell: Callable[[Received], None]) -> None:
        listener = await self.channel.listen(subject)
        self._listeners.append(listener)
        self.spawn(self._sort(listener, tell))

    async def _sort(self, listener: Listener, tell: Callable[[Received], None]) -> None:
        async for record in listener:
            await self._know_journal()
            try:
                for given in self.channel.open(record.data):
                    tell(given)
            except Exception as error:  # noqa: BLE001  reported; we must not become deaf to the others
                passed_over(error, record, self.site.context)

    async def _know_journal(self) -> None:
        """Whoever starts before the first transaction learns its journal with the first message."""
        if not self._trust.key:
            try:
                await self._trust.load()
            except BusError as error:
                log.warning("%s: nobody can be believed yet: %s", self.site.subscriber, error)
        if self._trust.key and not self._stands_by:
            self._stands_by = True
            self.spawn(self._stand_by())

    async def _stand_by(self) -> None:
        """Where the journal is shared, whoever takes part can finish what a manager left."""
        try:
            await self.site.context.bus.stand_by()
        except TuttiError as error:
            log.info("%s: others look after the journal: %s", self.site.subscriber, error)

    def _tell_known(self, given: Received) -> None:
        taking = self.takings.get(given.message.tx) or self._over.get(given.message.tx)
        if taking is not None:
            taking.receive(given)

    def _tell_members(self, given: Received) -> None:
        tx = given.message.tx
        if tx in self.takings or tx in self._over:
            self._tell_known(given)
        elif isinstance(given.message, Decide) and given.signer == MANAGER:
            self._wake(tx, None, given, lambda taking: taking.receive(given))

    def _group_speaker(self, membership: Membership) -> Callable[[Received], None]:
        def tell(given: Received) -> None:
            tx = given.message.tx
            if tx in self.takings or tx in self._over:
                self._tell_known(given)
            elif membership.acting and given.signer == MANAGER and isinstance(given.message, Prepare | Close | Decide):
                self._wake(tx, membership, given, lambda taking: taking.receive(given))

        return tell

    async def _hear(self, listener: Listener) -> None:
        async for record in listener:
            try:
                await self._heard(record)
            except Exception as error:  # noqa: BLE001  reported; we must not become deaf to the others
                passed_over(error, record, self.site.context)

    async def _heard(self, record: Record) -> None:
        tx = record.subject.split(".", 5)[4]
        taking = self.takings.get(tx)
        group = record.headers.get(_GROUP_HEADER, "") if taking is None and tx not in self._over else ""
        membership = self._memberships.get(group)
        if taking is None and (membership is None or not membership.acting):
            return
        try:
            heard = hear(record)
        except InvalidEvent as error:
            log.warning("%s: %s", self.site.subscriber, error.what)
            return
        if heard is None or heard.involvement.tx != tx:
            return
        await self._know_journal()
        if taking is not None:
            taking.hear(record, heard)
        elif membership is not None:
            self._wake(tx, membership, heard, self._hearer(record, heard))

    def _hearer(self, record: Record, heard: Heard) -> Callable[[Taking], None]:
        return lambda taking: taking.hear(record, heard)

    # A census

    async def _invite(self, joining: Joining) -> None:
        subject = self.site.context.layout.invitations(joining.type.token)
        listener = await self.channel.listen(subject, group=self.site.subscriber)
        self._invitations.append(listener)

        def invited(given: Received) -> None:
            if isinstance(given.message, Invite) and given.signer == MANAGER:
                self.spawn(self._consider(joining, given.message))

        self.spawn(self._sort(listener, invited))

    async def _consider(self, joining: Joining, invite: Invite) -> None:
        if invite.tx in self.takings or invite.tx in self._over or joining.decide is None:
            return
        try:
            value = joining.type.decode(invite.data)
        except InvalidEvent as error:
            log.warning("%s: an invitation cannot be read: %s", self.site.subscriber, error.what)
            return
        matcher = self._matchers[joining.type.name]
        if not matcher.open and matcher.match(Seen(value, {"type": invite.type, attributes.TX_ID: invite.tx})) is None:
            return
        known = Invited(invite.tx, invite.type, value, invite.scope, invite.deadline, invite.events)
        try:
            async with asyncio.timeout(max(invite.within, 0.0)):
                answer = joining.decide(known)
                if inspect.isawaitable(answer):
                    answer = await answer
            offer = None if answer is True else _offer(answer)
        except Exception:
            log.exception("%s: the callback of %s failed: it does not take part", self.site.subscriber, joining.title)
            return
        if answer is None or answer is False:
            return
        self._join(joining, invite, offer)

    def _join(self, joining: Joining, invite: Invite, offer: object) -> None:
        if self.knows(invite.tx):  # the same invitation came twice, and its first copy was answered meanwhile
            return
        key, wrap = SigningKey.fresh(), WrapKey.fresh()
        now = self.site.now
        deadline = invite.deadline or now + invite.within + joining.patience
        part = self.part(joining, invite.tx, secrets.token_hex(16), key, deadline)
        taking = Taking(self, joining, part, Participation(part), key, wrap=wrap)
        taking.scope = invite.scope
        self.takings[invite.tx] = taking
        taking.take(p.Accepted(now, offer, joining.identity, self.site.instance, wrap.public))

    def part(self, joining: Joining, tx: str, pseudonym: str, key: SigningKey, deadline: float) -> p.Part:
        return p.Part(
            tx=tx,
            pseudonym=pseudonym,
            key=key.public,
            inbox=self.inbox,
            deadline=deadline,
            handles=self.site.parts.handled_in(joining),
            compensatable=joining.compensatable,
            early_commit=joining.early_commit,
            group=joining.group,
            patience=joining.patience,
        )

    # A transaction that no machine is at work for

    def _wake(
        self, tx: str, membership: Membership | None, cause: Received | Heard, tell: Callable[[Taking], None]
    ) -> None:
        """It may have ended here before; only then, or in a group, anything is owed. The log is asked first."""
        if tx in self.takings or tx in self._over:  # it came to work, or ended, while whoever calls was waiting
            taking = self.takings.get(tx) or self._over[tx]
            if taking is not None:
                tell(taking)
            return
        waiting = self._waking.get(tx)
        if waiting is not None:
            waiting.append(tell)
            return
        self._waking[tx] = [tell]
        self.spawn(self._awaken(tx, membership, cause))

    async def _awaken(self, tx: str, membership: Membership | None, cause: Received | Heard) -> None:
        try:
            row = await self._recovering.find(tx)
            if row is not None:
                taking = self._recovering.revive(row)
            elif membership is None:
                taking = None
                self._remember(tx, None)
            else:
                taking = self._enter(tx, membership, cause)
        except (JournalError, ResourceError) as error:
            log.warning("%s: %s: what it did before cannot be read: %s", self.site.subscriber, tx, error)
            taking = None
        for tell in self._waking.pop(tx, []):
            if taking is not None:
                tell(taking)
        self._changed.set()

    def _enter(self, tx: str, membership: Membership, cause: Received | Heard) -> Taking | None:
        """A transaction of a group."""
        joining, epoch, deadline = membership.joining, 1, self.site.now + membership.joining.patience
        if isinstance(cause, Heard):
            epoch, deadline = cause.involvement.epoch, cause.involvement.deadline
        elif isinstance(cause.message, Decide):
            answer = answer_unknown(cause.message, membership.member(tx))
            if answer is not None:
                self.ended(tx, signed(answer.message, membership.key))
            self._remember(tx, None)
            return None
        elif isinstance(cause.message, Prepare | Close):
            epoch = cause.message.epoch
            deadline = cause.message.deadline if isinstance(cause.message, Prepare) else deadline
        part = self.part(joining, tx, membership.pseudonym, membership.key, deadline)
        part = msgspec.structs.replace(part, epoch=epoch)
        taking = Taking(self, joining, part, Participation(part), membership.key, wrap=membership.wrap)
        self.takings[tx] = taking
        taking.take(p.Enrolled(self.site.now))
        return taking

    # Ends

    def ended(self, tx: str, envelope: bytes) -> None:
        """Reports are collected for a moment, while others are about to come: many transactions share one packet."""
        reports = self._reports.setdefault(tx.rpartition("-")[0], [])
        reports.append((tx, envelope))
        alone = not any(taking.machine.stage in FINISHING for taking in self.takings.values() if taking.tx != tx)
        if alone or len(reports) >= ENDED_PACKET_MAX_COUNT:
            self._report_ends()
        elif len(self._reports) == 1 and len(reports) == 1:
            asyncio.get_running_loop().call_later(ENDED_COLLECT_SECONDS, self._report_ends)

    def _report_ends(self) -> None:
        reports, self._reports = self._reports, {}
        for collected in reports.values():
            try:
                self.channel.emit(
                    self.site.context.layout.manager(collected[0][0]), *(envelope for _, envelope in collected)
                )
            except BusError as error:
                log.info("%s: ends are reported when the manager asks again: %s", self.site.subscriber, error)

    def forget(self, taking: Taking) -> None:
        """It ended. It can still answer what it knows."""
        if self.takings.get(taking.tx) is taking:
            del self.takings[taking.tx]
        self._remember(taking.tx, taking)
        self._changed.set()

    def changed(self) -> None:
        """Whoever waits for the end looks again."""
        self._changed.set()

    def drop(self, taking: Taking) -> None:
        if self.takings.get(taking.tx) is taking:
            del self.takings[taking.tx]
        taking.drop()
        self._changed.set()

    def membership(self, group: str) -> Membership | None:
        return self._memberships.get(group)

    def knows(self, tx: str) -> bool:
        return tx in self.takings or tx in self._over or tx in self._waking

    def at_work(self, tx: str) -> bool:
        """A machine of this process sees to it, or did to the end."""
        return tx in self.takings or tx in self._waking or self._over.get(tx) is not None

    def _remember(self, tx: str, taking: Taking | None) -> None:
        self._over[tx] = taking
        self._over.move_to_end(tx)
        while len(self._over) > ENDED_KEPT_COUNT:
            self._over.popitem(last=False)


def _offer(answer: object) -> object:
    """What `join` returned, as it travels; raises if it cannot."""
    offer = msgspec.to_builtins(answer, builtin_types=(bytes,))
    if (size := len(msgspec.msgpack.encode(offer))) > OFFER_MAX_BYTES:
        raise InvalidEvent(f"an offer of {size:,} bytes; the limit is {OFFER_MAX_BYTES:,}", hint="offer a reference")
    return offer
