"""Membership in a standing group: durable, and in the hands of one instance at a time.

The member's secret keys are in its own log; what others must know is a record in the bus's state (`Enrolment`). The
record names the instance that acts. The other instances of the subscriber stand by: they listen to its heartbeat, and
after a silence one of them puts its own name there, by compare-and-set.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets

import msgspec

from tutti.bus.port import Listener
from tutti.errors import BusError, Conflict
from tutti.journal import Enrolment as Secret
from tutti.limits import PARTICIPANT_SILENCE_SECONDS, PARTICIPANT_TURN_SECONDS
from tutti.model.enrolment import Enrolment, decode_enrolment, encode_enrolment, enrolment_key
from tutti.model.transaction import member_hash
from tutti.runtime.transactions.joining import Joining
from tutti.runtime.transactions.keys import SigningKey, WrapKey
from tutti.runtime.transactions.site import Site

log = logging.getLogger("tutti.transactions")


class Membership:
    """`acting`: this instance speaks for the member."""

    def __init__(self, site: Site, joining: Joining) -> None:
        self._site = site
        self.joining = joining
        self.acting = False
        self.pseudonym = ""
        self.key: SigningKey
        self.wrap: WrapKey
        self._task: asyncio.Task[None] | None = None

    @property
    def group(self) -> str:
        return self.joining.group

    def member(self, tx: str) -> str:
        return member_hash(tx, self.pseudonym)

    async def start(self) -> None:
        """When this returns, this instance acts, or another one is known to live."""
        await self._enrol()
        await self._settle()
        self._task = asyncio.get_running_loop().create_task(self._watch())
        self._task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """Another instance need not wait for silence."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self.acting:
            self.acting = False
            with contextlib.suppress(BusError, TimeoutError):
                known, revision = await self._known()
                if known is not None and known.instance == self._site.instance:
                    await self._put(msgspec.structs.replace(known, instance=""), revision)

    async def resign(self) -> None:
        """Leave the group for good."""
        await self.stop()
        _, revision = await self._known()
        if revision:
            await self._site.context.transport.state_put(
                enrolment_key(self.group, self._site.subscriber), b"", expected=revision
            )
            self._tell()
        await self._site.log.resign(self.group, self._site.subscriber)

    async def _enrol(self) -> None:
        fresh = Secret(
            self.group,
            self._site.subscriber,
            secrets.token_hex(16),
            SigningKey.fresh().seed,
            WrapKey.fresh().seed,
        )
        secret = await self._site.log.enrol(fresh)
        self.pseudonym = secret.pseudonym
        self.key, self.wrap = SigningKey(secret.signing_seed), WrapKey(secret.wrap_seed)

    # Who acts

    def _wanted(self, known: Enrolment | None) -> Enrolment:
        """The record as it should be, with this instance acting."""
        return Enrolment(
            group=self.group,
            subscriber=self._site.subscriber,
            type=self.joining.type.name,
            pseudonym=self.pseudonym,
            key=self.key.public,
            wrap=self.wrap.public,
            handles=self._site.parts.handled_in(self.joining),
            vital=self.joining.vital,
            instance=self._site.instance,
            since=known.since if known is not None else self._site.now,
        )

    async def _settle(self) -> None:
        while True:
            known, revision = await self._known()
            free = known is None or known.instance in {"", self._site.instance} or known.key != self.key.public
            if not free and known is not None and await self._is_alive(known.instance):
                self.acting = False
                return
            try:
                await self._put(self._wanted(known), revision)
            except Conflict:
                continue
            self.acting = True
            return

    async def _is_alive(self, instance: str) -> bool:
        """Whether it beats. Nobody else can be on a bus in memory."""
        if self._site.context.alone:
            return False
        context = self._site.context
        listener = await context.transport.listen(context.layout.heartbeat(instance))
        try:
            async with asyncio.timeout(PARTICIPANT_SILENCE_SECONDS):
                return await _hears(listener)
        except TimeoutError:
            return False
        finally:
            await listener.close()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(PARTICIPANT_TURN_SECONDS)
            try:
                known, _ = await self._known()
                if known is None:  # only an operator removes it, or another instance that resigns
                    log.warning("%s: it was taken out of group %s", self._site.subscriber, self.group)
                    self.acting = False
                    return
                ours = known.instance == self._site.instance
                if self.acting and not ours:
                    log.warning("%s: another instance acts for it in group %s", self._site.subscriber, self.group)
                    self.acting = False
                if not ours:
                    await self._settle()
            except (BusError, TimeoutError) as error:
                log.info("%s: group %s: %s", self._site.subscriber, self.group, error)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._site.context.failed(task)

    async def _known(self) -> tuple[Enrolment | None, int]:
        entry = await self._site.context.transport.state_get(enrolment_key(self.group, self._site.subscriber))
        return (decode_enrolment(entry.key, entry.value), entry.revision) if entry is not None else (None, 0)

    async def _put(self, record: Enrolment, expected: int) -> None:
        await self._site.context.transport.state_put(record.record_key, encode_enrolment(record), expected=expected)
        self._tell()

    def _tell(self) -> None:
        """Publishers keep what they read of a group for a moment: who changes it says so, with a heartbeat."""
        context = self._site.context
        with contextlib.suppress(BusError):
            context.transport.emit(context.layout.heartbeat(self._site.instance), {}, self.group.encode())


async def _hears(listener: Listener) -> bool:
    async for _ in listener:
        return True
    return False
