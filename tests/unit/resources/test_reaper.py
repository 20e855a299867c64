"""What it finishes on real databases is in the contract; here is what it does when one refuses."""

from __future__ import annotations

from tutti.errors import ResourceUnfit
from tutti.resources.gid import BranchId
from tutti.resources.memory import MemoryResource
from tutti.resources.port import Outcome
from tutti.resources.reaper import Reaped, reap


class Stubborn(MemoryResource):
    async def rollback(self, branch: BranchId, *, decided: bool) -> None:  # noqa: ARG002  it refuses whatever is asked
        raise ResourceUnfit("only its role may finish it", hint="use that role")


async def test_a_refusal_is_reported_and_stops_nothing() -> None:
    resource = Stubborn("calendar")
    branches = [BranchId("rooms", f"j1-{number}", "calendar") for number in range(3)]
    for number, branch in enumerate(branches):
        work = await resource.begin(branch)
        work.connection.put(f"k{number}", 1)
        await work.prepare()
    outcomes: list[Outcome | None] = ["abort", None, "commit"]

    async def outcome_of(branch: BranchId) -> Outcome | None:
        return outcomes[branches.index(branch)]

    reaped = await reap(resource, "rooms", outcome_of)
    assert reaped.committed == (branches[2],)
    assert reaped.rolled_back == ()
    assert [doubt.branch for doubt in reaped.left] == [branches[1]]
    assert reaped.failed == ((branches[0], "only its role may finish it\n  hint: use that role"),)
    assert [doubt.branch for doubt in await resource.recover("rooms")] == branches[:2]


async def test_nothing_to_do() -> None:
    async def outcome_of(branch: BranchId) -> Outcome | None:
        raise AssertionError("nobody should be asked")

    assert await reap(MemoryResource("calendar"), "rooms", outcome_of) == Reaped()
