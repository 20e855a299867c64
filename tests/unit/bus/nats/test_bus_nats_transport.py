"""What the transport adds to its parts; the contract suite on a real server is its other half."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable

import pytest

from tests.unit.bus.nats.client_frames import Sent
from tests.unit.bus.nats.scripted_server import Peer, ScriptedServer
from tutti.bus.nats import NatsOptions, NatsTransport
from tutti.bus.nats import transport as transport_module
from tutti.bus.nats.protocol import ServerInfo
from tutti.bus.port import StreamSpec
from tutti.errors import Denied, NotDurable
from tutti.model.subjects import Layout

LAYOUT = Layout("t")


class Streams:
    """Just enough of JetStream to create and update one stream."""

    def __init__(self) -> None:
        self.config: dict[str, object] = {}
        self.verbs: list[str] = []
        self.max_replicas = 1

    def __call__(self, sent: Sent, peer: Peer) -> None:
        verb = sent.subject.removeprefix("$JS.API.").rsplit(".", 1)[0]
        self.verbs.append(verb)
        body = json.loads(sent.data) if sent.data else {}
        if body.get("num_replicas", 1) > self.max_replicas:
            return self._answer(sent, peer, {"error": {"code": 500, "err_code": 10074, "description": "replicas > 1"}})
        if verb == "STREAM.CREATE" and self.config and self.config != body:
            return self._answer(sent, peer, {"error": {"code": 400, "err_code": 10058, "description": "in use"}})
        if verb in {"STREAM.CREATE", "STREAM.UPDATE"}:
            self.config = body
        return self._answer(sent, peer, {"config": self.config})

    @staticmethod
    def _answer(sent: Sent, peer: Peer, value: object) -> None:
        peer.send(sent.reply, json.dumps(value).encode())


@contextlib.asynccontextmanager
async def connected(server: ScriptedServer, *, durable: bool = False) -> AsyncIterator[NatsTransport]:
    options = NatsOptions(urls=(server.url,), durable=durable, synced=True, reconnect_max_delay=0.05)
    transport = NatsTransport(options, LAYOUT)
    await transport.start()
    try:
        yield transport
    finally:
        await transport.close()


async def test_a_stream_refuses_rather_than_drops_and_takes_batches() -> None:
    streams = Streams()
    async with ScriptedServer(streams).running() as server, connected(server) as transport:
        await transport.ensure_stream(StreamSpec("s", ("a.>",), max_bytes=5, max_message_bytes=6, duplicate_window=7.0))
        config = streams.config
        assert (config["discard"], config["max_age"], config["storage"]) == ("new", 0, "file")
        assert (config["allow_atomic"], config["allow_direct"], config["retention"]) == (True, True, "limits")
        assert (config["max_bytes"], config["max_msg_size"], config["duplicate_window"]) == (5, 6, 7_000_000_000)
        await transport.ensure_stream(StreamSpec("s", ("a.>",), queue=True))
        assert streams.config["retention"] == "workqueue"
        await transport.ensure_stream(StreamSpec("s", ("a.>",), last_per_subject=True))
        assert streams.config["max_msgs_per_subject"] == 1


async def test_a_stream_that_is_as_it_should_be_is_left_alone() -> None:
    streams = Streams()
    spec = StreamSpec("s", ("a.>",))
    async with ScriptedServer(streams).running() as server, connected(server) as transport:
        await transport.ensure_stream(spec)
        await transport.ensure_stream(spec)
        assert streams.verbs == ["STREAM.CREATE", "STREAM.CREATE"]
        await transport.ensure_stream(StreamSpec("s", ("a.>",), max_bytes=9))
        assert streams.verbs[2:] == ["STREAM.CREATE", "STREAM.INFO", "STREAM.UPDATE"]


async def test_fewer_servers_than_replicas_keep_one_copy() -> None:
    streams = Streams()
    async with ScriptedServer(streams).running() as server, connected(server) as transport:
        assert (await transport.ensure_stream(StreamSpec("s", ("a.>",), replicas=3))).replicas == 1
        streams.max_replicas = 3
        assert (await transport.ensure_stream(StreamSpec("s", ("a.>",), replicas=3))).replicas == 3


async def test_a_server_below_the_floor_is_refused_in_durable_work_only() -> None:
    async with ScriptedServer(version="2.11.0").running() as server:
        with pytest.raises(NotDurable, match=r"2\.11\.0"):
            async with connected(server, durable=True):
                pass
        async with connected(server) as transport:
            assert transport.status().version == "2.11.0"


async def until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not happened():
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("durable", [False, True])
async def test_a_server_that_comes_back_as_one_that_does_not_sync_is_left(
    durable: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    syncs = {"S": True, "T": False, "U": True}

    async def learn(options: NatsOptions, info: ServerInfo, known: bool | None) -> bool | None:
        del options, known
        return syncs[info.server_id]

    monkeypatch.setattr(transport_module, "learn_synced_again", learn)
    async with ScriptedServer().running() as server, connected(server, durable=durable) as transport:

        def comes_back_as(name: str) -> None:
            server.greeting = f"INFO {json.dumps(server.info | {'server_id': name, 'server_name': name})}\r\n".encode()
            server.peers[-1].close()

        comes_back_as("T")
        if durable:
            await until(lambda: "power cut" in transport.status().detail)
            assert not transport.status().connected
            assert sum("T (" in record.message for record in caplog.records) == 1
        else:
            await until(lambda: transport.status().reconnects == 1)
            assert transport.status().synced is False
        comes_back_as("U")
        await until(lambda: transport.status().connected and transport.status().synced is True)
        assert transport.status().detail == ""


async def test_a_connection_that_was_only_lost_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(transport_module, "learn_synced_again")
    async with ScriptedServer().running() as server, connected(server, durable=True) as transport:
        server.peers[-1].close()
        await until(lambda: transport.status().reconnects == 1)


async def test_status_before_during_and_after() -> None:
    async with ScriptedServer().running() as server:
        transport = NatsTransport(NatsOptions(urls=(server.url,), synced=True), LAYOUT)
        assert not transport.status().connected
        await transport.close()
        await transport.start()
        status = transport.status()
        assert (status.connected, status.server, status.synced) == (True, server.url, True)
        await transport.close()
        assert not transport.status().connected


async def test_a_subscription_that_is_denied_is_told_and_let_go() -> None:
    server = ScriptedServer()
    async with server.running(), connected(server) as transport:
        original = server._hear

        def forbid(sent: Sent, peer: Peer) -> None:
            if sent.subject == "secret":
                peer.write(b"-ERR 'Permissions Violation for Subscription to \"secret\"'\r\n")
            else:
                original(sent, peer)

        server._hear = forbid  # type: ignore[method-assign]  # the script of this one test
        with pytest.raises(Denied, match="Subscription"):
            await transport.listen("secret")
        await (await transport.listen("open")).close()
