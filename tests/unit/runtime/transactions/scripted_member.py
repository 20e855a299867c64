"""A member as a test wants it: it speaks the protocol by hand, so that the manager's side is tested alone."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Literal

from tutti.bus.port import Listener, Record
from tutti.model.cloudevents import from_message
from tutti.model.involvement import PREPARE_HEADER, Involvement, involvement_of
from tutti.model.messages import Begin, Close, Decide, Ended, Invite, Join, Message, Prepare, Received, Tally, Vote
from tutti.model.subjects import token
from tutti.model.transaction import Counts, member_hash
from tutti.runtime.context import Context
from tutti.runtime.transactions.channel import Channel, signed
from tutti.runtime.transactions.keys import PayloadKey, SigningKey, WrapKey
from tutti.runtime.transactions.trust import Trust

Answer = Literal["yes", "no", "silent"]


class ScriptedMember:
    """Joins everything of one transaction type, counts its events and votes as it is told. `said` are the kinds of the
    manager's messages, in order; `events` what it could read."""

    def __init__(self, context: Context, kind: str, *, vote: Answer = "yes", ends: bool = True, name: str = "") -> None:
        self._context = context
        self._kind = kind
        self._vote = vote
        self._ends = ends
        self._name = name
        self.key, self.wrap = SigningKey.fresh(), WrapKey.fresh()
        self.pseudonym = self.key.public[:12]
        self.instance = ""  # whose heartbeats are listened for
        self.trust = Trust(context.transport)
        self.channel = Channel(context.transport, context.clock, lambda: self.trust.key)
        self.said: list[Message] = []
        self.events: list[tuple[Involvement, bytes]] = []
        self.received: dict[str, Counts] = {}
        self.payload_key: PayloadKey | None = None
        self.outcomes: list[str] = []
        self._listeners: list[Listener] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, stream: str = "events") -> None:
        layout = self._context.layout
        for subject in (
            layout.invitations(token(self._kind)),
            layout.members(token(self._kind), "*"),
            f"{layout.namespace}.tx.{stream}.>",
        ):
            listener = await self._context.transport.listen(subject)
            self._listeners.append(listener)
            self._tasks.append(asyncio.create_task(self._hear(listener)))

    async def close(self) -> None:
        for listener in self._listeners:
            await listener.close()
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def beat(self, instance: str) -> None:
        self._context.transport.emit(self._context.layout.heartbeat(instance), {}, b"")

    def say(self, message: Message) -> None:
        self.channel.emit(self._context.layout.manager(message.tx), signed(message, self.key))

    async def _hear(self, listener: Listener) -> None:
        async for record in listener:
            await self.trust.load()
            if ".tx." in record.subject:
                self._event(record)
            else:
                for received in self.channel.open(record.data):
                    self._told(received)

    def _event(self, record: Record) -> None:
        envelope = from_message(record.headers, record.data)
        place = involvement_of(envelope.extensions)
        assert place is not None
        data = record.data
        if place.scope == "private" and self.payload_key is not None:
            context = f"{place.tx}/{place.publisher}/{envelope.type}/{place.number}"
            data = self.payload_key.open(data, context)
        self.events.append((place, data))
        counts = self.received.setdefault(place.tx, {}).setdefault(place.publisher, {})
        counts[envelope.type] = counts.get(envelope.type, 0) + 1
        if PREPARE_HEADER in record.headers:
            import base64  # noqa: PLC0415  only here

            received = self.channel.opened(base64.b64decode(record.headers[PREPARE_HEADER]))
            assert received is not None
            self._told(received)

    def _told(self, received: Received) -> None:
        message: Any = received.message
        me = member_hash(message.tx, self.pseudonym)
        if received.signer != "manager":
            return
        self.said.append(message)
        match message:
            case Invite():
                self.say(
                    Join(
                        message.tx,
                        self.pseudonym,
                        self.key.public,
                        name=self._name,
                        instance=self.instance,
                        wrap=self.wrap.public,
                    )
                )
            case Begin() if me in message.keys:
                self.payload_key = self.wrap.unwrap(message.keys[me])
            case Close() if self._vote != "silent":
                got = self.received.get(message.tx, {})
                handles = tuple(sorted({kind for types in got.values() for kind in types}))
                self.say(Tally(message.tx, message.epoch, message.round, me, 1, {}, got, handles))
            case Prepare() if self._vote == "yes":
                self.say(Vote(message.tx, message.epoch, message.round, me, "yes"))
            case Prepare() if self._vote == "no":
                self.say(Vote(message.tx, message.epoch, message.round, me, "no", "I do not like it"))
            case Decide():
                self.outcomes.append(message.outcome_for(me))
                if self._ends:
                    self.say(Ended(message.tx, me, message.outcome_for(me)))
            case _:
                pass
