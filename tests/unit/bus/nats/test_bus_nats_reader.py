"""A reader against a consumer that loses records, falls silent and disappears, and a log that is purged under it."""

from __future__ import annotations

import asyncio
from typing import cast

import msgspec
import pytest

from tests.unit.bus.nats.fake_connection import FakeConnection
from tutti.bus.nats import reader as reader_module
from tutti.bus.nats.jetstream import (
    ConsumerConfig,
    ConsumerReply,
    Delivered,
    JetStream,
    Pull,
    StreamConfig,
    StreamReply,
    StreamState,
)
from tutti.bus.nats.reader import NatsReader
from tutti.bus.port import FromEarliest, FromLatest, FromSequence, FromTime, Record, Start
from tutti.errors import BusError, Gone, NoReply
from tutti.limits import READER_PREFETCH_MAX_COUNT


class Log:
    """A stream, and consumers of it that deliver when told to."""

    def __init__(self, last: int = 0) -> None:
        self.connection = FakeConnection()
        self.first = 1
        self.last = last
        self.replacing = False
        self.exists = True
        self.troubles: list[BusError] = []
        self.consumers: list[ConsumerConfig] = []
        self.infos = 0
        self._delivered = 0

    async def reader(self, start: Start | None = None, *subjects: str) -> NatsReader:
        made = NatsReader(self.connection.as_connection(), cast("JetStream", self), "s", subjects)
        await made.open(start or FromEarliest())
        return made

    # JetStream

    async def stream(self, name: str) -> StreamReply | None:
        assert name == "s"
        self.infos += 1
        if self.troubles:
            raise self.troubles.pop()
        config = StreamConfig(name="s", max_msgs_per_subject=1 if self.replacing else -1)
        count = max(0, self.last - self.first + 1)
        return StreamReply(config, StreamState(count, 0, self.first, self.last)) if self.exists else None

    async def create_consumer(self, stream: str, config: ConsumerConfig) -> ConsumerReply:
        assert stream == "s"
        self.consumers.append(config)
        self._delivered = 0
        return ConsumerReply(config.name)

    async def ask(self, verb: str, body: object, answer: type[ConsumerReply]) -> ConsumerReply:
        del body, answer
        assert verb == f"CONSUMER.INFO.s.{self.consumers[-1].name}"
        return ConsumerReply(self.consumers[-1].name, 0, Delivered(self._delivered, 0))

    # The consumer

    def pulls(self) -> list[Pull]:
        sent = [one for one in self.connection.sent() if "MSG.NEXT" in one.subject]
        return [msgspec.json.decode(one.data, type=Pull) for one in sent]

    @property
    def inbox(self) -> str:
        return list(self.connection.subscriptions.values())[-1].subject

    def deliver(self, *sequences: int, pending: int = 1, subject: str = "a", lose: bool = False) -> None:
        for sequence in sequences:
            self._delivered += 1
            if not lose:
                place = f"$JS.ACK.s.c.1.{sequence}.{self._delivered}.1700000000000000000.{pending}"
                self.connection.deliver(self.inbox, subject, b"%d" % sequence, place)

    def status(self, status: str, **fields: str) -> None:
        self.connection.say(self.inbox, b"", status=status, **fields)


def sequences(records: object) -> list[int]:
    return [record.sequence for record in cast("list[Record]", records)]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "READER_HEARTBEAT_SECONDS", 0.02)
    monkeypatch.setattr(reader_module, "_RETRY_SECONDS", 0.0)


@pytest.mark.parametrize(
    ("start", "policy", "sequence"),
    [
        (FromEarliest(), "by_start_sequence", 3),
        (FromLatest(), "by_start_sequence", 11),
        (FromSequence(7), "by_start_sequence", 7),
        (FromSequence(1), "by_start_sequence", 3),
        (FromSequence(20), "by_start_sequence", 20),
        (FromTime(0.0), "by_start_time", 0),
    ],
)
async def test_where_the_consumer_starts(start: Start, policy: str, sequence: int) -> None:
    log = Log(last=10)
    log.first = 3
    await log.reader(start, "a", "b.>")
    [config] = log.consumers
    assert (config.deliver_policy, config.opt_start_seq) == (policy, sequence)
    assert (config.ack_policy, config.mem_storage, config.filter_subjects) == ("none", True, ("a", "b.>"))
    assert config.opt_start_time == ("1970-01-01T00:00:00Z" if policy == "by_start_time" else "")


async def test_nothing_is_asked_before_somebody_wants_it_and_two_pulls_then() -> None:
    log = Log(last=1_000)
    reader = await log.reader()
    assert log.pulls() == []
    assert list(await reader.batch(500, wait=0)) == []
    first, second = log.pulls()
    assert first == second
    assert first.idle_heartbeat > 0
    assert first.max_bytes > 0
    log.deliver(*range(1, first.batch + 1))
    assert sequences(await reader.batch(500)) == list(range(1, 501))
    assert log.pulls() == []
    assert sequences(await reader.batch(first.batch)) == list(range(501, first.batch + 1))
    assert len(log.pulls()) == 1


