"""What the memory transport has beyond the contract: faults, a clock that tests move, and rest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tutti.bus.memory import MemoryCluster, MemoryTransport
from tutti.bus.port import FromEarliest, FromLatest, Reader, StreamSpec, Transport
from tutti.errors import Conflict, Gone, OutcomeUnknown, Refused, Unreachable
from tutti.model.subjects import Layout
from tutti.testing.clock import ManualClock

LAYOUT = Layout("unit")
LOG = LAYOUT.event_stream("log")
A = LAYOUT.event("log", "A", "_", "0", ())
B = LAYOUT.event("log", "B", "_", "0", ())
JOB = LAYOUT.queue("jobs", "T")

Connect = Callable[[], Awaitable[MemoryTransport]]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def cluster(clock: ManualClock) -> MemoryCluster:
    return MemoryCluster(clock=clock, silence=30.0)


@pytest.fixture
async def connect(cluster: MemoryCluster) -> AsyncIterator[Connect]:
    transports: list[MemoryTransport] = []

    async def connected() -> MemoryTransport:
        transport = MemoryTransport(LAYOUT, cluster=cluster)
        await transport.start()
        await transport.ensure_stream(StreamSpec(LOG, (LAYOUT.event_subjects("log"),)))
        await transport.ensure_stream(StreamSpec(LAYOUT.queue_stream, (LAYOUT.queue_subjects,), queue=True))
        await transport.ensure_stream(StreamSpec(LAYOUT.state_stream, (LAYOUT.state_subjects,), last_per_subject=True))
        transports.append(transport)
        return transport

    yield connected
    for transport in transports:
        await transport.close()


async def data_of(reader: Reader, count: int) -> list[bytes]:
    return [record.data for record in await reader.batch(count, wait=0.0)]


async def woken() -> None:
    """Let everything that is able to run do so."""
    for _ in range(10):
        await asyncio.sleep(0)


def test_it_is_a_transport() -> None:
    transport: Transport = MemoryTransport(LAYOUT)
    assert not transport.status().connected


async def test_before_start_it_refuses() -> None:
    transport = MemoryTransport(LAYOUT)
    with pytest.raises(Refused, match="not started"):
        await transport.append(A, {}, b"", timeout=1.0)
    with pytest.raises(Unreachable, match="not started"):
        await transport.stream_names()


async def test_a_closed_one_cannot_be_started_again() -> None:
    transport = MemoryTransport(LAYOUT)
    await transport.start()
    await transport.close()
    with pytest.raises(Unreachable, match="closed"):
        await transport.start()


# The servers are gone


async def test_appends_wait_for_the_servers_and_keep_their_order(connect: Connect, cluster: MemoryCluster) -> None:
    transport = await connect()
    cluster.stop()
    assert not transport.status().connected
    appends = [transport.append(A, {}, b"%d" % n, timeout=5.0) for n in range(3)]
    appends[1].cancel()
    await woken()
    assert not appends[0].done()
    cluster.start()
    appends.append(transport.append(A, {}, b"3", timeout=5.0))
    assert [(await append).sequence for append in (appends[0], appends[2], appends[3])] == [1, 3, 4]
    reader = await transport.reader(LOG, (), FromEarliest())
    assert await data_of(reader, 10) == [b"0", b"1", b"2", b"3"]
    assert transport.status().reconnects == 1


async def test_an_append_that_waited_in_vain_is_not_stored(
    connect: Connect, cluster: MemoryCluster, clock: ManualClock
) -> None:
    transport = await connect()
    cluster.stop()
    short = transport.append(A, {}, b"short", timeout=1.0)
    long = transport.append(A, {}, b"long", timeout=60.0)
    clock.advance(1.0)
    with pytest.raises(Refused, match=r"within 1\.0 s"):
        await short
    cluster.start()
    await long
    assert await data_of(await transport.reader(LOG, (), FromEarliest()), 10) == [b"long"]


async def test_closing_refuses_what_still_waits(connect: Connect, cluster: MemoryCluster) -> None:
    transport = await connect()
    cluster.stop()
    waiting = transport.append(A, {}, b"", timeout=5.0)
    await transport.close()
    with pytest.raises(Refused, match="closed"):
        await waiting
    cluster.start()
    assert await (await connect()).fetch(LOG, 1) is None


async def test_requests_wait_and_give_up(connect: Connect, cluster: MemoryCluster, clock: ManualClock) -> None:
    transport = await connect()
    await transport.append(A, {}, b"", timeout=1.0)
    cluster.stop()
    patient = asyncio.create_task(transport.fetch(LOG, 1))
    await woken()
    cluster.start()
    assert await patient is not None
    cluster.stop()
    hopeless = asyncio.create_task(transport.fetch(LOG, 1))
    await woken()
    clock.advance(cluster.request_timeout)
    with pytest.raises(Unreachable):
        await hopeless
    cluster.start()


async def test_readers_and_takers_hear_nothing_and_resume(
    connect: Connect, cluster: MemoryCluster, clock: ManualClock
) -> None:
    cut, other = await connect(), await connect()
    reader = await cut.reader(LOG, (), FromLatest())
    cut.cut()
    await other.append(A, {}, b"a", timeout=1.0)
    await other.append(JOB, {}, b"job", timeout=1.0)
    assert await data_of(reader, 1) == []
    assert list(await cut.take("jobs", wait=0.0)) == []
    reading = asyncio.create_task(reader.batch(1))
    taking = asyncio.create_task(cut.take("jobs"))
    await woken()
    assert not reading.done()
    cut.mend()
    assert [record.data for record in await reading] == [b"a"]
    assert [message.record.data for message in await taking] == [b"job"]


async def test_who_is_cut_off_hears_nothing_on_the_wire(connect: Connect) -> None:
    cut, other = await connect(), await connect()
    listeners = [await transport.listen("unit.control.a", group="g") for transport in (cut, other)]
    cut.cut()
    for n in range(4):
        other.emit("unit.control.a", {}, b"%d" % n)
    cut.emit("unit.control.a", {}, b"lost")
    assert not listeners[0].unread
    assert [(await anext(aiter(listeners[1]))).data for _ in range(4)] == [b"0", b"1", b"2", b"3"]


# Single faults


async def test_a_full_stream_refuses(connect: Connect, cluster: MemoryCluster) -> None:
    transport = await connect()
    cluster.full.add(LOG)
    with pytest.raises(Refused, match="full"):
        await transport.append(A, {}, b"", timeout=1.0)
    cluster.full.clear()
    assert (await transport.append(A, {}, b"", timeout=1.0)).sequence == 1


async def test_a_lost_acknowledgement_leaves_the_outcome_unknown(connect: Connect, cluster: MemoryCluster) -> None:
    transport = await connect()
    cluster.lose_acknowledgements()
    with pytest.raises(OutcomeUnknown):
        await transport.append(A, {"Nats-Msg-Id": "m"}, b"", timeout=1.0)
    again = await transport.append(A, {"Nats-Msg-Id": "m"}, b"", timeout=1.0)
    assert (again.sequence, again.duplicate) == (1, True)
    cluster.lose_acknowledgements()
    with pytest.raises(OutcomeUnknown):
        await transport.state_put("a", b"1", expected=0)
    with pytest.raises(Conflict):
        await transport.state_put("a", b"1", expected=0)


async def test_a_lost_record_is_passed_over_in_silence(connect: Connect, cluster: MemoryCluster) -> None:
    transport = await connect()
    reader = await transport.reader(LOG, (), FromEarliest())
    for n in range(3):
        await transport.append(A, {}, b"%d" % n, timeout=1.0)
    assert cluster.lose(LOG, 2)
    assert not cluster.lose(LOG, 2)
    assert await data_of(reader, 10) == [b"0", b"2"]


async def test_a_removed_record_is_told_in_its_place_and_once(connect: Connect) -> None:
    transport = await connect()
    reader = await transport.reader(LOG, (A,), FromEarliest())
    for n in range(8):
        await transport.append(B if n == 5 else A, {}, b"%d" % n, timeout=1.0)
    for sequence in (6, 4, 3, 8):
        await transport.remove(LOG, sequence)
    assert await reader.horizon() == 0
    assert await data_of(reader, 10) == [b"0", b"1"]
    assert await reader.horizon() == 2
    with pytest.raises(Gone, match="2 records between 3 and 4"):
        await reader.batch(10)
    assert await data_of(reader, 10) == [b"4", b"6"]
    with pytest.raises(Gone, match="1 records between 8 and 8"):
        await reader.batch(10)
    assert await data_of(reader, 10) == []
    assert await reader.horizon() == 8


async def test_purge_wakes_a_waiting_reader_only_if_it_lost_something(connect: Connect) -> None:
    transport = await connect()
    reader = await transport.reader(LOG, (B,), FromEarliest())
    waiting = asyncio.create_task(reader.batch(1))
    await woken()
    await transport.append(A, {}, b"", timeout=1.0)
    assert await transport.purge(LOG, below=2) == 1
    await woken()
    assert not waiting.done()
    await transport.append(B, {}, b"b", timeout=1.0)
    assert [record.data for record in await waiting] == [b"b"]


# Time


async def test_the_silence_limit_runs_by_the_clock(connect: Connect, clock: ManualClock) -> None:
    one, other = await connect(), await connect()
    await one.append(JOB, {}, b"job", timeout=1.0)
    [message] = await one.take("jobs")
    clock.advance(29.0)
    await message.working()
    clock.advance(29.0)
    assert list(await other.take("jobs", wait=0.0)) == []
    waiting = asyncio.create_task(other.take("jobs"))
    await woken()
    clock.advance(1.0)
    [again] = await waiting
    assert again.attempt == 2
    # The first holder has lost it: what it says now changes nothing, except that it is done.
    await message.working()
    await message.hand_back()
    assert list(await one.take("jobs", wait=0.0)) == []
    await message.settle()
    clock.advance(60.0)
    assert list(await one.take("jobs", wait=0.0)) == []


async def test_a_delay_runs_by_the_clock(connect: Connect, clock: ManualClock) -> None:
    transport = await connect()
    await transport.append(JOB, {}, b"job", timeout=1.0)
    [message] = await transport.take("jobs")
    await message.hand_back(delay=90.0)
    clock.advance(89.0)
    assert list(await transport.take("jobs", wait=0.0)) == []
    clock.advance(1.0)
    assert [again.attempt for again in await transport.take("jobs", wait=0.0)] == [2]


async def test_the_duplicate_window_runs_by_the_clock(connect: Connect, clock: ManualClock) -> None:
    transport = await connect()
    for seconds, duplicate in ((0.0, False), (119.0, True), (1.0, False), (119.0, True)):
        clock.advance(seconds)
        stored = await transport.append(A, {"Nats-Msg-Id": "m"}, b"", timeout=1.0)
        assert stored.duplicate is duplicate


async def test_waiting_ends_by_the_clock(connect: Connect, clock: ManualClock) -> None:
    transport = await connect()
    reader = await transport.reader(LOG, (), FromEarliest())
    waiting = [asyncio.create_task(reader.batch(1, wait=5.0)), asyncio.create_task(transport.take("jobs", wait=5.0))]
    await woken()
    clock.advance(4.9)
    await woken()
    assert not any(task.done() for task in waiting)
    clock.advance(0.1)
    assert [list(await task) for task in waiting] == [[], []]


async def test_records_carry_the_clocks_time(connect: Connect, clock: ManualClock) -> None:
    transport = await connect()
    await transport.append(A, {}, b"", timeout=1.0)
    clock.advance(60.0)
    await transport.append(A, {}, b"", timeout=1.0)
    records = [await transport.fetch(LOG, sequence) for sequence in (1, 2)]
    assert [record.stored_at - clock.wall() for record in records if record] == [-60.0, 0.0]


# Rest


async def test_settled_waits_for_readers(connect: Connect, cluster: MemoryCluster) -> None:
    transport = await connect()
    reader = await transport.reader(LOG, (A,), FromEarliest())
    await transport.append(B, {}, b"", timeout=1.0)
    assert cluster.idle()
    await transport.append(A, {}, b"", timeout=1.0)
    await transport.append(A, {}, b"", timeout=1.0)
    settled = asyncio.create_task(cluster.settled())
    await reader.batch(1)
    await woken()
    assert not settled.done()
    await reader.batch(1)
    await settled
    await transport.append(A, {}, b"", timeout=1.0)
    assert not cluster.idle()
    await reader.close()
    assert cluster.idle()


async def test_settled_waits_for_queues_that_somebody_takes_from(
    connect: Connect, cluster: MemoryCluster, clock: ManualClock
) -> None:
    transport = await connect()
    await transport.append(JOB, {}, b"", timeout=1.0)
    assert cluster.idle()  # nobody will ever take it
    [message] = await transport.take("jobs")
    assert cluster.idle()  # its taker has it
    await message.hand_back(delay=5.0)
    settled = asyncio.create_task(cluster.settled())
    await woken()
    assert not settled.done()
    clock.advance(5.0)
    [again] = await transport.take("jobs")
    await settled
    await again.settle()
    assert cluster.idle()


async def test_settled_waits_for_the_wire_and_for_appends(connect: Connect, cluster: MemoryCluster) -> None:
    transport = await connect()
    listener = await transport.listen("unit.control.a")
    transport.emit("unit.control.a", {}, b"")
    assert not cluster.idle()
    await anext(aiter(listener))
    assert cluster.idle()
    cluster.stop()
    waiting = transport.append(A, {}, b"", timeout=1.0)
    assert not cluster.idle()
    cluster.start()
    assert cluster.idle()
    await waiting


async def test_a_publisher_that_never_pauses_starves_nobody(connect: Connect) -> None:
    transport = await connect()
    stop = asyncio.Event()
    asyncio.get_running_loop().call_soon(asyncio.get_running_loop().call_soon, stop.set)
    count = 0
    while not stop.is_set():
        await transport.append(A, {}, b"", timeout=1.0)
        count += 1
        assert count < 100


async def test_clusters_are_separate_worlds() -> None:
    transports = [MemoryTransport(LAYOUT), MemoryTransport(LAYOUT)]
    for transport in transports:
        await transport.start()
        await transport.ensure_stream(StreamSpec(LOG, (LAYOUT.event_subjects("log"),)))
    await transports[0].append(A, {}, b"", timeout=1.0)
    assert await transports[0].fetch(LOG, 1) is not None
    assert await transports[1].fetch(LOG, 1) is None
    for transport in transports:
        await transport.close()


async def test_a_stream_cannot_become_a_queue(connect: Connect) -> None:
    transport = await connect()
    with pytest.raises(Refused, match="queue"):
        await transport.ensure_stream(StreamSpec(LOG, (LAYOUT.event_subjects("log"),), queue=True))


@pytest.mark.parametrize(
    ("some", "others", "meet"),
    [
        (("a.>",), ("a.b",), True),
        (("a.>",), ("a",), False),
        (("a.*",), ("*.b",), True),
        (("a.*",), ("a.b.c",), False),
        (("a.*.c",), ("a.b.>",), True),
        (("a.b", "x.>"), ("a.c", "x"), False),
        ((">",), ("x",), True),
    ],
)
async def test_streams_whose_subjects_meet_are_refused(
    some: tuple[str, ...], others: tuple[str, ...], meet: bool
) -> None:
    transport = MemoryTransport(LAYOUT)
    await transport.start()
    await transport.ensure_stream(StreamSpec("one", some))
    if meet:
        with pytest.raises(Refused, match="share"):
            await transport.ensure_stream(StreamSpec("two", others))
    else:
        assert (await transport.ensure_stream(StreamSpec("two", others))).name == "two"
    await transport.close()
