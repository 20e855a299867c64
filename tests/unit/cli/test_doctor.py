from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from tests.unit.cli.conftest import MemorySession
from tests.unit.cli.trading import TradeDone
from tutti.bus.embedded import ServerState, UserRecord
from tutti.bus.port import Status, StreamInfo
from tutti.cli import subscriptions
from tutti.cli.doctor import (
    Diagnosis,
    about_folder,
    about_health,
    about_letters,
    about_queues,
    about_server,
    about_streams,
    about_subscribers,
    examine,
    size,
)
from tutti.cli.findings import Finding
from tutti.cli.options import Common, Session
from tutti.cli.output import ConsoleOutput
from tutti.cli.queues import QueueState
from tutti.cli.subscriptions import SubscriberState, SubscriptionState
from tutti.runtime.catalogue import Stream

FOLDER = Path("somewhere")
RUNNING = ServerState(
    folder="somewhere",
    state="running",
    running=True,
    reason="",
    pid=5,
    supervisor_pid=4,
    url="nats://127.0.0.1:1",
    version="2.15.1",
    installed_version="2.15.1",
    sync=True,
    restarts=0,
    since=0.0,
    users=(UserRecord(7, "x", sync=True, keep=True),),
    log="nats.log",
    notes=(),
)
WELL = SubscriptionState(
    name="trade", type="TradeDone", where="", stream="S", position=9, lag=0, since="", moved_at=1_000.0
)


def levels(findings: object) -> list[str]:
    return [finding.level for finding in findings]  # type: ignore[attr-defined]  # an iterable of findings


@pytest.mark.parametrize(
    ("change", "level", "said"),
    [
        ({}, "ok", "pid 5, 1 user, kept by `tutti up`"),
        ({"users": ()}, "ok", "no users any more"),
        ({"state": "stopped"}, "ok", "was stopped"),
        ({"state": "starting"}, "ok", "is starting"),
        ({"state": "restarting", "reason": "killed"}, "warning", "killed"),
        ({"state": "orphaned", "reason": "its supervisor was killed"}, "warning", "orphan"),
        ({"state": "failed", "reason": "port taken"}, "problem", "port taken"),
        ({"state": "sick", "reason": "the disk is full"}, "problem", "nothing is stored: the disk is full"),
    ],
)
def test_folders(change: dict[str, object], level: str, said: str) -> None:
    (finding,) = about_folder(FOLDER, msgspec.structs.replace(RUNNING, **change))
    assert finding.level == level
    assert said in finding.what


def test_what_deserves_attention_in_a_folder() -> None:
    assert levels(about_folder(FOLDER, None)) == ["warning"]
    noted = msgspec.structs.replace(RUNNING, notes=("it does not sync",), restarts=2)
    assert levels(about_folder(FOLDER, noted)) == ["warning", "ok", "warning"]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (Status(True, "s", "2.15.1", True), ["ok", "ok"]),
        (Status(True, "s", "2.10.0", True), ["problem", "ok"]),
        (Status(True, "s", "2.15.1", False), ["ok", "problem"]),
        (Status(True, "s", "2.15.1", None), ["ok", "warning"]),
        (Status(False, "s", detail="refused"), ["problem"]),
        (Status(True, "memory"), ["ok"]),
    ],
)
def test_servers(status: Status, expected: list[str]) -> None:
    assert levels(about_server(status)) == expected


@pytest.mark.parametrize(
    ("stream", "settings", "level"),
    [
        (StreamInfo("S", 1, 2, 2, 50), Stream(), "ok"),
        (StreamInfo("S", 1, 2, 2, 50), Stream(full_at_bytes=100), "ok"),
        (StreamInfo("S", 1, 2, 2, 85), Stream(full_at_bytes=100), "warning"),
        (StreamInfo("S", 1, 2, 2, 100), Stream(full_at_bytes=100), "problem"),
        (StreamInfo("S", 1, 2, 2, 50, replicas=1), Stream(replicas=3), "warning"),
        (StreamInfo("S", 1, 2, 2, 50, replicas=3), Stream(replicas=3, max_age=60, max_bytes=5), "ok"),
    ],
)
def test_streams(stream: StreamInfo, settings: Stream, level: str) -> None:
    assert levels(about_streams([stream], {"S": settings})) == [level]


