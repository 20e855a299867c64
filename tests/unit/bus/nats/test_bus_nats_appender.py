from __future__ import annotations

import asyncio

import pytest

from tests.unit.bus.nats.fake_connection import FakeConnection, FakeJetStream
from tutti.bus.nats import appender as appender_module
from tutti.bus.nats.appender import Appender
from tutti.bus.port import Record, Stored
from tutti.errors import Conflict, OutcomeUnknown, Refused

CONFLICT = b'{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 5"},"stream":"s","seq":0}'


def made(last: Record | None = None) -> tuple[Appender, FakeConnection]:
    connection = FakeConnection()
    return Appender(connection.as_connection(), FakeJetStream(last).as_jetstream()), connection


async def turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_each_stream_has_its_lane() -> None:
    appender, connection = made()
    appender.learn("one", ("one.>",), atomic=True, duplicate_window=120.0)
    appender.learn("two", ("two.*",), atomic=True, duplicate_window=120.0)
    for subject in ("one.a", "two.a", "one.a.b", "elsewhere"):
        appender.append(subject, {}, b"", 10.0, None).cancel()
    await turn()
    inboxes = {sent.subject: sent.reply.rsplit(".", 1)[0] for sent in connection.sent()}
    assert inboxes["one.a"] == inboxes["one.a.b"]
    assert len(set(inboxes.values())) == 3
    connection.connected = False
    await appender.drain(0)


async def test_a_stream_that_is_learned_later_takes_over_its_subjects() -> None:
    appender, connection = made()
    unknown = appender.append("one.a", {}, b"", 10.0, None)
    await turn()
    connection.say(connection.sent()[0].reply, status="503")
    with pytest.raises(Refused, match="nobody stores it"):
        await unknown
    appender.learn("one", ("one.>",), atomic=True, duplicate_window=120.0)
    known = appender.append("one.a", {}, b"", 10.0, None)
    await turn()
    connection.say(connection.sent()[0].reply, b'{"stream":"one","seq":1}')
    assert await known == Stored("one", 1)
    await appender.drain(0)


@pytest.mark.parametrize(("subject", "headers"), [("a b", {}), ("a.*", {}), ("a", {"x": "\n"}), ("a", {"": ""})])
async def test_what_cannot_be_sent_is_refused_through_the_future(subject: str, headers: dict[str, str]) -> None:
    appender, connection = made()
    future = appender.append(subject, headers, b"", 10.0, None)
    with pytest.raises(Refused):
        await future
    assert connection.sent() == []
    await appender.drain(0)


async def test_what_waits_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appender_module, "APPEND_QUEUE_MAX_BYTES", 2_000)
    appender, connection = made()
    first = appender.append("a", {}, b"x" * 1_000, 10.0, None)
    with pytest.raises(Refused, match="wait for the log already"):
        await appender.append("a", {}, b"x" * 1_000, 10.0, None)
    await turn()
    connection.say(connection.sent()[0].reply, b'{"stream":"s","seq":1}')
    await first
    again = appender.append("a", {}, b"x" * 1_000, 10.0, None)
    await turn()
    connection.say(connection.sent()[0].reply, b'{"stream":"s","seq":2}')
    assert (await again).sequence == 2
    await appender.drain(0)


async def test_time_runs_out_by_itself() -> None:
    appender, connection = made()
    sent = appender.append("a", {}, b"", 0.03, None)
    await turn()
    connection.writable = connection.connected = False
    unsent = appender.append("a", {}, b"", 0.01, None)
    with pytest.raises(Refused, match=r"could not be sent in time \(not connected: the test says so"):
        await unsent
    with pytest.raises(OutcomeUnknown, match="did not answer in time"):
        await sent
    assert appender._timer is None
    await appender.drain(0)


@pytest.mark.parametrize(
    ("last", "own"),
    [
        (Record("a", {"Nats-Msg-Id": "m"}, b"", 5), True),
        (Record("a", {"Nats-Msg-Id": "other"}, b"", 5), False),
        (Record("a", {}, b"", 5), False),
        (None, False),
    ],
)
async def test_a_conflict_with_ones_own_first_copy_is_none(last: Record | None, own: bool) -> None:
    appender, connection = made(last)
    future = appender.append("a", {"Nats-Msg-Id": "m"}, b"", 10.0, 0)
    await turn()
    connection.say(connection.sent()[0].reply, CONFLICT)
    if own:
        assert await future == Stored("s", 5, duplicate=True)
    else:
        with pytest.raises(Conflict, match="wrong last sequence"):
            await future
    await appender.drain(0)


async def test_after_draining_nothing_is_taken_and_nothing_left_open() -> None:
    appender, connection = made()
    waiting = appender.append("a", {}, b"", 10.0, None)
    await turn()
    connection.connected = False
    await appender.drain(0)
    with pytest.raises(OutcomeUnknown):
        await waiting
    with pytest.raises(Refused, match="closed"):
        await appender.append("a", {}, b"", 10.0, None)