async def test_the_prefetch_has_an_end() -> None:
    log = Log(last=1)
    reader = await log.reader()
    await reader.batch(1_000_000, wait=0)
    assert sum(pull.batch for pull in log.pulls()) <= READER_PREFETCH_MAX_COUNT


async def test_a_gap_in_the_numbering_makes_a_new_consumer_behind_the_last_record() -> None:
    log = Log(last=10)
    reader = await log.reader()
    await reader.batch(10, wait=0)
    log.deliver(1, 2)
    log.deliver(3, lose=True)
    log.deliver(4, 5)
    assert sequences(await reader.batch(10)) == [1, 2]
    assert list(await reader.batch(10, wait=0.01)) == []
    assert [config.opt_start_seq for config in log.consumers] == [1, 3]
    log.deliver(3, 4)
    assert sequences(await reader.batch(10)) == [3, 4]


async def test_a_heartbeat_tells_what_was_lost_at_the_end() -> None:
    log = Log(last=10)
    reader = await log.reader()
    await reader.batch(10, wait=0)
    log.deliver(1)
    log.deliver(2, lose=True)
    log.status("100 Idle Heartbeat", Nats_Last_Consumer="2")
    assert sequences(await reader.batch(10)) == [1]
    assert list(await reader.batch(10, wait=0.01)) == []
    assert log.consumers[-1].opt_start_seq == 2


@pytest.mark.usefixtures("impatient")
async def test_silence_makes_a_new_consumer() -> None:
    log = Log(last=10)
    reader = await log.reader()
    assert list(await reader.batch(10, wait=0.2)) == []
    assert len(log.consumers) >= 2


@pytest.mark.usefixtures("impatient")
async def test_heartbeats_keep_the_consumer() -> None:
    log = Log(last=10)
    reader = await log.reader()
    waiting = asyncio.create_task(reader.batch(10, wait=0.2))
    while not waiting.done():
        log.status("100 Idle Heartbeat", Nats_Last_Consumer="0")
        await asyncio.sleep(0.01)
    assert len(log.consumers) == 1


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("status", ["409 Consumer Deleted", "409 Leadership Change", "409 Server Shutdown", "503"])
async def test_a_consumer_that_is_gone_is_made_again_also_after_trouble(status: str) -> None:
    log = Log(last=10)
    reader = await log.reader()
    await reader.batch(10, wait=0)
    log.deliver(1, 2, 3)
    log.status(status)
    assert sequences(await reader.batch(10)) == [1, 2, 3]
    log.troubles = [NoReply("no leader", hint="wait"), NoReply("no leader", hint="wait")]
    assert list(await reader.batch(10, wait=0.1)) == []
    assert log.consumers[-1].opt_start_seq == 4


async def test_a_lost_connection_makes_a_new_consumer_and_keeps_what_had_come() -> None:
    log = Log(last=10)
    reader = await log.reader()
    await reader.batch(10, wait=0)
    log.deliver(1, 2, 3)
    log.connection.go_down()
    assert sequences(await reader.batch(2)) == [1, 2]
    log.connection.come_up()
    assert sequences(await reader.batch(2)) == [3]
    assert list(await reader.batch(10, wait=0.01)) == []
    assert log.consumers[-1].opt_start_seq == 4


async def test_pulls_that_run_out_are_asked_for_again() -> None:
    log = Log(last=0)
    reader = await log.reader()
    await reader.batch(10, wait=0)
    for pull in log.pulls():
        log.status("408 Request Timeout", Nats_Pending_Messages=str(pull.batch))
    await reader.batch(10, wait=0)
    assert len(log.pulls()) == 2
    assert len(log.consumers) == 1


async def test_a_pull_that_is_full_in_bytes_is_no_trouble() -> None:
    log = Log(last=100)
    reader = await log.reader()
    await reader.batch(10, wait=0)
    pull = log.pulls()[0]
    log.deliver(1, 2)
    log.status("409 Message Size Exceeds MaxBytes", Nats_Pending_Messages=str(pull.batch - 2))
    assert sequences(await reader.batch(10)) == [1, 2]
    assert len(log.pulls()) == 1
    assert len(log.consumers) == 1


async def test_a_purge_under_the_reader_is_gone_once_then_it_goes_on() -> None:
    log = Log(last=10)
    reader = await log.reader(FromEarliest(), "a")
    await reader.batch(10, wait=0)
    log.deliver(1)
    assert sequences(await reader.batch(10)) == [1]
    log.first = 8
    log.deliver(8, 9)
    with pytest.raises(Gone, match="2 to 7 were removed"):
        await reader.batch(10)
    assert sequences(await reader.batch(10)) == [8, 9]


