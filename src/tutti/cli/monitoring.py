"""`/metrics` and `/health` for those who watch a running service. It answers on this machine only, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final, Self

import msgspec

from tutti.errors import DeclarationError

HOST: Final = "127.0.0.1"
REQUEST_MAX_BYTES: Final = 8_192
REQUEST_SECONDS: Final = 5.0
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}


class Answer(msgspec.Struct, frozen=True):
    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"

    def message(self, *, with_body: bool) -> bytes:
        head = (
            f"HTTP/1.1 {self.status} {_REASONS[self.status]}\r\nContent-Type: {self.content_type}\r\n"
            f"Content-Length: {len(self.body)}\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + (self.body if with_body else b"")


Page = Callable[[], Answer]


class Monitor:
    """Serves pages by their path. `async with Monitor(port, pages) as monitor: monitor.port`"""

    def __init__(self, port: int, pages: dict[str, Page]) -> None:
        self.port = port
        self._pages = pages
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        try:
            self._server = await asyncio.start_server(self._serve, HOST, self.port, limit=REQUEST_MAX_BYTES)
        except OSError as error:
            raise DeclarationError(
                f"{HOST}:{self.port} cannot be served: {error.strerror}",
                hint="name another --metrics-port, or 0 for any that is free",
            ) from error
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                async with asyncio.timeout(REQUEST_SECONDS):
                    request = await reader.readuntil(b"\r\n\r\n")
                    answer, with_body = self.answer(request)
                    writer.write(answer.message(with_body=with_body))
                    await writer.drain()
        finally:
            writer.close()

    def answer(self, request: bytes) -> tuple[Answer, bool]:
        """What to say to a request's head; and whether the body is wanted too."""
        words = request.partition(b"\r\n")[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/"):
            return Answer(400, b"this is no request\n"), True
        method, path = words[0], words[1].partition("?")[0]
        if method not in {"GET", "HEAD"}:
            return Answer(405, b"only GET and HEAD\n"), True
        page = self._pages.get(path)
        if page is None:
            return Answer(404, f"there are {', '.join(self._pages)}\n".encode()), method == "GET"
        return page(), method == "GET"
