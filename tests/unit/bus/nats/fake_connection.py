"""A connection without a socket: what is written is kept, what a server would say is called."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from tests.unit.bus.nats.client_frames import Sent, commands
from tutti.bus.nats.connection import Connection, Handler, Subscription
from tutti.bus.nats.jetstream import JetStream
from tutti.bus.nats.options import NatsOptions
from tutti.bus.nats.patterns import matches, parsed
from tutti.bus.nats.protocol import Message, ServerInfo, header_lines
from tutti.bus.port import Record
from tutti.errors import Unreachable


class FakeConnection:
    def __init__(self) -> None:
        self.options = NatsOptions()
        self.info = ServerInfo(max_payload=100_000)
        self.connected = True
        self.writable = True
        self.closed = False
        self.detail = "the test says so"
        self.server = "fake"
        self.on_up: list[Callable[[], None]] = []
        self.on_down: list[Callable[[], None]] = []
        self.on_writable: list[Callable[[], None]] = []
        self.on_publish_denied: list[Callable[[str, str], None]] = []
        self.subscriptions: dict[str, Subscription] = {}
        self._written = b""
        self._inboxes = 0

    def as_connection(self) -> Connection:
        return cast("Connection", self)

    @property
    def received_at(self) -> float:
        return asyncio.get_running_loop().time()

    def own_inbox(self, kind: str) -> str:
        self._inboxes += 1
        return f"inbox.{kind}{self._inboxes}."

    def subscribe(self, subject: str, handler: Handler, *, queue: str = "") -> Subscription:
        subscription = Subscription(subject, queue, str(len(self.subscriptions) + 1), handler)
        self.subscriptions[subscription.sid] = subscription
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        self.subscriptions.pop(subscription.sid, None)

    def write(self, frame: bytes) -> None:
        self._written += frame

    def emit(self, subject: str, reply: str, lines: str, data: bytes) -> None:
        del subject, reply, lines, data  # nobody listens

    async def wait_up(self, timeout: float) -> None:
        if not self.connected:
            raise Unreachable(f"not connected within {timeout}", hint="wait")

    # The server's side

    def sent(self) -> list[Sent]:
        """What was written since the last look."""
        found, self._written = commands(self._written)
        return found

    def say(self, subject: str, data: bytes = b"", *, reply: str = "", status: str = "", **fields: str) -> None:
        head = ""
        if status or fields:
            named = {name.replace("_", "-"): value for name, value in fields.items()}
            head = f"NATS/1.0{' ' + status if status else ''}\r\n{header_lines(named)}\r\n"
        for subscription in tuple(self.subscriptions.values()):
            if matches(parsed(subscription.subject), parsed(subject)):
                subscription.handler(Message(subject, subscription.sid, reply, head.encode(), data))

    def deliver(self, inbox: str, subject: str, data: bytes, reply: str) -> None:
        """What a consumer sends: to an inbox, but under the subject of the record."""
        for subscription in tuple(self.subscriptions.values()):
            if subscription.subject == inbox:
                subscription.handler(Message(subject, subscription.sid, reply, b"", data))

    def go_down(self) -> None:
        self.connected = self.writable = False
        self._written = b""
        for callback in tuple(self.on_down):
            callback()

    def come_up(self) -> None:
        self.connected = self.writable = True
        for callback in tuple(self.on_up):
            callback()


class FakeJetStream:
    """Only what a conflict is looked up with."""

    def __init__(self, last: Record | None = None) -> None:
        self.last = last

    def as_jetstream(self) -> JetStream:
        return cast("JetStream", self)

    async def message(self, stream: str, query: dict[str, object]) -> Record | None:
        del stream, query
        return self.last
