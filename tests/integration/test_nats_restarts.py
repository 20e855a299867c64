"""Servers that are killed, stopped and slow: nothing acknowledged is lost, nothing comes twice, the order stays."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.nats_server import NatsServer, start_cluster
from tutti.bus.nats import NatsOptions, NatsTransport
from tutti.bus.port import FromEarliest, FromLatest, Reader, Record, Stored, StreamSpec
from tutti.errors import Conflict, Gone, OutcomeUnknown, Refused, Unreachable
from tutti.model.subjects import Layout
from tutti.testing.contracts import until

LAYOUT = Layout("t")
STREAM = LAYOUT.event_stream("log")
SUBJECT = "t.event.log.a"
SPEC = StreamSpec(STREAM, (LAYOUT.event_subjects("log"),))


@pytest.fixture(params=[True, False], ids=["synced", "unsynced"])
async def server(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[NatsServer]:
    server = NatsServer(tmp_path, synced=request.param)
    await server.start()
    yield server
    server.kill()


@pytest.fixture
async def synced(tmp_path: Path) -> AsyncIterator[NatsServer]:
    server = NatsServer(tmp_path)
    await server.start()
    yield server
    server.kill()


@contextlib.asynccontextmanager
async def connected(*servers: NatsServer, **more: float) -> AsyncIterator[NatsTransport]:
    urls = tuple(server.url for server in servers)
    options = NatsOptions(
        urls=urls,
        durable=False,
        reconnect_max_delay=0.1,
        monitor_url=servers[0].monitor_url,
        **more,  # type: ignore[arg-type]  # times only
    )
    transport = NatsTransport(options, LAYOUT)
    await transport.start()
    try:
        yield transport
    finally:
        await transport.close()


def append(transport: NatsTransport, number: int, *, timeout: float = 20.0) -> asyncio.Future[Stored]:
    return transport.append(SUBJECT, {"Nats-Msg-Id": f"m{number}"}, b"%d" % number, timeout=timeout)


async def read_numbers(transport: NatsTransport, count: int) -> list[int]:
    reader = await transport.reader(STREAM, (), FromEarliest())
    records: list[Record] = []
    async with asyncio.timeout(20):
        while len(records) < count:
            records += await reader.batch(1_000)
    assert list(await reader.batch(10, wait=0.1)) == []
    await reader.close()
    return [int(record.data) for record in records]


async def drain(reader: Reader) -> None:
    async with asyncio.timeout(10):
        while True:
            await reader.batch(10)


async def test_appends_survive_kills_in_order_and_once(server: NatsServer) -> None:
    count = 6_000
    async with connected(server) as transport:
        await transport.ensure_stream(SPEC)
        futures: list[asyncio.Future[Stored]] = []

        async def publish() -> None:
            for number in range(count):
                futures.append(append(transport, number))
                if number % 50 == 0:
                    await futures[max(0, number - 400)]

        publishing = asyncio.create_task(publish())
        await until(lambda: len(futures) >= 1_500)
        server.kill()
        await server.start()
        await until(lambda: len(futures) >= 3_500)
        server.kill()
        await server.start()
        await publishing
        stored = await asyncio.gather(*futures)
        assert await read_numbers(transport, count) == list(range(count))
        assert [one.sequence for one in stored] == list(range(1, count + 1))
        assert transport.status().reconnects >= 2


async def test_a_reader_goes_on_behind_what_it_handed_out(server: NatsServer) -> None:
    async with connected(server) as transport:
        await transport.ensure_stream(SPEC)
        reader = await transport.reader(STREAM, (SUBJECT,), FromEarliest())
        seen: list[int] = []
        for turn in range(3):
            await asyncio.gather(*(append(transport, turn * 1_000 + number) for number in range(1_000)))
            while len(seen) < turn * 1_000 + 700:  # the rest is in the reader's hands, or on the way
                seen += [int(record.data) for record in await reader.batch(100, wait=10)]
            server.kill()
            await server.start()
        async with asyncio.timeout(20):
            while len(seen) < 3_000:
                seen += [int(record.data) for record in await reader.batch(100)]
        assert seen == list(range(3_000))


async def test_a_waiting_reader_is_woken_after_a_restart(synced: NatsServer) -> None:
    async with connected(synced) as transport:
        await transport.ensure_stream(SPEC)
        reader = await transport.reader(STREAM, (), FromLatest())
        waiting = asyncio.create_task(reader.batch(10))
        await append(transport, 0)
        assert [record.sequence for record in await waiting] == [1]
        waiting = asyncio.create_task(reader.batch(10))
        await asyncio.sleep(0)
        synced.kill()
        await synced.start()
        await append(transport, 1)
        async with asyncio.timeout(10):
            assert [record.sequence for record in await waiting] == [2]


async def test_a_stream_made_anew_is_gone(synced: NatsServer) -> None:
    async with connected(synced) as transport:
        await transport.ensure_stream(SPEC)
        await asyncio.gather(*(append(transport, number) for number in range(5)))
        reader = await transport.reader(STREAM, (), FromEarliest())
        assert len(await reader.batch(10, wait=5)) >= 1
        synced.kill()
        synced.forget()
        await synced.start()
        await transport.ensure_stream(SPEC)
        with pytest.raises(Gone, match="was read already"):
            await drain(reader)


async def test_while_the_server_is_away_appends_wait_then_are_refused(synced: NatsServer) -> None:
    async with connected(synced) as transport:
        await transport.ensure_stream(SPEC)
        await append(transport, 0)
        synced.kill()
        await until(lambda: not transport.status().connected)
        short = append(transport, 1, timeout=0.2)
        patient = append(transport, 2, timeout=20.0)
        with pytest.raises(Refused, match="could not be sent in time"):
            await short
        await synced.start()
        assert (await patient).sequence == 2
        assert await read_numbers(transport, 2) == [0, 2]


async def test_sent_and_unanswered_is_unknown(synced: NatsServer) -> None:
    async with connected(synced) as transport:
        await transport.ensure_stream(SPEC)
        await append(transport, 0)
        synced.pause()
        unanswered = append(transport, 1, timeout=0.3)
        with pytest.raises(OutcomeUnknown, match="did not answer in time"):
            await unanswered
        synced.resume()
        again = await append(transport, 1)
        assert (again.sequence, again.duplicate) == (2, True)


async def test_what_must_not_be_sent_twice_is_unknown_after_a_lost_connection(synced: NatsServer) -> None:
    async with connected(synced) as transport:
        await transport.ensure_stream(SPEC)
        await append(transport, 0)
        synced.pause()
        nameless = transport.append(SUBJECT, {}, b"1", timeout=20.0)
        conditional = transport.append(SUBJECT, {"Nats-Msg-Id": "c"}, b"2", timeout=20.0, expected_last=2)
        named = append(transport, 3)
        await asyncio.sleep(0.05)  # a turn of the loop, so that they leave
        synced.kill()
        await synced.start()
        for future in (nameless, conditional):
            with pytest.raises(OutcomeUnknown, match="connection was lost"):
                await future
        assert (await named).duplicate is False


async def test_state_is_written_once_through_a_restart(synced: NatsServer) -> None:
    async with connected(synced) as transport:
        await transport.ensure_stream(StreamSpec(LAYOUT.state_stream, (LAYOUT.state_subjects,), last_per_subject=True))
        revision = await transport.state_put("lease.a", b"1", expected=0)
        synced.pause()
        writing = asyncio.create_task(transport.state_put("lease.a", b"2", expected=revision, timeout=20.0))
        await asyncio.sleep(0.05)
        synced.kill()
        await synced.start()
        second = await writing
        entry = await transport.state_get("lease.a")
        assert entry is not None
        assert (entry.value, entry.revision) == (b"2", second)
        with pytest.raises(Conflict):
            await transport.state_put("lease.a", b"3", expected=revision)


async def test_what_is_settled_stays_settled_when_the_server_is_killed(server: NatsServer) -> None:
    async with connected(server, queue_silence=0.5) as transport:
        await transport.ensure_stream(StreamSpec(LAYOUT.queue_stream, (LAYOUT.queue_subjects,), queue=True))
        for number in range(20):
            await transport.append(LAYOUT.queue("jobs", "t"), {}, b"%d" % number, timeout=5.0)
        taken = await transport.take("jobs", max_messages=20, wait=5.0)
        assert len(taken) == 20
        for message in taken[:10]:
            await message.settle()
        server.kill()
        await server.start()
        left: set[bytes] = set()
        async with asyncio.timeout(20):
            while len(left) < 10:
                for message in await transport.take("jobs", max_messages=20, wait=1.0):
                    left.add(message.record.data)
                    await message.settle()
        assert left == {b"%d" % number for number in range(10, 20)}
        assert list(await transport.take("jobs", wait=0.7)) == []


async def test_a_listener_hears_again_after_a_restart(synced: NatsServer) -> None:
    async with connected(synced) as transport:
        listener = await transport.listen("t.control.>")
        synced.kill()
        await until(lambda: not transport.status().connected)
        transport.emit("t.control.x", {}, b"lost")
        await synced.start()
        await until(lambda: transport.status().connected)
        transport.emit("t.control.x", {}, b"heard")
        async with asyncio.timeout(5):
            async for record in listener:
                assert record.data == b"heard"
                break


async def test_start_waits_for_a_server_that_is_late_and_gives_up_in_time(tmp_path: Path) -> None:
    server = NatsServer(tmp_path)
    with pytest.raises(Unreachable, match="no NATS server answered"):
        async with connected(server, connect_timeout=0.3):
            pass
    options = NatsOptions(urls=(server.url,), durable=False)
    transport = NatsTransport(options, LAYOUT)
    starting = asyncio.create_task(transport.start())
    try:
        await server.start()
        await starting
        assert transport.status().connected
        await transport.close()
    finally:
        server.kill()


async def test_three_servers_lose_one_and_nothing_else(tmp_path: Path) -> None:
    servers = await start_cluster(tmp_path)
    try:
        async with connected(*servers, request_timeout=15.0) as transport:
            info = await transport.ensure_stream(StreamSpec(STREAM, SPEC.subjects, replicas=3))
            assert info.replicas == 3
            reader = await transport.reader(STREAM, (), FromEarliest())
            before = [append(transport, number, timeout=30.0) for number in range(500)]
            await asyncio.gather(*before)
            leader = next(server for server in servers if info.leader and server.folder.name == info.leader)
            under_way = [append(transport, number, timeout=30.0) for number in range(500, 1_000)]
            leader.kill()
            stored = await asyncio.gather(*under_way)
            assert len({one.sequence for one in stored}) == 500
            seen: list[int] = []
            async with asyncio.timeout(30):
                while len(seen) < 1_000:
                    seen += [int(record.data) for record in await reader.batch(1_000)]
            assert seen == list(range(1_000))
    finally:
        for server in servers:
            server.kill()
