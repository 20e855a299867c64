"""One connection to one of several NATS servers, kept up for ever.

1. `start` connects or raises: `Denied` if a server refuses us, `Unreachable` if none answers in time.
2. From then on a supervisor reconnects, round after round over every known server, with growing and jittered pauses,
   until `close`. Subscriptions are replayed; requests that were waiting fail with `Disconnected`; everything else that
   must survive (appends, readers) watches `on_up` and `on_down`.
3. What is written during one turn of the event loop leaves in one piece.
4. A server that is silent for two pings is left.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, assert_never

from tutti.bus.nats import protocol
from tutti.bus.nats.options import Endpoint, NatsOptions, endpoints
from tutti.bus.nats.protocol import Event, Failure, Info, Message, Ok, Ping, Pong, ServerInfo
from tutti.bus.nats.wire import Accept, Wire, open_wire
from tutti.errors import BusError, Denied, NoReply, Refused, TuttiError, Unreachable
from tutti.limits import NATS_WRITE_BUFFER_MAX_BYTES

log: Final = logging.getLogger("tutti.bus.nats")

Handler = Callable[[Message], None]
_VIOLATION: Final = re.compile(r'permissions violation for (publish|subscription) to "([^"]*)"', re.IGNORECASE)
_SEND_LESS: Final = "send less, or raise max_payload on every server"


class Disconnected(Unreachable):
    """The connection was lost before the answer came; the request may have been carried out."""


class NoResponders(NoReply):
    """Nobody listens on the subject of the request."""


class _Waiting:
    """A request without its answer."""

    __slots__ = ("future", "subject")

    def __init__(self, subject: str, future: asyncio.Future[Message]) -> None:
        self.subject = subject
        self.future = future


class Subscription:
    """What the server was asked to send us. `denied` is set when it refused."""

    __slots__ = ("denied", "handler", "queue", "sid", "subject")

    def __init__(self, subject: str, queue: str, sid: str, handler: Handler) -> None:
        self.subject = subject
        self.queue = queue
        self.sid = sid
        self.handler = handler
        self.denied = ""


class Connection:
    """Use from one event loop. `accept` may raise to refuse a server by what it says of itself; `locate` says before
    every round where the servers are now, if they can move."""

    def __init__(
        self, options: NatsOptions, *, accept: Accept | None = None, locate: Callable[[], Sequence[str]] | None = None
    ) -> None:
        self.options = options
        self.info = ServerInfo()
        self.server = ""
        self.detail = ""
        self.reconnects = 0
        self.emits_dropped = 0
        self.received_at = 0.0  # when the last bytes came: one look at the clock for all messages in them
        self.on_up: list[Callable[[], None]] = []
        self.on_down: list[Callable[[], None]] = []
        self.on_writable: list[Callable[[], None]] = []
        self.on_publish_denied: list[Callable[[str, str], None]] = []
        self._accept = accept
        self._locate = locate
        self._configured = endpoints(options.urls)
        self._discovered: list[Endpoint] = []
        self._wire: Wire | None = None
        self._up = asyncio.Event()
        self._closed = False
        self._supervisor: asyncio.Task[None] | None = None
        self._liveness: asyncio.TimerHandle | None = None
        self._missed = 0
        self._out: list[bytes] = []
        self._flush_due = False
        self._subscriptions: dict[str, Subscription] = {}
        self._next_sid = 0
        self._pongs: deque[asyncio.Future[None] | None] = deque()
        self._requests: dict[str, _Waiting] = {}
        self._next_request = 0
        self._inbox = f"{options.inbox_prefix}.{secrets.token_hex(11)}"
        self._reply_prefix = f"{self._inbox}.r."

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    # Life

    async def start(self) -> None:
        self.subscribe(f"{self._reply_prefix}*", self._on_reply)
        deadline = self.loop.time() + self.options.connect_timeout
        round_ = 0
        while True:
            problems = await self._try_all()
            if self._wire is not None:
                break
            for problem in problems:
                if not isinstance(problem, Unreachable):
                    raise problem
            pause = self._pause(round_)
            if self.loop.time() + pause > deadline:
                raise Unreachable(
                    "no NATS server answered: " + "; ".join(problem.what for problem in problems),
                    hint="is the server running, and is the URL its client port?",
                )
            await asyncio.sleep(pause)
            round_ += 1
        self._supervisor = asyncio.create_task(self._supervise(), name="tutti-nats-supervisor")

    async def close(self) -> None:
        """What was written still reaches the server, if it is there."""
        if self._closed:
            return
        self._closed = True
        try:
            if self.connected:
                await self.flush(timeout=2.0)
        except BusError as error:
            log.info("closed without the server's last answer: %s", error.what)
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.gather(self._supervisor, return_exceptions=True)
        wire = self._wire
        self._go_down("closed")
        if wire is not None:
            wire.transport.close()
            await asyncio.wait([wire.lost], timeout=1.0)
            wire.transport.abort()

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def connected(self) -> bool:
        return self._wire is not None

    @property
    def writable(self) -> bool:
        """Connected, and the socket takes more."""
        return self._wire is not None and not self._wire.paused

    async def wait_up(self, timeout: float) -> None:
        if self._wire is not None:
            return
        if self._closed:
            raise Unreachable("the connection is closed", hint="connect again")
        try:
            await asyncio.wait_for(self._up.wait(), timeout)
        except TimeoutError:
            raise Unreachable(
                f"not connected to any NATS server: {self.detail}", hint="it is tried again for ever; is the server up?"
            ) from None

    # Sending

    def write(self, frame: bytes) -> None:
        """Leaves with everything else of this turn of the loop. Dropped while disconnected."""
        if self._wire is None:
            return
        self._out.append(frame)
        if not self._flush_due:
            self._flush_due = True
            self.loop.call_soon(self._flush)

    def emit(self, subject: str, reply: str, lines: str, data: bytes) -> None:
        if self._closed:
            raise Unreachable("the connection is closed", hint="connect again")
        size = len(lines) + len(data)
        if size > self.info.max_payload:
            raise Refused(f"{subject}: {size} bytes, but the server takes {self.info.max_payload}", hint=_SEND_LESS)
        wire = self._wire
        if wire is None or wire.transport.get_write_buffer_size() > NATS_WRITE_BUFFER_MAX_BYTES:
            self.emits_dropped += 1
            return
        self.write(protocol.publish(subject, reply, lines, data))

    def _flush(self) -> None:
        self._flush_due = False
        if self._wire is not None and self._out:
            self._wire.transport.write(b"".join(self._out))
        self._out.clear()

    def _writable_again(self) -> None:
        for callback in self.on_writable:
            callback()

    async def flush(self, *, timeout: float) -> None:
        """When this returns, the server has read everything written before."""
        if self._wire is None:
            raise Disconnected("not connected", hint="it is tried again for ever")
        future: asyncio.Future[None] = self.loop.create_future()
        self._pongs.append(future)
        self.write(protocol.PING)
        try:
            async with asyncio.timeout(timeout):
                await future
        except TimeoutError:
            raise NoReply(
                f"{self.server} does not answer a ping within {timeout} s", hint="is it overloaded?"
            ) from None

    # Receiving

    def inbox(self) -> str:
        return f"{self.options.inbox_prefix}.{secrets.token_hex(11)}"

    def own_inbox(self, kind: str) -> str:
        """A prefix below this connection's own inbox."""
        self._next_request += 1
        return f"{self._inbox}.{kind}{self._next_request}."

    def subscribe(self, subject: str, handler: Handler, *, queue: str = "") -> Subscription:
        self._next_sid += 1
        subscription = Subscription(subject, queue, str(self._next_sid), handler)
        frame = protocol.subscribe(subject, subscription.sid, queue)
        self._subscriptions[subscription.sid] = subscription
        self.write(frame)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        if self._subscriptions.pop(subscription.sid, None) is not None:
            self.write(protocol.unsubscribe(subscription.sid))

    async def request(self, subject: str, data: bytes = b"", *, timeout: float) -> Message:
        """One answer. Raises `NoResponders` at once if nobody listens, `NoReply` in the end, `Disconnected` if the
        connection went in between."""
        if self._closed:
            raise Unreachable("the connection is closed", hint="connect again")
        if self._wire is None:
            raise Disconnected(f"not connected: {self.detail}", hint="it is tried again for ever; is the server up?")
        self._next_request += 1
        token = str(self._next_request)
        waiting = _Waiting(subject, self.loop.create_future())
        self._requests[token] = waiting
        self.write(protocol.publish(subject, self._reply_prefix + token, "", data))
        try:
            async with asyncio.timeout(timeout):
                message = await waiting.future
        except TimeoutError:
            raise NoReply(f"no answer on {subject} within {timeout} s", hint="is the server overloaded?") from None
        finally:
            self._requests.pop(token, None)
        if message.head.startswith(b"NATS/1.0 503"):
            raise NoResponders(
                f"nobody answers on {subject}", hint="is JetStream enabled on the server, for this account?"
            )
        return message

    def _on_reply(self, message: Message) -> None:
        waiting = self._requests.get(message.subject[len(self._reply_prefix) :])
        if waiting is not None and not waiting.future.done():
            waiting.future.set_result(message)

    def _receive(self, events: list[Event]) -> None:
        self.received_at = self.loop.time()
        subscriptions = self._subscriptions
        for event in events:
            if type(event) is Message:
                subscription = subscriptions.get(event.sid)
                if subscription is None:
                    continue
                try:
                    subscription.handler(event)
                except Exception as error:  # noqa: BLE001  one handler's fault must not stop the others
                    context = {"message": f"a message on {event.subject} could not be handled", "exception": error}
                    self.loop.call_exception_handler(context)
            else:
                self._control(event)

    def _control(self, event: Event) -> None:
        match event:
            case Ping():
                self.write(protocol.PONG)
            case Pong():
                waiting = self._pongs.popleft() if self._pongs else None
                if waiting is not None and not waiting.done():
                    waiting.set_result(None)
            case Info(server):
                self._learn(server)
            case Failure(text):
                self._on_failure(text)
            case Ok() | Message():
                pass
            case _:
                assert_never(event)

    def _learn(self, info: ServerInfo) -> None:
        self.info = info
        tls = any(endpoint.tls for endpoint in self._configured)
        known = {(endpoint.host, endpoint.port) for endpoint in self._configured}
        found = [Endpoint.parse(url, tls=tls) for url in info.connect_urls]
        self._discovered = [endpoint for endpoint in found if (endpoint.host, endpoint.port) not in known]

    def _on_failure(self, text: str) -> None:
        self.detail = text
        violation = _VIOLATION.search(text)
        if violation is None:
            log.warning("%s says: %s", self.server, text)
            return
        kind, subject = violation.groups()
        if kind.lower() == "subscription":
            for subscription in self._subscriptions.values():
                if subscription.subject == subject:
                    subscription.denied = text
            return
        for waiting in self._requests.values():
            if waiting.subject == subject and not waiting.future.done():
                hint = "the user needs the permission to publish there"
                waiting.future.set_exception(Denied(f"{self.server}: {text}", hint=hint))
        for callback in self.on_publish_denied:
            callback(subject, text)

    # Going up and down

    async def _supervise(self) -> None:
        while True:
            wire = self._wire
            if wire is not None:
                await asyncio.wait([wire.lost])  # not awaited directly: a cancelled await would cancel the future
                self._go_down(str(wire.failure or "the server closed the connection"))
            log.warning("lost %s: %s", self.server, self.detail)
            round_ = 0
            while self._wire is None:
                await asyncio.sleep(self._pause(round_))
                round_ += 1
                problems = await self._try_all()
                if problems and self._wire is None:
                    self.detail = "; ".join(problem.what for problem in problems)
            self.reconnects += 1
            log.warning("connected again, to %s", self.server)

    def _pause(self, round_: int) -> float:
        longest = min(self.options.reconnect_max_delay, 0.02 * 2.0 ** min(round_, 16))
        return longest * random.uniform(0.5, 1.0)

    async def _try_all(self) -> list[TuttiError]:
        problems: list[TuttiError] = []
        try:
            if self._locate is not None:
                self._configured = endpoints(tuple(self._locate()))
        except TuttiError as problem:  # then where they were
            problems.append(problem)
        for endpoint in (*self._configured, *random.sample(self._discovered, len(self._discovered))):
            try:
                wire, info = await open_wire(self.options, endpoint, self._accept, self._writable_again)
            except TuttiError as problem:  # a TLS file that cannot be read is one too
                problems.append(problem)
                continue
            self._go_up(endpoint, wire, info)
            break
        return problems

    def _go_up(self, endpoint: Endpoint, wire: Wire, info: ServerInfo) -> None:
        self._wire = wire
        self._learn(info)
        self.server = str(endpoint)
        self.detail = ""
        self._missed = 0
        for subscription in self._subscriptions.values():
            self.write(protocol.subscribe(subscription.subject, subscription.sid, subscription.queue))
        self._flush()
        wire.hand_over(self._receive)
        self._liveness = self.loop.call_later(self.options.ping_interval, self._check_liveness)
        self._up.set()
        for callback in self.on_up:
            callback()

    def _go_down(self, why: str) -> None:
        if self._wire is None:
            return
        self._wire = None
        self._up.clear()
        self.detail = why
        self._out.clear()
        if self._liveness is not None:
            self._liveness.cancel()
        lost = Disconnected(f"the connection to {self.server} was lost: {why}", hint="it is tried again for ever")
        for waiting in self._requests.values():
            if not waiting.future.done():
                waiting.future.set_exception(lost)
        for pong in self._pongs:
            if pong is not None and not pong.done():
                pong.set_exception(lost)
        self._pongs.clear()
        for callback in self.on_down:
            callback()

    def _check_liveness(self) -> None:
        wire = self._wire
        if wire is None:
            return
        if wire.heard:
            wire.heard = False
            self._missed = 0
        elif self._missed >= 2:
            wire.failure = TimeoutError("the server does not answer pings")
            wire.transport.abort()
            return
        else:
            self._missed += 1
            self._pongs.append(None)
            self.write(protocol.PING)
        self._liveness = self.loop.call_later(self.options.ping_interval, self._check_liveness)
