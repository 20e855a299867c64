from __future__ import annotations

import pytest

from tests.unit.cli.conftest import MemorySession
from tests.unit.cli.trading import TradeDone
from tutti.bus.port import Entry
from tutti.cli import subscriptions
from tutti.cli.doctor import examine
from tutti.cli.records import decoded, forget, missing_streams, sound, spoilt
from tutti.cli.subscriptions import show_subscriptions
from tutti.errors import DeclarationError, TuttiError
from tutti.model.subjects import Layout
from tutti.runtime.catalogue import Stream
from tutti.runtime.leases import Lease

REGISTRATION = (
    b'{"subscriber":"desk","subscription":"trade","stream":"tutti-events-events","type":"TradeDone","where":"",'
    b'"start":0,"since":""}'
)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "LISTEN_SECONDS", 0.02)


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("lease.desk.3", b'{"owner":"a","epoch":1}', None),
        ("stream.events", b"{}", None),
        ("subscription.desk.trade", REGISTRATION, None),
        ("lease.desk.zzz", b'{"owner":"a","epoch":1}', "zzz is no partition"),
        ("lease.desk.\u00b3", b'{"owner":"a","epoch":1}', "is no partition"),
        ("lease.desk", b'{"owner":"a","epoch":1}', "such a key has 3 parts"),
        ("position.desk.1", b"garbage", "malformed"),
        ("type.TradeDone", b"{}", "missing required field"),
        ("stream.events", b'{"max_age":"\xff"}', ""),
        ("stream.events", b"[" * 100_000, ""),
    ],
)
def test_records_are_sound_or_spoilt(key: str, value: bytes, why: str | None) -> None:
    entry = Entry(key, value, 1)
    if why is None:
        assert (sound([entry]), spoilt([entry])) == ([entry], [])
    else:
        (found,) = spoilt([entry])
        assert (found.key, sound([entry])) == (key, [])
        assert why in found.why


def test_the_sound_ones_of_a_kind() -> None:
    entries = [
        Entry("stream.a", b'{"replicas":3}', 1),
        Entry("stream.b", b"?", 2),
        Entry("lease.desk.1", b'{"owner":"x","epoch":4}', 3),
    ]
    assert decoded(entries, Stream) == {"stream.a": Stream(replicas=3)}
    assert decoded(entries, Lease) == {"lease.desk.1": Lease("x", 4)}


def test_streams_that_are_needed() -> None:
    entries = [Entry("subscription.desk.trade", REGISTRATION, 1)]
    assert missing_streams(entries, ["tutti-events-events"], Layout()) == {}
    assert missing_streams(entries, [], Layout()) == {"tutti-events-events": ["desk.trade reads it"]}


async def spoil(session: MemorySession, *keys: str) -> None:
    async with session.bus() as bus:
        for key in keys:
            entry = await bus.context.transport.state_get(key)
            await bus.context.transport.state_put(key, b"garbage", expected=entry.revision if entry is not None else 0)


async def test_the_doctor_names_spoilt_records_and_lost_streams(session: MemorySession) -> None:
    async with session.bus() as bus:
        await bus.advertise(TradeDone)
    keys = ["lease.desk.0", "position.desk.0", "stream.events", "subscription.desk.h", "type.Other"]
    await spoil(session, *keys)
    session.cluster.delete("tutti-events-events")

    assert await examine(session) == 1
    problems = [finding for finding in session.answers.shown[-1].findings if finding.level == "problem"]
    assert sorted(p.what.split(" ")[0] for p in problems if p.area == "record") == keys
    assert all(problem.todo for problem in problems)
    assert "`tutti doctor --forget type.Other`" in next(p.todo for p in problems if "type.Other" in p.what)
    assert "`tutti subscribers drop desk`" in next(p.todo for p in problems if "lease" in p.what)
    (lost,) = [problem.what for problem in problems if problem.area == "stream"]
    assert lost == "tutti-events-events does not exist, but TradeDone is kept in it"

    await show_subscriptions(session)
    assert session.answers.shown[-1].subscribers == []
    assert "see `tutti doctor`" in session.answers.notes[-1]


async def test_only_what_cannot_be_read_is_forgotten(session: MemorySession) -> None:
    async with session.bus() as bus:
        await bus.advertise(TradeDone)
    await spoil(session, "type.Other", "lease.desk.0")
    await forget(session, "type.Other")
    assert session.answers.shown[-1].key == "type.Other"
    with pytest.raises(TuttiError, match="does not exist"):
        await forget(session, "type.Other")
    with pytest.raises(TuttiError, match="can be read"):
        await forget(session, "type.TradeDone")
    for key in ("lease.desk.0", "", ">", "*"):
        with pytest.raises(DeclarationError, match="can be forgotten"):
            await forget(session, key)
