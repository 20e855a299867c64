"""Drives `flow.partitions`: which partitions of a subscriber this instance owns."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from typing import Any, Protocol, assert_never

import msgspec

from tutti.bus.port import Entry, Listener
from tutti.errors import BusError
from tutti.flow.partitions import (
    Begin,
    Claim,
    Denied,
    Drain,
    Drained,
    Effect,
    Granted,
    LeaseRecord,
    Leaving,
    Lost,
    Observed,
    Partitions,
    Refused,
    Release,
    Renew,
)
from tutti.limits import LEASE_RENEW_SECONDS, MEMBER_BEAT_SECONDS, MEMBER_TIMEOUT_SECONDS, PARTITIONS_COUNT
from tutti.model.decoding import UNDECODABLE
from tutti.runtime.context import Context

log = logging.getLogger("tutti.leases")


class Lease(msgspec.Struct, frozen=True):
    """What the record of a partition says."""

    owner: str
    epoch: int


class Owner(Protocol):
    """Who is told about partitions."""

    async def begin(self, partition: int, epoch: int) -> bool: ...
    async def drain(self, partition: int) -> None: ...
    def lose(self, partition: int) -> None: ...
    def changed(self) -> None: ...


class Leases:
    def __init__(self, context: Context, subscriber: str, instance: str, owner: Owner) -> None:
        self._context = context
        self._subscriber = subscriber
        self._instance = instance
        self._owner = owner
        self._machine = Partitions(instance, PARTITIONS_COUNT)
        self.may_run = self._machine.may_run  # asked for every event
        self._heard: dict[str, float] = {}
        self._listener: Listener | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._beginning: set[asyncio.Task[None]] = set()
        self._changed = False  # since the owner was told last
        self._leaving = False
        self._gone = asyncio.Event()
        self._wake = asyncio.Event()

    async def start(self) -> None:
        self._listener = await self._context.transport.listen(self._beat_subject)
        self._spawn(self._hear(self._listener))
        self._beat()
        await self._round()
        self._spawn(self._keep())

    async def stop(self) -> None:
        """Hand back every partition."""
        self._leaving = True
        self._wake.set()
        await self._apply(self._machine.step(Leaving()))
        await self._gone.wait()
        self._context.transport.emit(self._beat_subject, {}, f"-{self._instance}".encode())

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._listener is not None:
            await self._listener.close()

    @property
    def _beat_subject(self) -> str:
        return f"{self._context.layout.namespace}.control.member.{self._subscriber}"

    def _beat(self) -> None:
        self._context.transport.emit(self._beat_subject, {}, f"+{self._instance}".encode())

    async def _hear(self, listener: Listener) -> None:
        async for record in listener:
            said = record.data.decode("utf-8", "replace")
            member = said[1:]
            if member == self._instance:
                continue
            if said[:1] == "-":
                self._heard.pop(member, None)
                self._wake.set()
            elif member not in self._heard:
                self._heard[member] = self._context.clock.monotonic()
                self._beat()  # a newcomer should know of us at once
                self._wake.set()
            else:
                self._heard[member] = self._context.clock.monotonic()

    async def _keep(self) -> None:
        while True:
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(MEMBER_BEAT_SECONDS):
                    await self._wake.wait()
            if not self._leaving:
                self._beat()
            try:
                await self._round()
            except BusError as error:
                log.warning("%s: leases cannot be seen to: %s", self._subscriber, error.what)

    async def _round(self) -> None:
        entries = await self._context.transport.state_list(f"lease.{self._subscriber}")
        now = self._context.clock.monotonic()
        self._heard = {m: at for m, at in self._heard.items() if now - at <= MEMBER_TIMEOUT_SECONDS}
        members = tuple(sorted({self._instance, *self._heard}))
        records = tuple(
            LeaseRecord(int(entry.key.rsplit(".", 1)[1]), lease.owner, lease.epoch, entry.revision)
            for entry in entries
            for lease in [_readable(entry)]
        )
        await self._apply(self._machine.step(Observed(now, members, records)))
        if self._beginning:  # they read and write too, and must not keep the leases from being renewed
            await asyncio.wait(self._beginning, timeout=LEASE_RENEW_SECONDS)
        if self._changed:
            self._changed = False
            self._owner.changed()

    async def _apply(self, effects: list[Effect]) -> None:
        """Writes go out side by side; what follows from each is applied when it is answered."""
        await asyncio.gather(*(self._one(effect) for effect in effects))
        if self._machine.gone():
            self._gone.set()

    async def _one(self, effect: Effect) -> None:
        match effect:
            case Claim() | Renew():
                await self._write(effect.partition, self._instance, effect.epoch, effect.expected_revision)
            case Release():
                await self._write(effect.partition, "", effect.epoch, effect.expected_revision)
            case Begin():
                task = self._spawn(self._begin(effect))
                self._beginning.add(task)
                task.add_done_callback(self._beginning.discard)
            case Drain():
                self._spawn(self._drain(effect.partition))
            case Lost():
                self._changed = True
                self._owner.lose(effect.partition)
            case _:
                assert_never(effect)

    async def _write(self, partition: int, owner: str, epoch: int, expected: int) -> None:
        sent = self._context.clock.monotonic()
        try:
            revision = await self._context.transport.state_put(
                f"lease.{self._subscriber}.{partition}",
                msgspec.json.encode(Lease(owner, epoch)),
                expected=expected,
                timeout=LEASE_RENEW_SECONDS,  # one that hangs must not keep the others from being renewed
            )
        except BusError:  # refused, or nobody knows: the next round will tell
            await self._apply(self._machine.step(Denied(partition)))
        else:
            await self._apply(self._machine.step(Granted(partition, revision, sent)))

    async def _begin(self, begin: Begin) -> None:
        """Take the partition up; if the bus is away just now, as soon as it is back, while the partition is ours."""
        while self._machine.epoch(begin.partition) == begin.epoch:
            try:
                if not await self._owner.begin(begin.partition, begin.epoch):
                    await self._apply(self._machine.step(Refused(begin.partition)))
                elif self._machine.epoch(begin.partition) != begin.epoch:
                    self._owner.lose(begin.partition)  # it was lost while it was begun
            except BusError as error:
                log.warning("%s: partition %d cannot be begun yet: %s", self._subscriber, begin.partition, error.what)
                await asyncio.sleep(MEMBER_BEAT_SECONDS)
            else:
                self._changed = True
                return

    async def _drain(self, partition: int) -> None:
        epoch = self._machine.epoch(partition)
        try:
            await self._owner.drain(partition)
        except BusError as error:
            log.warning(
                "%s: partition %d handed over without its position: %s", self._subscriber, partition, error.what
            )
        if self._machine.epoch(partition) == epoch:  # else it was lost meanwhile, and perhaps had again
            await self._apply(self._machine.step(Drained(partition)))
        self._owner.changed()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._context.failed(task)


def _readable(entry: Entry) -> Lease:
    """A record that somebody spoilt belongs to nobody: the next claim mends it."""
    try:
        return msgspec.json.decode(entry.value, type=Lease)
    except UNDECODABLE:
        log.warning("the record %s is unreadable, and taken for free", entry.key)
        return Lease("", 0)
