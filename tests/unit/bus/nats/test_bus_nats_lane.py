"""The rules of a lane, one by one, and then all together against a server that misbehaves as it likes."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.bus.nats.client_frames import Sent
from tests.unit.bus.nats.fake_connection import FakeConnection, FakeJetStream
from tutti.bus.nats import lane
from tutti.bus.nats.appender import Appender
from tutti.bus.nats.lane import SYNCED_SECONDS, UNSYNCED_SECONDS, Lane
from tutti.bus.port import Stored
from tutti.errors import BusError, OutcomeUnknown, Refused
from tutti.limits import (
    APPEND_BATCH_MAX_COUNT,
    APPEND_FLIGHT_MAX_COUNT,
    APPEND_STALL_SECONDS,
    DUPLICATE_WINDOW_SECONDS,
)


class Road:
    """An appender with one lane, on a connection without a socket."""

    def __init__(self, *, synced: bool | None = True) -> None:
        self._futures: list[asyncio.Future[Stored]] = []
        self.connection = FakeConnection()
        self.appender = Appender(self.connection.as_connection(), FakeJetStream().as_jetstream())
        self.appender.synced = synced
        self.appender.learn("s", ("s.>",), atomic=True, duplicate_window=DUPLICATE_WINDOW_SECONDS)

    @property
    def lane(self) -> Lane:
        return self.appender._lanes["s"]

    def append(
        self, *numbers: int, subject: str = "s.a", identified: bool = True, expected: int | None = None
    ) -> list[asyncio.Future[Stored]]:
        futures = [
            self.appender.append(
                subject, {"Nats-Msg-Id": f"m{number}"} if identified else {}, b"%d" % number, 10.0, expected
            )
            for number in numbers
        ]
        self._futures += futures
        return futures

    async def sent(self) -> list[Sent]:
        await turn()
        return self.connection.sent()

    def store(self, message: Sent, sequence: int, *, duplicate: bool = False) -> None:
        word = ',"duplicate":true' if duplicate else ""
        self.connection.say(message.reply, f'{{"stream":"s","seq":{sequence}{word}}}'.encode())

    def refuse(self, message: Sent, code: int, status: int = 400) -> None:
        error = f'{{"error":{{"code":{status},"err_code":{code},"description":"no"}},"stream":"s","seq":0}}'
        self.connection.say(message.reply, error.encode())

    def nobody(self, message: Sent) -> None:
        self.connection.say(message.reply, status="503")

    async def close(self) -> None:
        self.connection.connected = False
        await self.appender.drain(0)
        for future in self._futures:
            future.exception()  # whatever a test did not ask about


async def turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def numbers(messages: list[Sent]) -> list[int]:
    return [int(message.data) for message in messages]


def errors(futures: list[asyncio.Future[Stored]]) -> list[type[BaseException] | None]:
    found = [future.exception() for future in futures]
    return [None if error is None else type(error) for error in found]


async def test_few_leave_at_once_one_by_one() -> None:
    road = Road()
    futures = road.append(0, 1, 2)
    sent = await road.sent()
    assert numbers(sent) == [0, 1, 2]
    assert all("Nats-Batch-Id" not in message.fields for message in sent)
    for number, message in enumerate(sent):
        road.store(message, 10 + number)
    assert [future.result() for future in futures] == [Stored("s", 10), Stored("s", 11), Stored("s", 12)]
    await road.close()


async def test_many_leave_as_a_batch_and_the_rest_waits_for_it() -> None:
    road = Road()
    futures = road.append(*range(APPEND_BATCH_MAX_COUNT + 20))
    batch = await road.sent()
    assert numbers(batch) == list(range(APPEND_BATCH_MAX_COUNT))
    assert len({message.fields["Nats-Batch-Id"] for message in batch}) == 1
    assert [int(message.fields["Nats-Batch-Sequence"]) for message in batch] == list(range(1, len(batch) + 1))
    assert [bool(message.reply) for message in batch] == [False] * (len(batch) - 1) + [True]
    assert batch[-1].fields["Nats-Batch-Commit"] == "1"
    assert await road.sent() == []
    road.store(batch[-1], 1_000)
    assert [future.result().sequence for future in futures[: len(batch)]] == list(range(1, len(batch) + 1))
    assert numbers(await road.sent()) == list(range(APPEND_BATCH_MAX_COUNT, APPEND_BATCH_MAX_COUNT + 20))
    await road.close()


async def test_a_server_that_does_not_sync_gets_no_batches() -> None:
    road = Road(synced=False)
    road.append(*range(APPEND_FLIGHT_MAX_COUNT + 5))
    sent = await road.sent()
    assert len(sent) == APPEND_FLIGHT_MAX_COUNT
    assert all(message.reply for message in sent)
    road.store(sent[0], 1)
    assert numbers(await road.sent()) == [APPEND_FLIGHT_MAX_COUNT]
    await road.close()


async def test_before_the_first_measurement_few_may_fly() -> None:
    road = Road(synced=None)
    road.append(*range(500))
    first = await road.sent()
    assert 8 <= len(first) < 100
    assert road.lane.cost == 0
    for number, message in enumerate(first):
        road.store(message, number + 1)
    assert 0 < road.lane.cost < SYNCED_SECONDS
    assert numbers(await road.sent()) == list(range(len(first), 500))
    await road.close()


async def test_a_slow_server_is_noticed() -> None:
    road = Road(synced=False)
    assert road.lane.cost == UNSYNCED_SECONDS
    for _ in range(20):
        road.append(*range(8))
        sent = await road.sent()
        road.lane._sample_from -= 0.01  # eight took ten milliseconds
        for message in sent:
            road.store(message, 1)
    assert road.lane.cost > SYNCED_SECONDS
    await road.close()


async def test_a_rejected_batch_goes_one_by_one_in_order_before_the_rest() -> None:
    road = Road()
    futures = road.append(*range(100))
    batch = await road.sent()
    more = road.append(100, 101)
    assert await road.sent() == []
    road.refuse(batch[-1], 10201)
    seen: list[int] = []
    sequence = 0
    while singles := await road.sent():
        assert all("Nats-Batch-Id" not in message.fields for message in singles)
        for message in singles:
            seen.append(int(message.data))
            sequence += 1
            road.store(message, sequence, duplicate=message.data == b"7")
    assert seen == list(range(102))
    assert [future.result().duplicate for future in futures] == [number == 7 for number in range(100)]
    assert all(future.done() for future in more)
    await road.close()


async def two_batches(road: Road) -> tuple[list[asyncio.Future[Stored]], list[Sent], list[Sent]]:
    """The first is under way, the second staged, and twenty more wait."""
    futures = road.append(*range(2 * APPEND_BATCH_MAX_COUNT + 20))
    sent = await road.sent()
    return futures, sent[:APPEND_BATCH_MAX_COUNT], sent[APPEND_BATCH_MAX_COUNT:]


async def test_the_next_full_batch_is_staged_and_committed_when_the_one_before_it_is_stored() -> None:
    road = Road()
    futures, first, staged = await two_batches(road)
    assert numbers(staged) == list(range(APPEND_BATCH_MAX_COUNT, 2 * APPEND_BATCH_MAX_COUNT - 1)), "all but the last"
    assert len({message.fields["Nats-Batch-Id"] for message in staged} - {first[0].fields["Nats-Batch-Id"]}) == 1
    assert not any(message.reply for message in staged)
    assert await road.sent() == []
    assert len(road.lane) == len(futures)
    road.store(first[-1], APPEND_BATCH_MAX_COUNT)
    commit, *rest = await road.sent()
    assert (rest, numbers([commit])) == ([], [2 * APPEND_BATCH_MAX_COUNT - 1])
    assert commit.fields["Nats-Batch-Id"] == staged[0].fields["Nats-Batch-Id"]
    assert commit.fields["Nats-Batch-Sequence"] == str(APPEND_BATCH_MAX_COUNT)
    assert commit.fields["Nats-Batch-Commit"] == "1"
    road.store(commit, 2 * APPEND_BATCH_MAX_COUNT)
    stored = [future.result().sequence for future in futures[: 2 * APPEND_BATCH_MAX_COUNT]]
    assert stored == list(range(1, 2 * APPEND_BATCH_MAX_COUNT + 1))
    assert numbers(await road.sent()) == list(range(2 * APPEND_BATCH_MAX_COUNT, len(futures)))
    await road.close()


async def test_what_is_staged_is_abandoned_and_stands_behind_a_rejected_batch() -> None:
    road = Road()
    _, first, staged = await two_batches(road)
    road.refuse(first[-1], 10201)
    abandoned, *again = await road.sent()
    assert abandoned.fields["Nats-Batch-Id"] == staged[0].fields["Nats-Batch-Id"]
    assert int(abandoned.fields["Nats-Batch-Sequence"]) > len(staged) + 1, "a hole, which ends the batch"
    assert not abandoned.reply
    seen: list[int] = []
    while again:
        seen += numbers(again)
        for message in again:
            if message.reply:
                road.store(message, len(seen))
        again = await road.sent()
    assert seen == list(range(2 * APPEND_BATCH_MAX_COUNT + 20))
    await road.close()


async def test_what_was_only_staged_is_refused_when_its_time_is_up() -> None:
    road = Road()
    futures, first, staged = await two_batches(road)
    road.lane.sweep(float("inf"))
    known = [OutcomeUnknown] * len(first) + [Refused] * (len(futures) - len(first))
    assert errors(futures) == known, "nothing of a batch without its last message is stored"
    assert len(staged) == APPEND_BATCH_MAX_COUNT - 1
    assert len(road.lane) == 0
    await road.close()


async def test_a_batch_that_the_server_forbids_to_stage_goes_one_by_one_behind_the_one_under_way() -> None:
    road = Road()
    first = road.append(*range(APPEND_BATCH_MAX_COUNT))
    forbidden = road.append(*range(APPEND_BATCH_MAX_COUNT, 2 * APPEND_BATCH_MAX_COUNT), subject="s.b")
    batch = (await road.sent())[:APPEND_BATCH_MAX_COUNT]
    road.connection.on_publish_denied[0]("s.b", "Permissions Violation")
    road.store(batch[-1], APPEND_BATCH_MAX_COUNT)
    assert first[-1].result().sequence == APPEND_BATCH_MAX_COUNT
    _, *singles = await road.sent()
    assert all("Nats-Batch-Id" not in message.fields for message in singles)
    road.connection.on_publish_denied[0]("s.b", "Permissions Violation")
    assert errors(forbidden[: len(singles)]) == [Refused] * len(singles)
    await road.close()


async def test_where_batches_are_not_allowed_none_is_tried_again() -> None:
    road = Road()
    road.append(*range(50))
    batch = await road.sent()
    road.refuse(batch[-1], 10174)
    await road.sent()
    assert road.lane.atomic is False
    await road.close()


async def test_a_condition_is_never_in_a_batch() -> None:
    road = Road()
    road.append(*range(50))
    road.append(50, expected=3)
    batch = await road.sent()
    assert numbers(batch) == list(range(50))
    road.store(batch[-1], 50)
    [alone] = await road.sent()
    assert alone.fields["Nats-Expected-Last-Subject-Sequence"] == "3"
    assert "Nats-Batch-Id" not in alone.fields
    await road.close()


async def test_a_lost_connection_sends_again_what_can_be_and_tells_of_the_rest() -> None:
    road = Road()
    futures = road.append(0)
    futures += road.append(1, identified=False)
    futures += road.append(2, expected=1)
    futures += road.append(3)
    assert len(await road.sent()) == 4
    road.connection.go_down()
    assert errors([futures[1], futures[2]]) == [OutcomeUnknown, OutcomeUnknown]
    assert await road.sent() == []
    road.connection.come_up()
    assert numbers(await road.sent()) == [0, 3]
    await road.close()


async def test_near_the_end_of_the_duplicate_window_nothing_is_sent_again() -> None:
    road = Road()
    [future] = road.append(0)
    await road.sent()
    for append in road.lane.all():
        append.first_sent -= DUPLICATE_WINDOW_SECONDS
    road.connection.go_down()
    assert errors([future]) == [OutcomeUnknown]
    await road.close()


async def test_a_silent_leader_is_asked_again() -> None:
    road = Road()
    futures = road.append(0, 1)
    first = await road.sent()
    road.lane.sweep(asyncio.get_running_loop().time() + APPEND_STALL_SECONDS + 0.1)
    second = await road.sent()
    assert numbers(second) == numbers(first) == [0, 1]
    road.store(second[0], 1, duplicate=True)
    road.store(second[1], 2)
    assert [future.result().sequence for future in futures] == [1, 2]
    await road.close()


async def test_without_a_leader_they_wait_and_go_again_in_order() -> None:
    road = Road()
    futures = road.append(0, 1, 2)
    for message in await road.sent():
        road.nobody(message)
    road.append(3)
    assert await road.sent() == []
    assert not any(future.done() for future in futures)
    road.lane._resume_at = 0.0
    road.lane.flush_soon()
    assert numbers(await road.sent()) == [0, 1, 2, 3]
    await road.close()


async def test_what_would_come_behind_a_later_one_is_refused() -> None:
    road = Road()
    futures = road.append(0, 1)
    first, second = await road.sent()
    road.nobody(first)
    road.store(second, 1)
    assert errors(futures) == [Refused, None]
    assert "a later message may have been stored" in str(futures[0].exception())
    await road.close()


async def test_a_copy_that_bounces_says_nothing_about_the_first() -> None:
    road = Road()
    [overtaken] = road.append(0)
    await road.sent()
    road.connection.go_down()
    road.connection.come_up()
    road.append(1)
    first, second = await road.sent()
    road.nobody(first)
    road.store(second, 2)
    assert errors([overtaken]) == [OutcomeUnknown]
    [expired] = road.append(2)
    await road.sent()
    road.connection.go_down()
    road.connection.come_up()
    road.nobody((await road.sent())[0])
    road.lane.sweep(asyncio.get_running_loop().time() + 100)
    assert errors([expired]) == [OutcomeUnknown]
    await road.close()


async def test_time_is_up_for_sent_and_unsent() -> None:
    road = Road()
    [sent] = road.append(0)
    await road.sent()
    road.connection.writable = False
    [unsent] = road.append(1)
    road.lane.sweep(asyncio.get_running_loop().time() + 100)
    assert errors([sent, unsent]) == [OutcomeUnknown, Refused]
    assert len(road.lane) == 0
    road.connection.writable = True
    assert await road.sent() == []
    await road.close()


async def test_what_the_server_forbids_is_refused_and_the_batch_around_it_goes_on() -> None:
    road = Road()
    futures = road.append(*range(30))
    await road.sent()
    road.connection.on_publish_denied[0]("s.a", "Permissions Violation")
    singles = await road.sent()
    assert numbers(singles) == list(range(len(singles)))
    road.connection.on_publish_denied[0]("s.a", "Permissions Violation")
    assert errors(futures[: len(singles)]) == [Refused] * len(singles)
    await road.close()


async def test_too_large_for_the_server_is_refused_without_asking_it() -> None:
    road = Road()
    future = road.appender.append("s.a", {}, b"x" * 200_000, 10.0, None)
    assert await road.sent() == []
    with pytest.raises(Refused, match="the server takes 100000"):
        await future
    await road.close()


class World:
    """A server with a memory for ids, and bad days. Its log is what the lane is judged by."""

    def __init__(self, road: Road) -> None:
        self.road = road
        self.log: list[int] = []
        self.leaderless = False
        self._inbound: list[Sent] = []
        self._staged: dict[str, list[Sent]] = {}

    def hear(self) -> None:
        self._inbound += self.road.connection.sent()

    def work(self, count: int, *, answer: bool = True) -> None:
        """Take the next messages; with `answer` False the replies are lost."""
        for message in self._inbound[:count]:
            self._take(message, answer=answer)
        del self._inbound[:count]

    def _take(self, message: Sent, *, answer: bool) -> None:
        if self.leaderless:
            self._staged.clear()
            if message.reply and answer:
                self.road.nobody(message)
            return
        if "Nats-Batch-Id" in message.fields:
            staged = self._staged.setdefault(message.fields["Nats-Batch-Id"], [])
            staged.append(message)
            if message.reply or len(staged) != int(message.fields["Nats-Batch-Sequence"]):
                del self._staged[message.fields["Nats-Batch-Id"]]
            if message.reply:
                self._commit(message, staged, answer=answer)
            return
        number = int(message.data)
        duplicate = number in self.log
        if not duplicate:
            self.log.append(number)
        if answer:
            self.road.store(message, self.log.index(number) + 1, duplicate=duplicate)

    def _commit(self, message: Sent, staged: list[Sent], *, answer: bool) -> None:
        whole = len(staged) == int(message.fields["Nats-Batch-Sequence"])
        fresh = whole and not any(int(one.data) in self.log for one in staged)
        if fresh:
            self.log += numbers(staged)
        if answer and fresh:
            self.road.store(message, len(self.log))
        elif answer:
            self.road.refuse(message, 10201 if whole else 10176)

    def stall(self, *, swallowed: bool) -> None:
        """No answer for long: what was sent died with a leader, or it is still there, and its second copy behind it."""
        if swallowed:
            self._inbound.clear()
            self._staged.clear()
        self.road.lane.sweep(asyncio.get_running_loop().time() + APPEND_STALL_SECONDS + 0.1)
        if not swallowed:
            self.leaderless = False
            self.work(len(self._inbound))

    def cut(self) -> None:
        """What is on the way, in either direction, is lost."""
        self._inbound.clear()
        self._staged.clear()
        self.road.connection.go_down()


STEPS = st.sampled_from(
    [
        "append",
        "append",
        "burst",
        "work",
        "work",
        "work some",
        "lose replies",
        "cut",
        "leader gone",
        "leader back",
        "swallowed",
        "slow",
    ]
)


@settings(max_examples=300)  # cheap, and the rules meet each other only in long stories
@example(steps=["append"] * 6 + ["leader gone", "work some", "leader back", "lose replies"], synced=False)
@example(steps=["burst", "lose replies", "leader gone", "work some"], synced=False)
@given(st.lists(STEPS, max_size=40), st.booleans())
def test_whatever_the_server_does_order_and_outcomes_are_true(steps: list[str], synced: bool) -> None:
    with patch.object(lane, "APPEND_BATCH_MAX_COUNT", 20):  # a burst is two batches: one under way, one staged
        asyncio.run(judge(steps, synced=synced))


async def judge(steps: list[str], *, synced: bool) -> None:
    road = Road(synced=synced)
    world = World(road)
    futures: list[asyncio.Future[Stored]] = []
    for step in steps:
        match step:
            case "append":
                futures += road.append(len(futures))
            case "burst":
                futures += road.append(*range(len(futures), len(futures) + 40))
            case "work":
                world.work(1_000)
            case "work some":
                world.work(5)
            case "lose replies":
                world.work(3, answer=False)
                world.cut()
                road.connection.come_up()
            case "cut":
                world.cut()
                road.connection.come_up()
            case "leader gone" | "leader back":
                world.leaderless = step == "leader gone"
            case "swallowed" | "slow":
                world.stall(swallowed=step == "swallowed")
        await turn()
        road.lane._resume_at = 0.0
        road.lane.flush_soon()
        await turn()
        world.hear()
    await settle(road, world, futures)
    assert world.log == sorted(world.log), "out of order"
    for number, future in enumerate(futures):
        outcome = future.exception() or future.result()
        if isinstance(outcome, Stored):
            assert world.log[outcome.sequence - 1] == number
        else:
            assert isinstance(outcome, BusError)
            assert not isinstance(outcome, Refused) or number not in world.log
    assert road.appender._bytes == 0
    await road.close()


async def settle(road: Road, world: World, futures: list[asyncio.Future[Stored]]) -> None:
    """The server is well again: everything comes to an end."""
    world.leaderless = False
    for _ in range(50):
        world.work(10_000)
        await turn()
        road.lane._resume_at = 0.0
        road.lane.flush_soon()
        await turn()
        world.hear()
        if all(future.done() for future in futures):
            return
    raise AssertionError(f"{sum(not future.done() for future in futures)} of {len(futures)} appends never ended")