async def test_jumps_over_what_does_not_match_cost_one_question_for_all_that_had_come() -> None:
    log = Log(last=100)
    reader = await log.reader(FromEarliest(), "a")
    await reader.batch(10, wait=0)
    before = log.infos
    log.deliver(2, 4, 6, 8, 20)
    assert sequences(await reader.batch(3)) == [2, 4, 6]
    assert sequences(await reader.batch(3)) == [8, 20]
    assert log.infos == before + 1


async def test_who_follows_the_end_is_asked_nothing() -> None:
    log = Log(last=3)
    reader = await log.reader(FromEarliest(), "a")
    await reader.batch(10, wait=0)
    log.deliver(1, pending=0)
    assert sequences(await reader.batch(3)) == [1]
    before = log.infos
    log.deliver(9, pending=0)
    assert sequences(await reader.batch(3)) == [9]
    assert log.infos == before


async def test_where_records_are_replaced_nothing_is_gone() -> None:
    log = Log(last=10)
    log.replacing = True
    reader = await log.reader()
    await reader.batch(10, wait=0)
    log.deliver(1)
    log.first = 9
    log.deliver(9, 10)
    assert sequences(await reader.batch(10)) == [1, 9, 10]


async def test_a_log_that_was_made_anew_is_gone() -> None:
    log = Log(last=10)
    reader = await log.reader()
    await reader.batch(10, wait=0)
    log.deliver(1, 2, 3)
    await reader.batch(10)
    log.last = 1
    log.connection.go_down()
    log.connection.come_up()
    with pytest.raises(Gone, match="3 was read already"):
        await reader.batch(10)
    assert list(await reader.batch(10, wait=0.01)) == []
    assert log.consumers[-1].opt_start_seq == 1
    log.exists = False
    log.connection.go_down()
    log.connection.come_up()
    with pytest.raises(Gone, match="there is no stream"):
        await reader.batch(10)


async def test_filters_that_overlap_are_widened_and_looked_at_again() -> None:
    log = Log(last=10)
    reader = await log.reader(FromEarliest(), "a.*", "*.b")
    assert log.consumers[0].filter_subjects == ("*.*",)
    await reader.batch(10, wait=0)
    for sequence, subject in enumerate(("a.b", "c.c", "c.b", "a.c"), 1):
        log.deliver(sequence, subject=subject)
    assert [(record.sequence, record.subject) for record in await reader.batch(10)] == [
        (1, "a.b"),
        (3, "c.b"),
        (4, "a.c"),
    ]


async def test_the_horizon_moves_with_the_stream_when_nothing_is_pending() -> None:
    log = Log(last=10)
    reader = await log.reader(FromEarliest(), "a")
    assert await reader.horizon() == 10
    log.last = 20
    await reader.batch(10, wait=0)
    log.deliver(15)
    assert await reader.horizon() == 10
    await reader.batch(10)
    assert await reader.horizon() == 20


async def test_a_closed_reader_says_so_and_lets_go() -> None:
    log = Log(last=10)
    reader = await log.reader()
    waiting = asyncio.create_task(reader.batch(1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await reader.close()
    await reader.close()
    with pytest.raises(BusError, match="closed"):
        await waiting
    with pytest.raises(BusError, match="closed"):
        await reader.horizon()
    assert log.connection.subscriptions == {}
    assert log.connection.on_down == []


async def test_a_reader_closed_while_the_servers_are_away_ends_at_once() -> None:
    log = Log(last=10)
    reader = await log.reader()
    away = asyncio.Event()

    async def wait_up(timeout: float) -> None:
        del timeout
        away.set()
        await asyncio.Event().wait()

    log.connection.wait_up = wait_up  # type: ignore[method-assign]  # servers that stay away
    log.connection.connected = False
    for callback in log.connection.on_down:
        callback()
    waiting = asyncio.create_task(reader.batch(1))
    await asyncio.wait_for(away.wait(), 5)
    await reader.close()
    with pytest.raises(BusError, match="closed"):
        await asyncio.wait_for(waiting, 5)
    assert len(log.consumers) == 1


async def test_a_reader_closed_while_it_gets_a_new_consumer_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(last=10)
    reader = await log.reader()
    asked, answered = asyncio.Event(), asyncio.Event()
    create = log.create_consumer

    async def slowly(stream: str, config: ConsumerConfig) -> ConsumerReply:
        asked.set()
        await answered.wait()
        return await create(stream, config)

    monkeypatch.setattr(log, "create_consumer", slowly)
    for callback in log.connection.on_down:
        callback()
    waiting = asyncio.create_task(reader.batch(1))
    await asyncio.wait_for(asked.wait(), 5)
    await reader.close()
    answered.set()
    with pytest.raises(BusError, match="closed"):
        await asyncio.wait_for(waiting, 5)
    assert log.connection.subscriptions == {}
