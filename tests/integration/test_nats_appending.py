"""Appending on real servers: in groups, refused in every way, and read by the ordinary client."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import nats
import pytest

from tests.integration.nats_server import NatsServer
from tutti.bus.nats import NatsOptions, NatsTransport, lane
from tutti.bus.port import FromEarliest, Record, Stored, StreamSpec
from tutti.errors import BusError, NotDurable, Refused, Unreachable
from tutti.limits import APPEND_BATCH_MAX_COUNT, APPEND_QUEUE_MAX_BYTES
from tutti.model.subjects import Layout

LAYOUT = Layout("t")
STREAM = LAYOUT.event_stream("log")
SUBJECT = "t.event.log.a"
SPEC = StreamSpec(STREAM, (LAYOUT.event_subjects("log"),))


@contextlib.asynccontextmanager
async def running(folder: Path, *, synced: bool = True, extra: str = "") -> AsyncIterator[NatsServer]:
    server = NatsServer(folder, synced=synced, extra=extra)
    await server.start()
    try:
        yield server
    finally:
        server.kill()


@contextlib.asynccontextmanager
async def connected(server: NatsServer, *, durable: bool = True) -> AsyncIterator[NatsTransport]:
    options = NatsOptions(urls=(server.url,), durable=durable, monitor_url=server.monitor_url)
    transport = NatsTransport(options, LAYOUT)
    await transport.start()
    try:
        yield transport
    finally:
        await transport.close()


def append(transport: NatsTransport, number: int) -> asyncio.Future[Stored]:
    return transport.append(SUBJECT, {"Nats-Msg-Id": f"m{number}"}, b"%d" % number, timeout=10.0)


async def read(transport: NatsTransport, count: int) -> list[Record]:
    reader = await transport.reader(STREAM, (), FromEarliest())
    records: list[Record] = []
    async with asyncio.timeout(10):
        while len(records) < count:
            records += await reader.batch(1_000)
    return records


def batches(records: list[Record]) -> int:
    return len({record.headers["Nats-Batch-Id"] for record in records if "Nats-Batch-Id" in record.headers})


async def test_what_waits_goes_in_groups_to_a_server_that_syncs(tmp_path: Path) -> None:
    async with running(tmp_path) as server, connected(server) as transport:
        await transport.ensure_stream(SPEC)
        alone = await append(transport, 0)
        stored = await asyncio.gather(*(append(transport, number) for number in range(1, 2_500)))
        assert [alone.sequence, *(one.sequence for one in stored)] == list(range(1, 2_501))
        records = await read(transport, 2_500)
        assert [int(record.data) for record in records] == list(range(2_500))
        assert "Nats-Batch-Id" not in records[0].headers
        assert 3 <= batches(records) <= 10


async def test_a_server_that_does_not_sync_gets_them_one_by_one(tmp_path: Path) -> None:
    async with running(tmp_path, synced=False) as server, connected(server, durable=False) as transport:
        await transport.ensure_stream(SPEC)
        await asyncio.gather(*(append(transport, number) for number in range(2_500)))
        records = await read(transport, 2_500)
        assert [int(record.data) for record in records] == list(range(2_500))
        assert batches(records) == 0


async def test_a_duplicate_in_a_group_changes_neither_order_nor_number(tmp_path: Path) -> None:
    async with running(tmp_path) as server, connected(server) as transport:
        await transport.ensure_stream(SPEC)
        first = await append(transport, 50)
        stored = await asyncio.gather(*(append(transport, number) for number in range(200)))
        assert stored[50] == Stored(STREAM, first.sequence, duplicate=True)
        assert sum(one.duplicate for one in stored) == 1
        expected = [50, *(number for number in range(200) if number != 50)]
        assert [int(record.data) for record in await read(transport, 200)] == expected


async def test_a_group_that_was_staged_behind_a_rejected_one_is_stored_behind_it(tmp_path: Path) -> None:
    async with running(tmp_path) as server, connected(server) as transport:
        await transport.ensure_stream(SPEC)
        first = await append(transport, 50)
        count = 3 * APPEND_BATCH_MAX_COUNT
        stored = await asyncio.gather(*(append(transport, number) for number in range(count)))
        assert [number for number, one in enumerate(stored) if one.duplicate] == [50]
        assert stored[50].sequence == first.sequence
        records = await read(transport, count)
        assert [int(record.data) for record in records] == [50, *(n for n in range(count) if n != 50)]
        assert batches(records) >= 2, "what was abandoned went in groups after all"


async def test_conditions_and_groups_keep_the_order_of_calls(tmp_path: Path) -> None:
    async with running(tmp_path) as server, connected(server) as transport:
        await transport.ensure_stream(SPEC)
        futures = [append(transport, number) for number in range(100)]
        futures.append(transport.append("t.event.log.b", {}, b"100", timeout=10.0, expected_last=0))
        futures += [append(transport, number) for number in range(101, 200)]
        stored = await asyncio.gather(*futures)
        assert [one.sequence for one in stored] == list(range(1, 201))


async def test_a_group_that_does_not_fit_is_stored_as_far_as_it_does(tmp_path: Path) -> None:
    async with running(tmp_path) as server, connected(server) as transport:
        await transport.ensure_stream(StreamSpec(STREAM, SPEC.subjects, max_bytes=20_000))
        outcomes = await asyncio.gather(
            *(transport.append(SUBJECT, {}, b"x" * 1_000, timeout=10.0) for _ in range(40)), return_exceptions=True
        )
        kept = [isinstance(outcome, Stored) for outcome in outcomes]
        assert 10 < sum(kept) < 25
        assert kept == sorted(kept, reverse=True)
        refusal = outcomes[-1]
        assert isinstance(refusal, Refused)
        assert "full" in refusal.hint


async def test_refusals_say_why(tmp_path: Path) -> None:
    async with running(tmp_path, extra="max_payload: 100KB") as server, connected(server) as transport:
        await transport.ensure_stream(StreamSpec(STREAM, SPEC.subjects, max_message_bytes=1_000))
        with pytest.raises(Refused, match="exceeds maximum allowed") as too_large:
            await transport.append(SUBJECT, {}, b"x" * 2_000, timeout=10.0)
        assert "max_message_bytes" in too_large.value.hint
        with pytest.raises(Refused, match="the server takes 102400"):
            await transport.append(SUBJECT, {}, b"x" * 200_000, timeout=10.0)
        with pytest.raises(Refused, match="nobody stores it") as nowhere:
            await transport.append("elsewhere.a", {}, b"", timeout=10.0)
        assert "ensure_stream" in nowhere.value.hint
        assert transport.status().reconnects == 0


async def test_the_queue_of_appends_has_an_end(tmp_path: Path) -> None:
    async with running(tmp_path) as server, connected(server) as transport:
        await transport.ensure_stream(SPEC)
        server.pause()
        piece = b"x" * 900_000
        count = APPEND_QUEUE_MAX_BYTES // len(piece) + 1
        futures = [transport.append(SUBJECT, {}, piece, timeout=0.2) for _ in range(count)]
        with pytest.raises(Refused, match="wait for the log already") as full:
            await futures[-1]
        assert "more slowly" in full.value.hint
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        server.resume()
        assert all(isinstance(outcome, BusError) for outcome in outcomes)
        assert (await append(transport, 1)).sequence > 0


async def test_the_ordinary_client_reads_what_we_write_and_we_read_what_it_writes(tmp_path: Path) -> None:
    async with running(tmp_path) as server, connected(server) as transport:
        await transport.ensure_stream(SPEC)
        headers = {"Nats-Msg-Id": "ours", "ce-id": "1", "x-unicode": "Größe"}
        await transport.append(SUBJECT, headers, b"ours", timeout=10.0)
        await asyncio.gather(*(append(transport, number) for number in range(100)))
        client = await nats.connect(server.url)
        try:
            stream = client.jetstream()
            ack = await stream.publish(SUBJECT, b"theirs", headers={"ce-id": "2", "Nats-Msg-Id": "theirs"})
            assert ack.seq == 102
            subscription = await stream.pull_subscribe("t.event.log.>", stream=STREAM)
            messages = [message for _ in range(2) for message in await subscription.fetch(51, timeout=5)]
        finally:
            await client.close()
        assert [message.data for message in messages] == [b"ours", *(b"%d" % n for n in range(100)), b"theirs"]
        assert messages[0].headers == headers
        records = await read(transport, 102)
        assert records[-1].data == b"theirs"
        assert records[-1].headers == {"ce-id": "2", "Nats-Msg-Id": "theirs"}
        assert [record.data for record in records] == [message.data for message in messages]


async def test_the_measured_cost_decides_when_nobody_tells_how_the_server_syncs(tmp_path: Path) -> None:
    async with running(tmp_path, synced=False) as server:
        transport = NatsTransport(NatsOptions(urls=(server.url,), durable=False), LAYOUT)
        await transport.start()
        try:
            assert transport.status().synced is None
            await transport.ensure_stream(SPEC)
            for start in range(0, 6_000, 2_000):
                await asyncio.gather(*(append(transport, number) for number in range(start, start + 2_000)))
            records = await read(transport, 6_000)
            assert [int(record.data) for record in records] == list(range(6_000))
            measured = next(iter(transport._appender._lanes.values())).cost
            assert 0 < measured < lane.SYNCED_SECONDS
        finally:
            await transport.close()


async def test_durable_work_needs_a_server_that_syncs(tmp_path: Path) -> None:
    async with running(tmp_path, synced=False) as server:
        options = NatsOptions(urls=(server.url,), monitor_url=server.monitor_url)
        with pytest.raises(NotDurable, match="before they are on its disk") as unsynced:
            await NatsTransport(options, LAYOUT).start()
        assert "sync_interval: always" in unsynced.value.hint
        with pytest.raises(NotDurable, match="is not known") as unknown:
            await NatsTransport(NatsOptions(urls=(server.url,)), LAYOUT).start()
        for way in ("monitor_url", "synced=True", "durable=False"):
            assert way in unknown.value.hint
        with pytest.raises(Unreachable, match="monitoring URL"):
            await NatsTransport(NatsOptions(urls=(server.url,), monitor_url=server.url), LAYOUT).start()
        trusted = NatsTransport(NatsOptions(urls=(server.url,), synced=True), LAYOUT)
        await trusted.start()
        assert trusted.status().synced is True
        await trusted.close()


async def test_the_monitoring_url_must_be_that_servers(tmp_path: Path) -> None:
    async with running(tmp_path / "one") as one, running(tmp_path / "other") as other:
        options = NatsOptions(urls=(one.url,), monitor_url=other.monitor_url)
        with pytest.raises(NotDurable, match="belongs to the server"):
            await NatsTransport(options, LAYOUT).start()


async def test_one_server_keeps_one_copy_where_three_were_wanted(tmp_path: Path) -> None:
    async with running(tmp_path) as server, connected(server) as transport:
        info = await transport.ensure_stream(StreamSpec(STREAM, SPEC.subjects, replicas=3))
        assert info.replicas == 1
        assert (await transport.ensure_stream(StreamSpec(STREAM, SPEC.subjects, replicas=3))).replicas == 1
