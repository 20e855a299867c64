"""Works that end together."""

from __future__ import annotations

import pytest

from tutti.errors import DeclarationError, ResourceBusy, TransactionClosed
from tutti.resources import BranchId
from tutti.resources.memory import MemoryResource, MemoryStore
from tutti.runtime.transactions.sessions import Session, Undone, restored


@pytest.fixture
def rooms() -> MemoryResource:
    return MemoryResource("rooms", MemoryStore())


@pytest.fixture
def bills() -> MemoryResource:
    return MemoryResource("bills", MemoryStore())


async def worked(*resources: MemoryResource, suffix: str = "1") -> Session:
    session = Session("host", "j-r-1", suffix)
    for resource in resources:
        (await session.enlist(resource)).put("a", 1)
    return session


async def test_all_prepare_and_commit(rooms: MemoryResource, bills: MemoryResource) -> None:
    session = await worked(rooms, bills)
    assert (session.names, session.home) == (("rooms", "bills"), "rooms")
    await session.prepare()
    assert session.descriptors == ("rooms 1", "bills 1")
    assert (rooms.store.data, bills.store.data) == ({}, {})
    await session.commit()
    await session.commit()
    assert (rooms.store.data, bills.store.data) == ({"a": 1}, {"a": 1})


async def test_a_resource_gives_one_connection_however_often_it_is_enlisted(rooms: MemoryResource) -> None:
    session = await worked(rooms)
    assert (await session.enlist(rooms)).get("a") == 1
    with pytest.raises(DeclarationError, match="two resources are called 'rooms'"):
        await session.enlist(MemoryResource("rooms"))


async def test_what_was_only_read_is_not_prepared(rooms: MemoryResource, bills: MemoryResource) -> None:
    session = await worked(rooms)
    await session.enlist(bills)
    await session.prepare()
    assert session.descriptors == ("rooms 1",)


async def test_one_that_cannot_prepare_leaves_nothing_behind(rooms: MemoryResource, bills: MemoryResource) -> None:
    earlier = await worked(bills)
    await earlier.prepare()
    bills.store.unlock(0)  # another branch of the same name is prepared: this one cannot be
    session = await worked(rooms, bills)
    with pytest.raises(ResourceBusy):
        await session.prepare()
    await session.roll_back()
    assert (list(rooms.store.prepared), list(bills.store.prepared)) == ([], [])
    assert rooms.store.data == {}


async def test_nothing_is_enlisted_after_the_end(rooms: MemoryResource, bills: MemoryResource) -> None:
    session = await worked(rooms)
    await session.roll_back()
    assert rooms.store.data == {}
    with pytest.raises(TransactionClosed, match="after its work has ended"):
        await session.enlist(bills)


async def test_work_and_barrier_rows_commit_together(rooms: MemoryResource) -> None:
    session = await worked(rooms)
    await session.enter({1: b"", 2: b"entry"})
    await session.commit_home()
    assert rooms.store.data == {"a": 1}
    assert [step.entry for step in await rooms.completed(session.branch("rooms"))] == [b"", b"entry"]
    assert await session.was_committed(2)
    assert not await session.was_committed(3)


async def test_work_whose_compensation_came_first_does_not_happen(rooms: MemoryResource) -> None:
    early = await rooms.begin(BranchId("host", "j-r-1", "rooms-1"))
    await early.undo(1)
    await early.commit()
    session = await worked(rooms)
    with pytest.raises(Undone, match="step 1 was undone"):
        await session.enter({1: b""})
    await session.roll_back()
    assert rooms.store.data == {}


async def test_a_later_process_finishes_by_descriptors(rooms: MemoryResource, bills: MemoryResource) -> None:
    first, second = await worked(rooms), await worked(bills, suffix="2")
    for session in (first, second):
        await session.prepare()
    descriptors = (*first.descriptors, *second.descriptors, "gone 2")
    sessions, missing = restored("host", "j-r-1", descriptors, {"rooms": rooms, "bills": bills})
    assert (set(sessions), missing) == ({"1", "2"}, ("gone",))
    await sessions["1"].commit()
    await sessions["2"].roll_back()
    assert (rooms.store.data, bills.store.data) == ({"a": 1}, {})
    assert [*rooms.store.prepared, *bills.store.prepared] == []
