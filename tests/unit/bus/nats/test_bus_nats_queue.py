from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import pytest

from tests.unit.bus.nats.client_frames import Sent
from tests.unit.bus.nats.scripted_server import Peer, ScriptedServer
from tutti.bus.nats.connection import Connection
from tutti.bus.nats.jetstream import JetStream, Pull
from tutti.bus.nats.options import NatsOptions
from tutti.bus.nats.queue import Queues
from tutti.errors import BusError, OutcomeUnknown, Unreachable
from tutti.testing.contracts import until


class Jobs:
    """The server side of one queue: jobs that wait, pulls that wait, and what takers said."""

    def __init__(self, *jobs: bytes) -> None:
        self.jobs = list(jobs)
        self.made: list[dict[str, object]] = []
        self.exists = True
        self.words: list[bytes] = []
        self.silent = False
        self.waiting: list[str] = []

    def __call__(self, sent: Sent, peer: Peer) -> None:
        if "CONSUMER.CREATE" in sent.subject:
            self.made.append(json.loads(sent.data)["config"])
            self.exists = True
            peer.send(sent.reply, b"{}")
        elif "MSG.NEXT" in sent.subject and not self.exists:
            peer.send(sent.reply, status="503")
        elif "MSG.NEXT" in sent.subject:
            self._pull(json.loads(sent.data), sent.reply, peer)
        elif sent.subject.startswith("$JS.ACK"):
            self.words.append(sent.data)
            if sent.reply and not self.silent:
                peer.send(sent.reply)

    def _pull(self, pull: dict[str, int], inbox: str, peer: Peer) -> None:
        given = self.jobs[: pull["batch"]]
        del self.jobs[: len(given)]
        for job in given:
            self.give(job, inbox, peer)
        if len(given) < pull["batch"]:
            if pull.get("no_wait"):
                peer.send(inbox, status="404 No Messages")
            else:
                self.waiting.append(inbox)

    def give(self, job: bytes, inbox: str, peer: Peer) -> None:
        peer.send(inbox, job, reply="$JS.ACK.s.queue-jobs.2.10.7.1700000000000000000.3")


@contextlib.asynccontextmanager
async def queues(jobs: Jobs, timeout: float = 5.0) -> AsyncIterator[tuple[Queues, ScriptedServer, Connection]]:
    async with ScriptedServer(jobs).running() as server:
        options = NatsOptions(urls=(server.url,), request_timeout=timeout, reconnect_max_delay=0.05, queue_silence=7.0)
        connection = Connection(options)
        await connection.start()
        try:
            yield Queues(connection, JetStream(connection), "s"), server, connection
        finally:
            await connection.close()


async def test_what_is_there_comes_at_once_with_its_place() -> None:
    jobs = Jobs(b"1", b"2", b"3")
    async with queues(jobs) as (queue, _, _):
        taken = await queue.take("jobs", "t.queue.jobs.>", max_messages=2, wait=None)
        assert [one.record.data for one in taken] == [b"1", b"2"]
        assert (taken[0].attempt, taken[0].record.sequence, taken[0].record.stored_at) == (2, 10, 1.7e9)
        rest = await queue.take("jobs", "t.queue.jobs.>", max_messages=2, wait=None)
        assert [one.record.data for one in rest] == [b"3"]
    [config] = jobs.made
    assert (config["ack_policy"], config["ack_wait"], config["max_deliver"]) == ("explicit", 7_000_000_000, -1)
    assert config["filter_subjects"] == ["t.queue.jobs.>"]


async def test_a_taker_waits_for_the_next() -> None:
    jobs = Jobs()
    async with queues(jobs) as (queue, server, _):
        waiting = asyncio.create_task(queue.take("jobs", "q.>", max_messages=5, wait=None))
        await until(lambda: bool(jobs.waiting))
        jobs.give(b"late", jobs.waiting[0], server.peers[0])
        [one] = await waiting
        assert one.record.data == b"late"
        assert list(await queue.take("jobs", "q.>", max_messages=5, wait=0)) == []


async def test_words_to_the_server() -> None:
    jobs = Jobs(b"1")
    async with queues(jobs) as (queue, _, _):
        [one] = await queue.take("jobs", "q.>", max_messages=1, wait=None)
        await one.working()
        await one.hand_back()
        await one.hand_back(delay=1.5)
        await one.settle()
        assert jobs.words == [b"+WPI", b"-NAK", b'-NAK {"delay":1500000000}', b"+ACK"]


async def test_settling_without_an_answer_is_unknown() -> None:
    jobs = Jobs(b"1")
    async with queues(jobs, timeout=0.2) as (queue, _, _):
        [one] = await queue.take("jobs", "q.>", max_messages=1, wait=None)
        jobs.silent = True
        with pytest.raises(OutcomeUnknown, match="did not answer"):
            await one.settle()


async def test_settling_survives_a_lost_connection() -> None:
    jobs = Jobs(b"1")
    async with queues(jobs) as (queue, server, connection):
        [one] = await queue.take("jobs", "q.>", max_messages=1, wait=None)
        jobs.silent = True
        settling = asyncio.create_task(one.settle())
        await until(lambda: bool(jobs.words))
        jobs.silent = False
        server.peers[0].close()
        await settling
        assert connection.reconnects == 1
        assert jobs.words == [b"+ACK", b"+ACK"]


async def test_a_waiting_taker_survives_a_lost_connection_and_a_lost_consumer() -> None:
    jobs = Jobs()
    async with queues(jobs) as (queue, server, _):
        waiting = asyncio.create_task(queue.take("jobs", "q.>", max_messages=1, wait=None))
        await until(lambda: bool(jobs.waiting))
        jobs.exists = False
        jobs.jobs.append(b"after")
        server.peers[0].close()
        [one] = await waiting
        assert one.record.data == b"after"
        assert len(jobs.made) == 2


async def test_what_came_for_a_cancelled_taker_is_handed_back() -> None:
    jobs = Jobs()
    async with queues(jobs) as (queue, server, connection):
        await queue.take("jobs", "q.>", max_messages=1, wait=0)
        pulling = asyncio.create_task(queue._pull("jobs", _pull_of(3), 5.0))
        await until(lambda: bool(jobs.waiting))
        jobs.give(b"1", jobs.waiting[0], server.peers[0])
        await connection.flush(timeout=5.0)
        pulling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await pulling
        await until(lambda: jobs.words == [b"-NAK"])


def _pull_of(count: int) -> Pull:
    return Pull(count, expires=5_000_000_000)


async def test_closing_ends_the_wait() -> None:
    jobs = Jobs()
    async with queues(jobs) as (queue, _, connection):
        waiting = asyncio.create_task(queue.take("jobs", "q.>", max_messages=1, wait=None))
        await until(lambda: bool(jobs.waiting))
        await connection.close()
        with pytest.raises(Unreachable):
            await waiting


async def test_a_queue_without_its_stream() -> None:
    def missing(sent: Sent, peer: Peer) -> None:
        peer.send(sent.reply, b'{"error":{"code":404,"err_code":10059,"description":"stream not found"}}')

    async with ScriptedServer(missing).running() as server:
        connection = Connection(NatsOptions(urls=(server.url,)))
        await connection.start()
        with pytest.raises(BusError, match="stream not found"):
            await Queues(connection, JetStream(connection), "s").take("jobs", "q.>", max_messages=1, wait=None)
        await connection.close()
