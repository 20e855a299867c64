from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator

import pytest

from tests.unit.bus.nats.client_frames import Sent
from tests.unit.bus.nats.scripted_server import Peer, ScriptedServer
from tutti.bus.nats.connection import Connection
from tutti.bus.nats.jetstream import ApiError, Delivery, JetStream, ServerRefusal, append_failure, delivery_of, refusal
from tutti.bus.nats.options import NatsOptions
from tutti.bus.port import Record
from tutti.errors import BusError, Conflict, Denied, NoReply, Refused


class Api:
    """Answers by verb, each time with the next of its answers; the last one stays."""

    def __init__(self, **answers: list[object]) -> None:
        self.answers = {verb.replace("_", "."): list(values) for verb, values in answers.items()}
        self.asked: list[Sent] = []

    def __call__(self, sent: Sent, peer: Peer) -> None:
        self.asked.append(sent)
        for verb, values in self.answers.items():
            if sent.subject.startswith(f"$JS.API.{verb}"):
                value = values.pop(0) if len(values) > 1 else values[0]
                if value == 503:
                    peer.send(sent.reply, status="503")
                elif value is not None:
                    peer.send(sent.reply, json.dumps(value).encode())


@contextlib.asynccontextmanager
async def asking(api: Api, timeout: float = 5.0) -> AsyncIterator[JetStream]:
    async with ScriptedServer(api).running() as server:
        connection = Connection(NatsOptions(urls=(server.url,), request_timeout=timeout, reconnect_max_delay=0.05))
        await connection.start()
        try:
            yield JetStream(connection)
        finally:
            await connection.close()


def error(code: int, status: int = 400) -> dict[str, object]:
    return {"error": {"code": status, "err_code": code, "description": "because"}}


async def test_a_stream_that_is_there_or_not() -> None:
    found = {"config": {"name": "s", "subjects": ["a.>"]}, "state": {"messages": 2, "first_seq": 4, "last_seq": 5}}
    async with asking(Api(STREAM_INFO=[found, error(10059, 404), error(10003)])) as jetstream:
        reply = await jetstream.stream("s")
        assert reply is not None
        assert (reply.config.subjects, reply.state.first_seq) == (("a.>",), 4)
        assert await jetstream.stream("s") is None
        with pytest.raises(ServerRefusal, match="because") as refused:
            await jetstream.stream("s")
        assert refused.value.code == 10003


async def test_a_server_that_is_not_ready_is_asked_again() -> None:
    async with asking(Api(STREAM_INFO=[503, error(10008, 503), {"config": {"name": "s"}}])) as jetstream:
        reply = await jetstream.stream("s")
        assert reply is not None


async def test_in_the_end_it_gives_up() -> None:
    async with asking(Api(STREAM_INFO=[503]), timeout=0.3) as jetstream:
        with pytest.raises(NoReply, match="nobody answers"):
            await jetstream.stream("s")


async def test_a_lost_connection_is_waited_out() -> None:
    api = Api(STREAM_INFO=[None, {"config": {"name": "s"}}])

    def cut_once(sent: Sent, peer: Peer) -> None:
        api(sent, peer)
        if len(api.asked) == 1:
            peer.close()

    async with ScriptedServer(cut_once).running() as server:
        connection = Connection(NatsOptions(urls=(server.url,), reconnect_max_delay=0.05))
        await connection.start()
        assert await JetStream(connection).stream("s") is not None
        assert connection.reconnects == 1
        await connection.close()


async def test_what_cannot_be_read_is_an_error() -> None:
    async with asking(Api(STREAM_INFO=[["not", "an", "object"]])) as jetstream:
        with pytest.raises(BusError, match="cannot be read"):
            await jetstream.stream("s")


async def test_lists_come_in_pages() -> None:
    names = Api(STREAM_NAMES=[{"streams": ["b", "c"], "total": 3}, {"streams": ["a"], "total": 3}])
    async with asking(names) as jetstream:
        assert await jetstream.stream_names() == ["a", "b", "c"]
    assert [json.loads(sent.data)["offset"] for sent in names.asked] == [0, 2]
    pages: list[object] = [
        {"state": {"subjects": {"k.a": 1, "k.b": 1}}, "total": 3},
        {"state": {"subjects": {"k.c": 1}}, "total": 3},
    ]
    async with asking(Api(STREAM_INFO=pages)) as jetstream:
        assert await jetstream.subjects("s", "k.>") == ["k.a", "k.b", "k.c"]


async def test_one_message() -> None:
    def encoded(data: bytes) -> str:
        return base64.b64encode(data).decode()

    message = {
        "subject": "a", "seq": 7, "hdrs": encoded(b"NATS/1.0\r\nx: y\r\n\r\n"), "data": encoded(b"\x00\xff"),
        "time": "2026-01-01T00:00:00.5Z",
    }  # fmt: skip
    async with asking(Api(STREAM_MSG_GET=[{"message": message}, error(10037, 404)])) as jetstream:
        assert await jetstream.message("s", {"seq": 7}) == Record("a", {"x": "y"}, b"\x00\xff", 7, 1767225600.5)
        assert await jetstream.message("s", {"seq": 8}) is None


async def test_requests_at_once_do_not_mix() -> None:
    def answer(sent: Sent, peer: Peer) -> None:
        name = sent.subject.rsplit(".", 1)[1]
        peer.send(sent.reply, json.dumps({"config": {"name": name}}).encode())

    async with ScriptedServer(answer).running() as server:
        connection = Connection(NatsOptions(urls=(server.url,)))
        await connection.start()
        replies = await asyncio.gather(*(JetStream(connection).stream(f"s{n}") for n in range(50)))
        assert [reply.config.name for reply in replies if reply] == [f"s{n}" for n in range(50)]
        await connection.close()


@pytest.mark.parametrize(
    ("code", "kind", "hint"),
    [
        (10076, Denied, "enable JetStream"),
        (10039, Denied, "enable JetStream"),
        (10071, Conflict, "read it again"),
        (1, ServerRefusal, ""),
    ],
)
def test_refusals_of_the_api(code: int, kind: type[BusError], hint: str) -> None:
    made = refusal("STREAM.X", ApiError(400, code, "because"))
    assert type(made) is kind
    assert hint in made.hint
    assert "STREAM.X: because" in made.what


@pytest.mark.parametrize(
    ("status", "code", "kind", "hint"),
    [
        (400, 10071, Conflict, "read it again"),
        (400, 10054, Refused, "max_message_bytes"),
        (503, 10077, Refused, "full"),
        (429, 10167, Refused, "more slowly"),
        (400, 10052, Refused, "log"),
    ],
)
def test_refusals_of_a_message(status: int, code: int, kind: type[BusError], hint: str) -> None:
    made = append_failure("a.b", ApiError(status, code, "because"))
    assert type(made) is kind
    assert hint in made.hint
    assert "a.b: because" in made.what


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("$JS.ACK.s.c.2.10.7.1700000000000000000.3", Delivery(2, 10, 7, 1700000000000000000, 3)),
        ("$JS.ACK._.hash.s.c.2.10.7.1700000000000000000.3", Delivery(2, 10, 7, 1700000000000000000, 3)),
        ("$JS.ACK.hub.hash.s.c.2.10.7.1700000000000000000.3.token", Delivery(2, 10, 7, 1700000000000000000, 3)),
        ("", None),
        ("_INBOX.a", None),
        ("$JS.ACK.s.c.2.x.7.1700000000000000000.3", None),
    ],
)
def test_a_deliverys_place(reply: str, expected: Delivery | None) -> None:
    assert delivery_of(reply) == expected