@pytest.mark.parametrize(
    ("subscription", "instances", "partitions", "expected"),
    [
        ({}, ["a"], {"a": [0]}, ["ok"]),
        ({}, [], {}, ["warning"]),
        ({"lag": 5, "moved_at": 1_090.0}, ["a"], {"a": [0]}, ["ok"]),
        ({"lag": 5}, ["a"], {"a": [0]}, ["problem"]),
        ({"lag": 5, "moved_at": 1_090.0, "retries": {10: 3}}, ["a"], {"a": [0]}, ["warning"]),
        ({}, ["a"], {"a": [0], "b": [1]}, ["ok", "warning"]),
        ({}, [], {"b": [1]}, ["warning", "warning"]),
    ],
)
def test_subscribers(
    subscription: dict[str, object], instances: list[str], partitions: dict[str, list[int]], expected: list[str]
) -> None:
    state = SubscriberState(
        name="desk",
        instances=instances,
        partitions=partitions,
        subscriptions=[msgspec.structs.replace(WELL, **subscription)],
    )
    assert levels(about_subscribers([state], now=1_100.0)) == expected


def test_what_the_server_says_of_itself() -> None:
    assert levels(about_health("")) == []
    (finding,) = about_health("write error: no space left on device")
    assert (finding.level, finding.area) == ("problem", "durability")
    assert "no space left on device" in finding.what


def test_letters_and_queues() -> None:
    assert levels(about_letters(0)) == ["ok"]
    assert levels(about_letters(3)) == ["warning"]
    queues = [QueueState("billing", 3, 1_099.0), QueueState("old", 2, 1_000.0, at_least=True)]
    fresh, old = about_queues(queues, now=1_100.0)
    assert (fresh.level, old.level) == ("ok", "warning")
    assert old.what == "old: 2 or more wait, the oldest for 100 s"
    assert 'queue="old"' in old.todo
    (replays,) = about_queues([QueueState("replay-desk", 1, 0.0)], now=100.0)
    assert replays.what == "replay-desk: 1 waits, the oldest for 100 s"
    assert "start the subscriber desk" in replays.todo


def test_a_problem_is_unhealthy_a_warning_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    good = Diagnosis([Finding("ok", "a", "b"), Finding("warning", "c", "d", "do e")])
    bad = Diagnosis([*good.findings, Finding("problem", "f", "g")])
    assert good.healthy
    assert not bad.healthy
    assert bad.as_json()["healthy"] is False
    ConsoleOutput().show(bad)
    said = capsys.readouterr().out
    assert "→ do e" in said
    assert "1 well, 1 warning, 1 problem" in said


@pytest.mark.parametrize(
    ("count", "said"), [(0, "0 bytes"), (1536, "1.5 KiB"), (5 * 2**20, "5.0 MiB"), (3 * 2**40, "3.0 TiB")]
)
def test_sizes(count: int, said: str) -> None:
    assert size(count) == said


async def test_a_bus_is_examined(session: MemorySession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "LISTEN_SECONDS", 0.02)
    async with session.bus() as bus:
        await bus.advertise(TradeDone)
        await bus.send(TradeDone("IBM", Decimal(1)), to="billing")
    assert await examine(session) == 0
    (diagnosis,) = session.answers.shown
    areas = [finding.area for finding in diagnosis.findings]
    assert areas == ["server", *["stream"] * 6, "dead letters", "queue"]


async def test_a_folder_that_never_had_a_server_is_left_alone(session: MemorySession, tmp_path: Path) -> None:
    look = Session(Common(data=str(tmp_path / "no")), session.answers)
    assert await examine(look) == 0
    assert not (tmp_path / "no").exists()
    assert session.answers.shown[0].findings[0].area == "folder"


async def test_a_server_that_does_not_answer_is_a_problem(session: MemorySession) -> None:
    look = Session(Common(url="http://127.0.0.1"), session.answers)
    assert await examine(look) == 1
    assert session.answers.shown[0].findings[0].area == "server"
