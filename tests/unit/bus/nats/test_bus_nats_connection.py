from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from tests.unit.bus.nats.client_frames import Sent
from tests.unit.bus.nats.scripted_server import Peer, ScriptedServer
from tutti.bus.nats.connection import Connection, Disconnected, NoResponders
from tutti.bus.nats.options import NatsOptions
from tutti.bus.nats.protocol import Message
from tutti.errors import Denied, NoReply, Refused, Unreachable
from tutti.testing.contracts import until


@contextlib.asynccontextmanager
async def connected(*servers: ScriptedServer, ping_interval: float = 30.0) -> AsyncIterator[Connection]:
    options = NatsOptions(
        urls=tuple(server.url for server in servers),
        connect_timeout=1.0,
        ping_interval=ping_interval,
        reconnect_max_delay=0.05,
    )
    connection = Connection(options)
    await connection.start()
    try:
        yield connection
    finally:
        await connection.close()


def echo(sent: Sent, peer: Peer) -> None:
    if sent.reply:
        peer.send(sent.reply, b"re: " + sent.data)


async def test_a_request_is_answered() -> None:
    async with ScriptedServer(echo).running() as server, connected(server) as connection:
        answers = await asyncio.gather(*(connection.request("ask", b"%d" % n, timeout=5.0) for n in range(20)))
        assert [answer.data for answer in answers] == [b"re: %d" % n for n in range(20)]


async def test_what_is_written_in_one_turn_leaves_in_one_piece_and_in_order() -> None:
    async with ScriptedServer().running() as server, connected(server) as connection:
        for number in range(100):
            connection.emit("a", "", "", b"%d" % number)
        await connection.flush(timeout=5.0)
        published = [sent.data for sent in server.peers[0].heard if sent.verb == "PUB"]
        assert published == [b"%d" % number for number in range(100)]


async def test_nobody_there_and_no_answer_are_different_things() -> None:
    def nobody(sent: Sent, peer: Peer) -> None:
        if sent.subject == "nobody":
            peer.send(sent.reply, status="503")

    async with ScriptedServer(nobody).running() as server, connected(server) as connection:
        with pytest.raises(NoResponders):
            await connection.request("nobody", timeout=5.0)
        with pytest.raises(NoReply, match=r"no answer on silence within 0\.05 s"):
            await connection.request("silence", timeout=0.05)


async def test_a_permission_that_is_missing_ends_the_request_that_needs_it() -> None:
    def forbid(sent: Sent, peer: Peer) -> None:
        peer.write(f"-ERR 'Permissions Violation for Publish to \"{sent.subject}\"'\r\n".encode())

    async with ScriptedServer(forbid).running() as server, connected(server) as connection:
        with pytest.raises(Denied, match='Publish to "secret"'):
            await connection.request("secret", timeout=5.0)


async def test_after_a_lost_connection_subscriptions_are_replayed_and_requests_told() -> None:
    async with ScriptedServer().running() as server, connected(server) as connection:
        heard: list[Message] = []
        ups: list[int] = []
        connection.on_up.append(lambda: ups.append(1))
        connection.subscribe("news.>", heard.append)
        gone = connection.subscribe("old.>", heard.append)
        connection.unsubscribe(gone)
        await connection.flush(timeout=5.0)
        waiting = asyncio.create_task(connection.request("silence", timeout=5.0))
        await until(lambda: any(sent.subject == "silence" for sent in server.peers[0].heard))
        server.peers[0].close()
        with pytest.raises(Disconnected):
            await waiting
        await until(lambda: connection.reconnects == 1)
        await connection.flush(timeout=5.0)
        assert ups == [1]
        assert "news.>" in server.peers[1].subscriptions.values()
        assert "old.>" not in server.peers[1].subscriptions.values()
        server.peers[1].send("news.a", b"x")
        await until(lambda: len(heard) == 1)


async def test_the_next_server_takes_over_and_discovered_ones_count() -> None:
    second = ScriptedServer(server_id="second")
    async with second.running():
        first = ScriptedServer(connect_urls=[f"127.0.0.1:{second.port}"])
        async with first.running(), connected(first) as connection:
            assert first._server is not None
            first._server.close()
            first.peers[0].close()
            await until(lambda: connection.reconnects == 1)
            assert connection.server == second.url
            assert connection.info.server_id == "second"


async def test_a_server_that_comes_back_elsewhere_is_found() -> None:
    places: list[str] = []
    connection = Connection(NatsOptions(reconnect_max_delay=0.05), locate=lambda: places)
    async with ScriptedServer().running() as first, ScriptedServer().running() as second:
        places = [first.url]
        await connection.start()
        assert connection.server == first.url
        places = [second.url]
        first.peers[0].close()
        await until(lambda: connection.server == second.url)
        await connection.close()


async def test_a_server_that_answers_no_pings_is_left() -> None:
    async with ScriptedServer().running() as server, connected(server, ping_interval=0.03) as connection:
        server.pings_answered = False
        await until(lambda: connection.reconnects >= 1)
        server.pings_answered = True
        assert len(server.peers) >= 2


async def test_a_handler_that_fails_does_not_stop_the_others() -> None:
    lost: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: lost.append(context["exception"]))

    def fail(message: Message) -> None:
        raise RuntimeError(message.subject)

    async with ScriptedServer().running() as server, connected(server) as connection:
        heard: list[Message] = []
        connection.subscribe("a", fail)
        connection.subscribe("a", heard.append)
        await connection.flush(timeout=5.0)
        server.peers[0].send("a")
        await until(lambda: len(heard) == 1)
        assert [str(error) for error in lost] == ["a"]


async def test_closing_delivers_what_was_written_and_ends_everything() -> None:
    async with ScriptedServer().running() as server:
        async with connected(server) as connection:
            connection.emit("last", "", "", b"words")
        assert [sent.subject for sent in server.peers[0].heard if sent.verb == "PUB"] == ["last"]
        for use in (lambda: connection.request("a", timeout=1.0), lambda: connection.wait_up(1.0)):
            with pytest.raises(Unreachable, match="closed"):
                await use()
        with pytest.raises(Unreachable, match="closed"):
            connection.emit("a", "", "", b"")


async def test_without_a_connection_emits_are_dropped_and_counted() -> None:
    server = ScriptedServer(max_payload=10)
    async with server.running(), connected(server) as connection:
        with pytest.raises(Refused, match="the server takes 10"):
            connection.emit("a", "", "", b"x" * 11)
        assert server._server is not None
        server._server.close()
        server.peers[0].close()
        await until(lambda: not connection.connected)
        connection.emit("a", "", "", b"x")
        assert connection.emits_dropped == 1
        with pytest.raises(Disconnected):
            await connection.request("a", timeout=1.0)
        with pytest.raises(Unreachable, match="not connected"):
            await connection.wait_up(0.01)


async def test_noise_ends_the_connection_not_the_client() -> None:
    async with ScriptedServer().running() as server, connected(server) as connection:
        server.peers[0].write(b"GARBAGE\r\n")
        await until(lambda: connection.reconnects == 1)
