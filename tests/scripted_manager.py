"""A manager that says what a test tells it to: it signs with the journal's key and hears what members say."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from typing import Any, Self, TypeVar

import msgspec

from tutti.bus.port import Listener
from tutti.model.enrolment import Enrolment
from tutti.model.event import event_type
from tutti.model.involvement import KEYS_HEADER, PREPARE_HEADER, Involvement
from tutti.model.messages import (
    Begin,
    Close,
    Decide,
    Invite,
    Join,
    Message,
    Prepare,
    Received,
    Vote,
)
from tutti.model.transaction import PUBLISHER, Counts, Scope, member_hash
from tutti.model.txtype import transaction_type
from tutti.runtime.bus import Bus
from tutti.runtime.transactions.channel import Channel, signed
from tutti.runtime.transactions.events import compose, draft
from tutti.runtime.transactions.keys import PayloadKey, SigningKey
from tutti.runtime.transactions.trust import Trust

M = TypeVar("M", bound=Message)
PATIENCE_SECONDS = 20.0


class ScriptedManager:
    """One transaction after another, each by hand. `heard` is all that members said, in order."""

    def __init__(self, bus: Bus, seed: bytes = b"j" * 32) -> None:
        self.bus = bus
        self.key = SigningKey(seed)
        self.context = bus.context
        self.layout = bus.context.layout
        self.channel = Channel(bus.context.transport, bus.context.clock, lambda: self.key.public)
        self.heard: list[Received] = []
        self.packets = 0
        self._listener: Listener | None = None
        self._task: asyncio.Task[None] | None = None
        self._news = asyncio.Event()

    async def __aenter__(self) -> Self:
        await Trust(self.context.transport).declare("j1", self.key.public)
        self._listener = await self.channel.listen(self.layout.managed("j1-r1"))
        self._task = asyncio.get_running_loop().create_task(self._listen(self._listener))
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._listener is not None:
            await self._listener.close()
        if self._task is not None:
            await self._task

    async def _listen(self, listener: Listener) -> None:
        async for record in listener:
            self.packets += 1
            self.heard.extend(self.channel.open(record.data))
            self._news.set()

    async def next(self, kind: type[M], tx: str, *, timeout: float = PATIENCE_SECONDS) -> Received:
        """The next message of that kind about that transaction; each is told once."""
        async with asyncio.timeout(timeout):
            while True:
                for number, given in enumerate(self.heard):
                    if isinstance(given.message, kind) and given.message.tx == tx:
                        del self.heard[number]
                        return given
                self._news.clear()
                await self._news.wait()

    async def vote(self, tx: str) -> Vote:
        given = await self.next(Vote, tx)
        assert isinstance(given.message, Vote)
        return given.message

    def say(self, subject: str, message: Message, *, key: SigningKey | None = None) -> None:
        self.channel.emit(subject, signed(message, key or self.key, manager=True))


class Script:
    """One transaction with members of a census, or of a group."""

    def __init__(
        self,
        manager: ScriptedManager,
        value: object,
        number: int = 1,
        *,
        scope: Scope = "private",
        group: str = "",
        seconds: float = 60.0,
    ) -> None:
        self.manager = manager
        self.value = value
        self.kind = transaction_type(value)
        self.tx = f"j1-r1-{number}"
        self.scope: Scope = scope
        self.group = group
        self.deadline = manager.context.clock.wall() + seconds
        self.payload_key = PayloadKey.fresh() if scope == "private" else None
        self.members: tuple[str, ...] = ()
        self.keys: dict[str, bytes] = {}
        self.counts: Counts = {}

    @property
    def subject(self) -> str:
        layout = self.manager.layout
        return layout.group(self.group, self.tx) if self.group else layout.members(self.kind.token, self.tx)

    def say(self, message: Message) -> None:
        self.manager.say(self.subject, message)

    def invite(self, *, within: float = 5.0) -> None:
        invite = Invite(
            self.tx,
            self.kind.name,
            self.kind.encode(self.value),
            within,
            self.scope,
            self.kind.event_names,
            self.deadline,
        )
        self.manager.say(self.manager.layout.invitations(self.kind.token), invite)

    async def join(self) -> Join:
        given = await self.manager.next(Join, self.tx)
        assert isinstance(given.message, Join)
        assert given.signer == given.message.key, "a join is signed with the key that it carries"
        return given.message

    def accept(self, *joins: Join) -> None:
        self.members = tuple(member_hash(self.tx, join.pseudonym) for join in joins)
        if self.payload_key is not None:
            wrapped = [self.payload_key.wrapped_for(join.wrap) for join in joins]
            self.keys = dict(zip(self.members, wrapped, strict=True))
        self.say(Begin(self.tx, 1, self.members, self.deadline, self.keys))

    async def census(self, count: int = 1) -> list[Join]:
        """Invite, wait for so many joins, and begin with them."""
        self.invite()
        joins = [await self.join() for _ in range(count)]
        self.accept(*joins)
        return joins

    def stand(self, enrolments: Sequence[Enrolment]) -> None:
        """Begin with a group: nobody is asked."""
        self.members = tuple(e.member(self.tx).hash for e in enrolments)
        if self.payload_key is not None:
            wrapped = [self.payload_key.wrapped_for(e.wrap) for e in enrolments]
            self.keys = dict(zip(self.members, wrapped, strict=True))

    async def publish(self, event: object, *, last: bool = False) -> int:
        """Returns when it is stored."""
        kind = event_type(event)
        mine = self.counts.setdefault(PUBLISHER, {})
        number = mine[kind.name] = mine.get(kind.name, 0) + 1
        layout = self.manager.layout
        place = Involvement(
            self.tx, PUBLISHER, number, self.scope, layout.manager(self.tx), 1, self.deadline, self.group
        )
        made = compose(
            layout,
            draft(kind, event),
            place,
            source=self.manager.context.publisher.source,
            time="2026-11-18T12:00:00Z",
            key=self.payload_key,
        )
        headers: dict[str, str] = dict(made.headers)
        if self.group and self.keys:
            headers[KEYS_HEADER] = base64.b64encode(msgspec.msgpack.encode(self.keys)).decode()
        if last:
            envelope = signed(self._prepare(1), self.manager.key, manager=True)
            headers[PREPARE_HEADER] = base64.b64encode(envelope).decode()
        stored = await self.manager.context.transport.append(made.subject, headers, made.data, timeout=10)
        return stored.sequence

    def _prepare(self, round_: int) -> Prepare:
        return Prepare(self.tx, 1, round_, self.counts, self.deadline, group=self.group)

    def close(self, round_: int = 1) -> None:
        self.say(Close(self.tx, 1, round_))

    def prepare(self, round_: int = 1) -> None:
        self.say(self._prepare(round_))

    def decide(self, outcome: Any, *, excluded: tuple[str, ...] = ()) -> None:
        self.say(Decide(self.tx, 1, outcome, reason="scripted", excluded=excluded))
