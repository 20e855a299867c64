"""A census that fails lets its candidates go at once: they need not find out by asking."""

from __future__ import annotations

import asyncio

import pytest

import tutti
from tutti.errors import CensusFailed


class Step(tutti.Event):
    number: int


class Pledge(tutti.TxType, events=[Step]):
    what: str


async def test_whoever_joined_in_vain_is_told() -> None:
    app = tutti.Subscriber("app")

    @app.join(Pledge)
    async def always(_: tutti.Invite[Pledge]) -> bool:
        return True

    @app.on(Step)
    async def step(event: Step, tx: tutti.Branch) -> None: ...

    async with tutti.connect("memory://") as bus:
        await bus.advertise(Step)
        service = await bus.start(app)
        with pytest.raises(CensusFailed):
            async with bus.transaction(Pledge("x"), census=tutti.Census(at_least=2, within=0.05)):
                pytest.fail("it must not begin")
        assert service.participants is not None
        async with asyncio.timeout(1.0):
            while service.participants.takings:
                await asyncio.sleep(0.005)
