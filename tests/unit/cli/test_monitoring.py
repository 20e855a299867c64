from __future__ import annotations

import asyncio

import pytest

from tutti.cli.monitoring import HOST, REQUEST_MAX_BYTES, Answer, Monitor
from tutti.errors import DeclarationError

PAGES = {"/metrics": lambda: Answer(200, b"a 1\n"), "/health": lambda: Answer(503, b"{}", "application/json")}


async def ask(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        writer.write(request)
        return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()


async def test_pages_are_served_by_path() -> None:
    async with Monitor(0, PAGES) as monitor:
        head, _, body = (await ask(monitor.port, b"GET /metrics?x=1 HTTP/1.1\r\nHost: x\r\n\r\n")).partition(
            b"\r\n\r\n"
        )
        assert head.startswith(b"HTTP/1.1 200 OK")
        assert body == b"a 1\n"
        assert (await ask(monitor.port, b"GET /health HTTP/1.1\r\n\r\n")).startswith(
            b"HTTP/1.1 503 Service Unavailable"
        )
        assert (await ask(monitor.port, b"HEAD /metrics HTTP/1.1\r\n\r\n")).endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("request_head", "status"),
    [(b"GET /x HTTP/1.1\r\n\r\n", 404), (b"POST /metrics HTTP/1.1\r\n\r\n", 405), (b"hello\r\n\r\n", 400)],
)
def test_other_requests_are_answered_too(request_head: bytes, status: int) -> None:
    answer, _ = Monitor(0, PAGES).answer(request_head)
    assert answer.status == status


async def test_a_request_without_end_is_dropped() -> None:
    async with Monitor(0, PAGES) as monitor:
        assert await ask(monitor.port, b"GET /" + b"x" * (2 * REQUEST_MAX_BYTES)) == b""
        assert b" 200 " in await ask(monitor.port, b"GET /metrics HTTP/1.1\r\n\r\n")


async def test_a_taken_port_is_explained() -> None:
    async with Monitor(0, PAGES) as monitor:
        with pytest.raises(DeclarationError, match="cannot be served"):
            async with Monitor(monitor.port, PAGES):
                pass
