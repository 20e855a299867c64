from __future__ import annotations

from decimal import Decimal

import pytest

from tests.unit.cli.conftest import MemorySession
from tests.unit.cli.trading import TradeDone
from tutti.cli import queues
from tutti.cli.output import ConsoleOutput
from tutti.cli.queues import QueueList, QueueState, age, show_queues


async def sent(session: MemorySession, *names: str) -> None:
    async with session.bus() as bus:
        await bus.advertise(TradeDone)
        for name in names:
            await bus.send(TradeDone("IBM", Decimal(1)), to=name)


async def test_what_waits_is_counted_and_stays(session: MemorySession) -> None:
    await show_queues(session)
    await sent(session, "late", "billing", "late")
    for _ in range(2):
        await show_queues(session)
    none, first, second = session.answers.shown
    assert none.queues == []
    for shown in (first, second):
        assert [(queue.name, queue.messages, queue.at_least) for queue in shown.queues] == [
            ("billing", 1, False),
            ("late", 2, False),
        ]


async def test_what_was_not_looked_at_is_said(session: MemorySession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "LOOK_MAX_COUNT", 2)
    await sent(session, "late", "late", "late")
    await show_queues(session)
    (queue,) = session.answers.shown[0].queues
    assert queue.waiting == "2 or more"


def test_it_looks_well(capsys: pytest.CaptureFixture[str]) -> None:
    ConsoleOutput().show(QueueList([], 0.0))
    ConsoleOutput().show(QueueList([QueueState("billing", 3, 40.0)], 100.0))
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["nothing", "waits", "in", "any", "queue"],
        ["queue", "waiting", "oldest"],
        ["billing", "3", "60", "s"],
    ]


@pytest.mark.parametrize(
    ("seconds", "text"), [(-1, "0 s"), (119, "119 s"), (120, "2 min"), (7_200, "2 h"), (260_000, "3 days")]
)
def test_ages(seconds: float, text: str) -> None:
    assert age(seconds) == text
