"""A NATS server that does as a test says: on a loopback port, with the protocol's server half and nothing behind it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable

from tests.unit.bus.nats.client_frames import Sent, commands
from tutti.bus.nats.patterns import matches, parsed
from tutti.bus.nats.protocol import header_lines

Answer = Callable[[Sent, "Peer"], None]


class Peer:
    """One client's connection, as the server sees it."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.subscriptions: dict[str, str] = {}  # sid -> subject
        self.heard: list[Sent] = []

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    def send(self, subject: str, data: bytes = b"", *, reply: str = "", status: str = "", **fields: str) -> None:
        """To every subscription of this client that matches."""
        named = {name.replace("_", "-"): value for name, value in fields.items()}
        block = f"NATS/1.0{' ' + status if status else ''}\r\n{header_lines(named)}\r\n".encode()
        head = block if status or fields else b""
        for sid, pattern in self.subscriptions.items():
            if matches(parsed(pattern), parsed(subject)):
                places = " ".join(filter(None, (subject, sid, reply)))
                sizes = f"{len(head)} {len(head) + len(data)}" if head else f"{len(data)}"
                self.write(f"{'HMSG' if head else 'MSG'} {places} {sizes}\r\n".encode() + head + data + b"\r\n")

    def close(self) -> None:
        self._writer.close()


class ScriptedServer:
    """`answer` is called for every message that a client publishes."""

    def __init__(self, answer: Answer | None = None, **info: object) -> None:
        self.answer = answer
        self.info: dict[str, object] = {
            "server_id": "S",
            "version": "2.15.1",
            "headers": True,
            "max_payload": 1_048_576,
        }
        self.info |= info
        self.greeting = f"INFO {json.dumps(self.info)}\r\n".encode()
        self.welcome = b"PONG\r\n"  # the answer to CONNECT and PING
        self.pings_answered = True
        self.peers: list[Peer] = []
        self.port = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[ScriptedServer]:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            self._server.close()
            for peer in self.peers:
                peer.close()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        peer = Peer(writer)
        self.peers.append(peer)
        peer.write(self.greeting)
        rest = b""
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                sent, rest = commands(rest + data)
                for one in sent:
                    self._hear(one, peer)
        writer.close()

    def _hear(self, sent: Sent, peer: Peer) -> None:
        first_ping = sent.verb == "PING" and all(one.verb != "PING" for one in peer.heard)
        peer.heard.append(sent)
        match sent.verb:
            case "PING" if first_ping:
                peer.write(self.welcome)
            case "PING" if self.pings_answered:
                peer.write(b"PONG\r\n")
            case "SUB":
                peer.subscriptions[sent.sid] = sent.subject
            case "UNSUB":
                peer.subscriptions.pop(sent.sid, None)
            case "PUB" if self.answer is not None:
                self.answer(sent, peer)
            case _:
                pass
