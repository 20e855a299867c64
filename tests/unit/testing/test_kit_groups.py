"""A standing group in the test kit, whose clock begins at nothing and stands still."""

from __future__ import annotations

import tutti
from tutti.testing.kit import BusKit


class Step(tutti.Event):
    number: int


class Pledge(tutti.TxType, events=[Step]):
    what: str


async def test_a_group_needs_no_clock(tutti_bus: BusKit) -> None:
    team = tutti.Subscriber("team")
    team.enrol("finance", Pledge)

    @team.on(Step)
    async def step(event: Step, tx: tutti.Branch) -> None: ...

    await tutti_bus.advertise(Step)
    async with tutti_bus.serve(team):
        async with tutti_bus.transaction(Pledge("x"), group="finance") as tx:
            await tx.publish(Step(1))
        await tutti_bus.settle()
    assert tutti_bus.handled(step) == [Step(1)]
