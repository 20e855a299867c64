from __future__ import annotations

import asyncio

import pytest

from tests.unit.bus.nats.scripted_server import ScriptedServer
from tutti.bus.nats.options import Endpoint, NatsOptions
from tutti.bus.nats.protocol import ServerInfo
from tutti.bus.nats.wire import open_wire
from tutti.errors import BusError, Denied, NotDurable, Unreachable

OPTIONS = NatsOptions(connect_timeout=0.3)


async def opened(server: ScriptedServer, options: NatsOptions = OPTIONS, *, tls: bool = False) -> ServerInfo:
    async with server.running():
        wire, info = await open_wire(options, Endpoint("127.0.0.1", server.port, tls), None, lambda: None)
        wire.transport.close()
        await asyncio.wait([wire.lost])
        return info


async def refusal(server: ScriptedServer, kind: type[BusError], *, tls: bool = False) -> str:
    with pytest.raises(kind) as raised:
        await opened(server, tls=tls)
    assert raised.value.hint
    return raised.value.what


async def test_a_handshake() -> None:
    server = ScriptedServer(server_name="one")
    info = await opened(server)
    assert (info.version, info.server_name) == ("2.15.1", "one")
    [connect, ping] = server.peers[0].heard
    assert (connect.verb, ping.verb) == ("CONNECT", "PING")
    for word in (b'"verbose":false', b'"headers":true', b'"no_responders":true', b'"name":"tutti"'):
        assert word in connect.data


async def test_what_the_server_says_last_counts() -> None:
    server = ScriptedServer()
    server.welcome = b'+OK\r\nPING\r\nINFO {"version":"2.15.2"}\r\nPONG\r\n'
    assert (await opened(server)).version == "2.15.2"


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("Authorization Violation", Denied),
        ("User Authentication Expired", Denied),
        ("maximum connections exceeded", Denied),
        ("Slow Consumer", Unreachable),
    ],
)
async def test_a_refusal_is_told_in_the_servers_words(words: str, kind: type[BusError]) -> None:
    server = ScriptedServer()
    server.welcome = f"-ERR '{words}'\r\n".encode()
    assert words in await refusal(server, kind)


async def test_something_else_on_that_port() -> None:
    server = ScriptedServer()
    server.greeting = b"SSH-2.0-OpenSSH_9.6\r\n"
    assert "not a line of the NATS protocol" in await refusal(server, Unreachable)
    server.greeting = b"-ERR 'maximum connections exceeded'\r\n"
    assert "maximum connections" in await refusal(server, Denied)
    server.greeting = b""
    assert "does not answer" in await refusal(server, Unreachable)


async def test_tls_that_is_not_offered() -> None:
    assert "does not offer TLS" in await refusal(ScriptedServer(), Denied, tls=True)


async def test_nobody_there() -> None:
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1"):
        await open_wire(OPTIONS, Endpoint("127.0.0.1", 1), None, lambda: None)


async def test_a_server_can_be_refused_by_what_it_says() -> None:
    async def refuse(info: ServerInfo) -> None:
        raise NotDurable(f"not {info.version}", hint="another")

    server = ScriptedServer()
    async with server.running():
        with pytest.raises(NotDurable, match=r"not 2\.15\.1"):
            await open_wire(OPTIONS, Endpoint("127.0.0.1", server.port), refuse, lambda: None)
    assert server.peers[0].heard == []
