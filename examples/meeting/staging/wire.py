"""A wire that can be cut: what a subscriber and the NATS server say to each other goes through here.

It looks for nothing but a few bytes, and has no part in the protocol: to both ends it is a network that breaks.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Final

DECISION: Final = b"\xa4kind\xa6decide"  # how the manager's decision looks on the wire: MessagePack
_CHUNK_BYTES: Final = 65_536
_ID_BYTES: Final = 80


class Wire:
    """`port` is where the subscriber finds its server."""

    def __init__(self, host: str, port: int) -> None:
        self._upstream = (host, port)
        self._server: asyncio.Server | None = None
        self._ends: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self._sign = b""
        self._spared: frozenset[bytes] = frozenset()
        self.cut = asyncio.Event()
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._join, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self._break()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    def cut_before(self, sign: bytes, *, spared: Iterable[str] = ()) -> None:
        """Break, and stay broken, when the server sends this: the packet that has it is lost. What belongs to the
        transactions that are spared may pass."""
        self._sign, self._spared = sign, frozenset(tx.encode() for tx in spared)

    def _fatal(self, chunk: bytes) -> bool:
        if not self._sign:
            return False
        behind = (part[:_ID_BYTES] for part in chunk.split(self._sign)[1:])  # the transaction's id stands there
        return any(not any(tx in part for tx in self._spared) for part in behind)

    def mend(self) -> None:
        self._sign = b""
        self.cut.clear()

    def _break(self) -> None:
        self.cut.set()
        for end in self._ends:
            end.transport.abort()
        self._ends.clear()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.cut.is_set():
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._upstream)
        except OSError:
            writer.transport.abort()
            return
        self._ends |= {writer, far_writer}
        for source, target, watched in ((reader, far_writer, False), (far_reader, writer, True)):
            pump = asyncio.create_task(self._pump(source, target, watched=watched))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, watched: bool) -> None:
        with contextlib.suppress(OSError):
            while chunk := await source.read(_CHUNK_BYTES):
                if watched and self._fatal(chunk):
                    self._break()
                    return
                target.write(chunk)
                await target.drain()
        self._ends.discard(target)
        target.close()
