from __future__ import annotations

import asyncio
import os
import signal
from decimal import Decimal

import pytest

import tutti
from tests.unit.cli.conftest import MemorySession
from tests.unit.cli.trading import TradeDone
from tutti.cli import serving
from tutti.cli.options import Common, Session
from tutti.cli.output import ConsoleOutput
from tutti.cli.serving import RunSettings, ServiceUp, Stopped, keep_up, public_url, stop_signals
from tutti.errors import DeclarationError


async def test_the_first_signal_asks_the_second_insists(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(serving, "end_now", ended.append)
    with stop_signals() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(stop.wait(), 2)
        assert ended == []
        os.kill(os.getpid(), signal.SIGINT)
        while not ended:
            await asyncio.sleep(0)
    assert ended == [128 + signal.SIGINT]


async def test_a_service_runs_until_it_is_told_to_stop(session: MemorySession) -> None:
    desk = tutti.Subscriber("desk")
    handled = asyncio.Event()

    @desk.on(TradeDone)
    async def trade(event: TradeDone) -> None:
        handled.set()

    stop = asyncio.Event()
    settings = RunSettings(places=(), grace=1.0, metrics_port=0)
    serving_task = asyncio.create_task(serving._serve_until(stop, session, settings, [desk]))
    while not session.answers.shown:
        await asyncio.sleep(0.01)
    up: ServiceUp = session.answers.shown[0]
    assert up.subscribers == {"desk": ["trade"]}
    reader, writer = await asyncio.open_connection("127.0.0.1", up.metrics_port)
    writer.write(b"GET /health HTTP/1.1\r\n\r\n")
    assert b'"state":"ok"' in await reader.read()
    writer.close()
    async with session.bus() as bus:
        await bus.advertise(TradeDone)
        await bus.publish(TradeDone("IBM", Decimal(1)))
        await asyncio.wait_for(handled.wait(), 2)
    stop.set()
    assert await serving_task


async def test_up_says_which_resource_is_none(session: MemorySession) -> None:
    with pytest.raises(DeclarationError, match="no resource"):
        await keep_up(Session(Common(), session.answers), journal=None, resources=("tutti:Event",))


def test_credentials_are_not_shown() -> None:
    assert public_url("nats://tutti:secret@127.0.0.1:4222") == "nats://127.0.0.1:4222"
    assert public_url("nats://127.0.0.1:4222") == "nats://127.0.0.1:4222"


def test_the_end_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    ConsoleOutput().show(Stopped(finished=True))
    ConsoleOutput().show(Stopped(finished=False))
    first, second = capsys.readouterr().out.splitlines()
    assert "was finished" in first
    assert "handled again" in second
