"""The contract runs in tests/contracts; here is what only the memory resource has."""

from __future__ import annotations

import pytest

from tutti.errors import ResourceBusy
from tutti.resources.gid import BranchId
from tutti.resources.memory import MemoryResource, MemoryStore


def branch(number: int) -> BranchId:
    return BranchId("rooms", f"j1-{number}", "calendar")


async def test_a_key_belongs_to_one_branch_until_it_ends() -> None:
    resource = MemoryResource("calendar")
    one, other = await resource.begin(branch(1)), await resource.begin(branch(2))
    one.connection.put("k", 1)
    with pytest.raises(ResourceBusy, match="rooms:j1-1:calendar"):
        other.connection.put("k", 2)
    await one.prepare()
    with pytest.raises(ResourceBusy):
        other.connection.put("k", 2)
    await resource.rollback(branch(1), decided=True)
    other.connection.put("k", 2)
    await other.commit()
    assert resource.store.data == {"k": 2}


async def test_none_deletes() -> None:
    resource = MemoryResource("calendar")
    for value in (1, None):
        work = await resource.begin(branch(1))
        work.connection.put("k", value)
        assert work.connection.get("k") == value
        await work.commit()
    assert resource.store.data == {}


async def test_prepared_branches_carry_the_clocks_time() -> None:
    times = iter([10.0, 11.0])
    resource = MemoryResource("calendar", MemoryStore(clock=lambda: next(times)))
    for number in (2, 1):
        work = await resource.begin(branch(number))
        work.connection.put(f"k{number}", 1)
        await work.prepare()
    assert [(doubt.branch, doubt.prepared_at) for doubt in await resource.recover("rooms")] == [
        (branch(2), 10.0),
        (branch(1), 11.0),
    ]


async def test_the_store_can_be_driven_without_a_loop() -> None:
    resource = MemoryResource("calendar")
    work = await resource.begin(branch(1))
    work.connection.put("k", 1)
    await work.prepare()
    resource.store.commit(branch(1), decided=False)
    assert resource.store.data == {"k": 1}
    assert list(resource.store.prepared) == []
