"""One TCP connection to one server: how it begins, and what arrives on it.

`open_wire` shakes hands: the server says INFO, TLS follows if either side wants it, we say CONNECT and PING, and a PONG
means that we are in. Whatever goes wrong until then is `Denied` (the server does not want us) or `Unreachable`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from tutti.bus.nats import protocol
from tutti.bus.nats.options import Endpoint, NatsOptions, hello, tls_context
from tutti.bus.nats.protocol import Event, Failure, Info, Message, Ok, Parser, Ping, Pong, ProtocolViolation, ServerInfo
from tutti.errors import BusError, Denied, Unreachable
from tutti.limits import NATS_WRITE_BUFFER_MAX_BYTES

_REFUSALS: Final = (
    "authoriz",
    "authentic",
    "maximum connections",
    "account",
    "user",
    "permission",
    "secure connection",
)
_HANDSHAKE_SECONDS: Final = 4.0  # for one server; nats-server itself gives a client 2 s to authenticate
Accept = Callable[[ServerInfo], Awaitable[None]]  # raises to refuse a server by what it says of itself


class Wire(asyncio.Protocol):
    """During the handshake events are waited for; after `hand_over` they go to whoever took over."""

    def __init__(self, writable_again: Callable[[], None]) -> None:
        self._parser = Parser()
        self._early: deque[Event] = deque()
        self._arrived = asyncio.Event()
        self._receive: Callable[[list[Event]], None] | None = None
        self._writable_again = writable_again
        self.transport: asyncio.Transport
        self.heard = False  # since the last look
        self.paused = False
        self.failure: BaseException | None = None
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101  narrows the type for mypy: TCP and TLS are
        self.transport = transport
        transport.set_write_buffer_limits(high=NATS_WRITE_BUFFER_MAX_BYTES // 4)

    def data_received(self, data: bytes) -> None:
        self.heard = True
        try:
            events = self._parser.feed(data)
        except ProtocolViolation as violation:
            self.failure = violation
            self.transport.abort()
            return
        if self._receive is not None:
            self._receive(events)
        else:
            self._early.extend(events)
            self._arrived.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.failure = self.failure or exc
        self._arrived.set()
        if not self.lost.done():
            self.lost.set_result(None)

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        self._writable_again()

    async def next_event(self) -> Event | None:
        """None when the other side closed."""
        while not self._early:
            if self.lost.done():
                return None
            self._arrived.clear()
            await self._arrived.wait()
        return self._early.popleft()

    def hand_over(self, receive: Callable[[list[Event]], None]) -> None:
        self._receive = receive
        early = list(self._early)
        self._early.clear()
        receive(early)


async def open_wire(
    options: NatsOptions, endpoint: Endpoint, accept: Accept | None, writable_again: Callable[[], None]
) -> tuple[Wire, ServerInfo]:
    wire = Wire(writable_again)
    try:
        async with asyncio.timeout(min(_HANDSHAKE_SECONDS, options.connect_timeout)):
            return wire, await _shake_hands(options, endpoint, accept, wire)
    except TimeoutError:
        problem: BusError = Unreachable(f"{endpoint} does not answer", hint="is it a NATS server's client port?")
    except ssl.SSLError as error:
        problem = Denied(f"{endpoint}: TLS failed: {error}", hint="check tls_ca_file, the host name and tls_cert_file")
    except OSError as error:
        problem = Unreachable(f"{endpoint}: {error.strerror or error}", hint="is the server running?")
    except BusError as error:
        problem = error
    if hasattr(wire, "transport"):
        wire.transport.abort()
    raise problem


async def _shake_hands(options: NatsOptions, endpoint: Endpoint, accept: Accept | None, wire: Wire) -> ServerInfo:
    loop = asyncio.get_running_loop()
    hostname = options.tls_hostname or endpoint.host
    first = tls_context(options) if options.tls_handshake_first else None
    server_hostname = hostname if first else None
    await loop.create_connection(lambda: wire, endpoint.host, endpoint.port, ssl=first, server_hostname=server_hostname)
    greeting = await wire.next_event()
    if not isinstance(greeting, Info):
        raise _no_greeting(endpoint, wire, greeting)
    info = greeting.server
    tls = first is not None
    if not tls and (endpoint.tls or info.tls_required):
        if not (info.tls_required or info.tls_available):
            raise Denied(f"{endpoint} does not offer TLS", hint="write nats:// or set up TLS on the server")
        upgraded = await loop.start_tls(wire.transport, wire, tls_context(options), server_hostname=hostname)
        if upgraded is None:
            raise Unreachable(f"{endpoint} closed the connection during the TLS handshake", hint="try again")
        wire.connection_made(upgraded)
        tls = True
    if accept is not None:
        await accept(info)
    wire.transport.write(protocol.connect(hello(options, endpoint, info, tls=tls)) + protocol.PING)
    return await _admitted(endpoint, wire, info, tls=tls)


async def _admitted(endpoint: Endpoint, wire: Wire, info: ServerInfo, *, tls: bool) -> ServerInfo:
    while True:
        match await wire.next_event():
            case Pong():
                return info
            case Info(server):
                info = server
            case Failure(text) if any(word in text.lower() for word in _REFUSALS):
                raise Denied(f"{endpoint} refuses us: {text}", hint="check the credentials and the user's permissions")
            case Failure(text):
                raise Unreachable(f"{endpoint}: {text}", hint="see the server's log")
            case Ping():
                wire.transport.write(protocol.PONG)
            case Ok() | Message():
                pass
            case None if tls:
                reason = wire.failure or "closed the connection after the TLS handshake"
                raise Denied(f"{endpoint}: {reason}", hint="does it ask for a client certificate (tls_cert_file)?")
            case None:
                raise Unreachable(f"{endpoint} closed the connection", hint="see the server's log")


def _no_greeting(endpoint: Endpoint, wire: Wire, greeting: Event | None) -> BusError:
    if isinstance(wire.failure, ProtocolViolation):
        return Unreachable(f"{endpoint}: {wire.failure.what}", hint=wire.failure.hint)
    if isinstance(greeting, Failure):
        return Denied(f"{endpoint} refuses us: {greeting.text}", hint="see the server's log")
    return Unreachable(f"{endpoint} closed the connection", hint="does it expect TLS first (tls_handshake_first)?")
