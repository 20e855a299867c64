"""The server configuration that docs/cluster.md shows is enough for everything a program does, and really narrow."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import tutti
from tests.integration.nats_server import NatsServer

PAGE = Path(__file__).parents[2] / "docs" / "cluster.md"


class Asked(tutti.Event):
    number: int


class Answered(tutti.Event):
    number: int


def configuration(word: str) -> str:
    """The block of the page that begins with this word."""
    (found,) = re.findall(rf"^```\n({word} .*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return str(found).replace("…", "secret")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    server = NatsServer(tmp_path, extra=configuration("authorization"))
    await server.start()
    yield server
    server.kill()


def options(server: NatsServer, **more: Any) -> tutti.NatsOptions:
    given: dict[str, Any] = {"user": "desk", "password": "secret", "inbox_prefix": "_INBOX_desk"}
    return tutti.NatsOptions(urls=(server.url,), monitor_url=server.monitor_url, **(given | more))


async def test_these_permissions_are_enough(server: NatsServer) -> None:
    app = tutti.Subscriber("app", policy=tutti.Policy(attempts=1))
    live: list[int] = []

    @app.on(Asked)
    async def asked(event: Asked, delivery: tutti.Delivery) -> None:
        if event.number == 13:
            raise ValueError("not that one")
        if delivery.wants_reply:
            await delivery.reply(Answered(event.number))
        live.append(event.number)

    async with tutti.connect(options=options(server)) as bus, asyncio.timeout(30):
        await bus.advertise(Asked)
        async with bus.serve(app):
            assert await bus.request(Asked(1), reply=Answered) == Answered(1)
            await bus.publish(Asked(2), grade="best_effort")
            while 2 not in live:
                await asyncio.sleep(0.01)
            with pytest.raises(tutti.RequestFailed):
                await bus.request(Asked(13), reply=Answered)
        (letter,) = [letter async for letter in bus.dead.each()]
        await bus.dead.drop(letter.number)
        await bus.send(Asked(3), to="work")
        message = await bus.receive("work", Asked, wait=5)
        assert message is not None
        await message.done()
        await bus.context.transport.purge("tutti-events-events", below=2)


async def test_another_s_inbox_is_closed(server: NatsServer) -> None:
    with pytest.raises(tutti.BusError):
        await tutti.connect(options=options(server, inbox_prefix="_INBOX_other", request_timeout=0.5)).open()
