"""What every resource promises, as tests: whoever writes an adapter runs them against it.

    class TestMyResource(ResourceContract):
        @pytest.fixture
        async def world(self) -> AsyncIterator[ResourceWorld]:
            world = MyWorld()
            yield world
            await world.close()

A `ResourceWorld` is one database, empty at the start; `open` gives a resource on it as another process would have it.
Give the resources a short lock time-out: some tests wait for it to pass. Needs pytest and pytest-asyncio.
"""

# ruff: noqa: S101  -- this module is tests, shipped

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import pytest

from tutti.errors import DeclarationError, NoSuchBranch, OutcomeNotYours, ResourceBusy, ResourceError
from tutti.resources.gid import BranchId
from tutti.resources.port import Admission, CompletedStep, Outcome, Resource, Vote, Work
from tutti.resources.reaper import reap

Opened = Resource[Any]


class ResourceWorld(Protocol):
    """One database, and how this resource's users read and write it."""

    async def open(self) -> Opened:
        """A resource on this database, started and after `preflight(barrier=True)`. The world closes it."""
        ...

    async def put(self, connection: Any, key: str, value: str) -> None:
        """Insert or replace a row, as a user does it in a work. Different keys never lock each other out, unless the
        database has but one writer."""
        ...

    async def get(self, key: str) -> str | None:
        """The value that everybody sees."""
        ...

    def endings(self, connection: Any) -> Sequence[Callable[[], Awaitable[object]]]:
        """Every way in which a user might try to commit or roll back."""
        ...


OWNER = "rooms"


def branch(number: int = 1, *, owner: str = OWNER, name: str = "calendar") -> BranchId:
    return BranchId(owner, f"j1-{number:04}", name)


class Contract:
    """What the parts of the suite share."""

    @pytest.fixture
    def world(self) -> ResourceWorld:
        raise NotImplementedError("the certified adapter gives this fixture")

    @pytest.fixture
    async def resource(self, world: ResourceWorld) -> Opened:
        return await world.open()

    @pytest.fixture
    async def other(self, world: ResourceWorld) -> Opened:
        """The same database in another process."""
        return await world.open()


class WorkContract(Contract):
    """begin, attempt, commit, rollback, and what the user may not do."""

    async def test_it_is_fit(self, resource: Opened) -> None:
        found = await resource.preflight(barrier=True)
        assert found.version
        assert (found.prepared_max > 0) == resource.prepares

    async def test_nobody_sees_the_work_before_it_is_committed(self, world: ResourceWorld, resource: Opened) -> None:
        work = await resource.begin(branch())
        assert work.branch == branch()
        await world.put(work.connection, "a", "1")
        assert await world.get("a") is None
        await work.commit()
        assert await world.get("a") == "1"

    async def test_nothing_stays_of_what_is_rolled_back(self, world: ResourceWorld, resource: Opened) -> None:
        work = await resource.begin(branch())
        await world.put(work.connection, "a", "1")
        await work.enter(1, b"event")
        await work.rollback()
        assert await world.get("a") is None
        assert list(await resource.completed(branch())) == []

    async def test_closing_rolls_back_what_is_at_work(self, world: ResourceWorld, resource: Opened) -> None:
        work = await resource.begin(branch())
        await world.put(work.connection, "a", "1")
        await resource.close()
        assert await world.get("a") is None
        other = await world.open()
        again = await other.begin(branch())
        await world.put(again.connection, "a", "2")
        await again.commit()
        assert await world.get("a") == "2"

    async def test_an_ended_work_stays_ended(self, world: ResourceWorld, resource: Opened) -> None:
        work = await resource.begin(branch())
        connection = work.connection
        await world.put(connection, "a", "1")
        await work.commit()
        for again in (work.commit, work.commit_last, lambda: work.enter(1), lambda: work.undo(1)):
            with pytest.raises(OutcomeNotYours):
                await again()
        with pytest.raises(OutcomeNotYours):
            _ = work.connection
        await work.rollback()
        assert await world.get("a") == "1"

    async def test_a_connection_is_dead_once_its_work_has_ended(self, world: ResourceWorld, resource: Opened) -> None:
        """Else what is late would become part of another transaction."""
        work = await resource.begin(branch(1))
        stale = work.connection
        await world.put(stale, "a", "1")
        await work.commit()
        other = await resource.begin(branch(2))
        with pytest.raises(Exception):  # noqa: B017, PT011  each driver has an error of its own for this
            await world.put(stale, "late", "1")
        await other.commit()
        assert await world.get("late") is None

    async def test_the_user_cannot_end_it(self, world: ResourceWorld, resource: Opened) -> None:
        work = await resource.begin(branch())
        await world.put(work.connection, "a", "1")
        tried = world.endings(work.connection)
        assert tried
        for end in tried:
            with pytest.raises(OutcomeNotYours) as raised:
                await end()
            assert raised.value.hint
        assert await world.get("a") is None
        await world.put(work.connection, "b", "1")
        await work.commit()
        assert (await world.get("a"), await world.get("b")) == ("1", "1")

    async def test_an_attempt_that_fails_undoes_its_own_part(self, world: ResourceWorld, resource: Opened) -> None:
        work = await resource.begin(branch())
        await world.put(work.connection, "before", "1")

        async def fails() -> None:
            async with work.attempt():
                await world.put(work.connection, "inside", "1")
                await work.enter(1)
                raise LookupError("no such room")

        with pytest.raises(LookupError):
            await fails()
        async with work.attempt():
            await world.put(work.connection, "again", "1")
            assert await work.enter(1) == Admission.RUN
        await work.commit()
        assert [await world.get(key) for key in ("before", "inside", "again")] == ["1", None, "1"]

    @pytest.mark.parametrize(
        "bad",
        [
            BranchId("a b", "j1-1", "x"),
            BranchId("a", "j1:1", "x"),
            BranchId("a", "j1-1", ""),
            BranchId("a", "j1-1'", "x"),
            BranchId("ä", "j1-1", "x"),
            BranchId("a", "j" * 200, "x"),
        ],
    )
    async def test_a_name_that_does_not_fit_is_refused(self, resource: Opened, bad: BranchId) -> None:
        with pytest.raises(DeclarationError):
            await resource.begin(bad)


class BarrierContract(Contract):
    """enter, undo, completed, unsettled, forget."""

    async def test_completed_steps_are_known_with_their_entries(
        self, world: ResourceWorld, resource: Opened, other: Opened
    ) -> None:
        entry = bytes(range(256))
        for step in (2, 1):
            work = await resource.begin(branch())
            assert await work.enter(step, entry) == Admission.RUN
            await world.put(work.connection, f"step {step}", "1")
            await work.commit()
        assert list(await other.completed(branch())) == [CompletedStep(1, entry), CompletedStep(2, entry)]
        assert list(await other.completed(branch(2))) == []

    async def test_work_happens_once(self, world: ResourceWorld, resource: Opened, other: Opened) -> None:
        await _done(world, resource, "1")
        work = await other.begin(branch())
        assert await work.enter(1) == Admission.REPEATED
        await work.rollback()
        assert await world.get("k") == "1"

    async def test_steps_and_branches_are_told_apart(self, world: ResourceWorld, resource: Opened) -> None:
        await _done(world, resource, "1")
        for other, step in ((branch(), 2), (branch(2), 1), (branch(owner="rooms-2"), 1), (branch(name="x"), 1)):
            work = await resource.begin(other)
            assert await work.enter(step) == Admission.RUN
            await work.commit()

    async def test_compensation_happens_once(self, world: ResourceWorld, resource: Opened, other: Opened) -> None:
        await _done(world, resource, "1")
        work = await other.begin(branch())
        assert await work.undo(1) == Admission.RUN
        await world.put(work.connection, "k", "undone")
        await work.commit()
        assert list(await other.completed(branch())) == []
        again = await resource.begin(branch())
        assert await again.undo(1) == Admission.REPEATED
        await again.commit()
        assert await world.get("k") == "undone"

    async def test_a_compensation_that_was_rolled_back_has_not_happened(
        self, world: ResourceWorld, resource: Opened
    ) -> None:
        await _done(world, resource, "1")
        for end in ("rollback", "commit"):
            work = await resource.begin(branch())
            assert await work.undo(1) == Admission.RUN
            await getattr(work, end)()
        assert list(await resource.completed(branch())) == []

    async def test_compensation_before_work_is_empty_and_keeps_the_work_out(
        self, resource: Opened, other: Opened
    ) -> None:
        undo = await resource.begin(branch())
        assert await undo.undo(1) == Admission.EMPTY
        await undo.commit()
        late = await other.begin(branch())
        assert await late.enter(1) == Admission.LATE
        await late.rollback()
        again = await resource.begin(branch())
        assert await again.undo(1) == Admission.REPEATED
        await again.commit()
        assert list(await resource.completed(branch())) == []

    async def test_compensation_waits_for_work_under_way(
        self, world: ResourceWorld, resource: Opened, other: Opened
    ) -> None:
        """It must neither find nothing to undo, nor undo what is not there yet."""
        work = await resource.begin(branch())
        await work.enter(1)
        await world.put(work.connection, "k", "1")
        with pytest.raises(ResourceBusy):
            await _undo(other)
        await work.commit()
        assert await _undo(other) == Admission.RUN

    async def test_work_waits_for_compensation_under_way(self, resource: Opened, other: Opened) -> None:
        undo = await resource.begin(branch())
        assert await undo.undo(1) == Admission.EMPTY
        with pytest.raises(ResourceBusy):
            await _enter(other)
        await undo.commit()
        assert await _enter(other) == Admission.LATE

    async def test_what_nobody_forgot_is_listed(self, world: ResourceWorld, resource: Opened, other: Opened) -> None:
        for number in (3, 1, 2):
            await _done(world, resource, "1", branch(number))
        await _done(world, resource, "1", branch(4, owner="rooms-2"))
        assert list(await other.unsettled(OWNER)) == [branch(3), branch(1), branch(2)]
        await other.forget(branch(1))
        assert list(await other.unsettled(OWNER)) == [branch(3), branch(2)]
        assert list(await other.completed(branch(1))) == []
        await other.forget(branch(1))


class LastResourceContract(Contract):
    """commit_last, settle_last: a row that is the outcome."""

    async def test_its_commit_is_the_transactions(self, world: ResourceWorld, resource: Opened, other: Opened) -> None:
        work = await resource.begin(branch())
        await world.put(work.connection, "k", "1")
        assert await work.commit_last() == "commit"
        assert await world.get("k") == "1"
        for _ in range(2):
            assert await other.settle_last(branch()) == "commit"

    async def test_recovery_that_comes_first_aborts(
        self, world: ResourceWorld, resource: Opened, other: Opened
    ) -> None:
        assert await other.settle_last(branch()) == "abort"
        work = await resource.begin(branch())
        await world.put(work.connection, "k", "1")
        assert await work.commit_last() == "abort"
        assert await world.get("k") is None
        assert await resource.settle_last(branch()) == "abort"

    async def test_recovery_during_the_work(self, world: ResourceWorld, resource: Opened, other: Opened) -> None:
        """Whichever of the two it is, both must see the same."""
        work = await resource.begin(branch())
        await world.put(work.connection, "k", "1")
        try:
            settled: Outcome | None = await other.settle_last(branch())
        except ResourceBusy:  # a database with one writer cannot say before the work has ended
            settled = None
        outcome = await work.commit_last()
        assert settled in {None, outcome}
        assert await other.settle_last(branch()) == outcome
        assert await world.get("k") == ("1" if outcome == "commit" else None)

    async def test_transactions_are_told_apart(self, resource: Opened) -> None:
        assert await resource.settle_last(branch(1)) == "abort"
        work = await resource.begin(branch(2))
        assert await work.commit_last() == "commit"


class PreparedContract(Contract):
    """prepare, commit and rollback by id, recover, reaping. For resources that prepare."""

    @pytest.fixture
    async def preparer(self, resource: Opened) -> Opened:
        if not resource.prepares:
            pytest.skip("this resource cannot prepare")
        return resource

    async def test_a_prepared_branch_waits_for_its_outcome(
        self, world: ResourceWorld, preparer: Opened, other: Opened
    ) -> None:
        await _prepared(world, preparer, branch(1), "a")
        await _prepared(world, preparer, branch(2), "b")
        assert (await world.get("a"), await world.get("b")) == (None, None)
        await other.commit(branch(1), decided=True)
        await other.rollback(branch(2), decided=True)
        assert (await world.get("a"), await world.get("b")) == ("1", None)

    async def test_it_outlives_who_prepared_it(self, world: ResourceWorld, preparer: Opened) -> None:
        await _prepared(world, preparer, branch(), "a")
        await preparer.close()
        other = await world.open()
        [doubt] = await other.recover(OWNER)
        assert doubt.branch == branch()
        await other.commit(branch(), decided=True)
        assert await world.get("a") == "1"
        assert list(await other.recover(OWNER)) == []

    async def test_finishing_again_is_harmless_once_it_is_decided(
        self, world: ResourceWorld, preparer: Opened, other: Opened
    ) -> None:
        await _prepared(world, preparer, branch(1), "a")
        await _prepared(world, preparer, branch(2), "b")
        for each in (preparer, other, preparer):
            await each.commit(branch(1), decided=True)
            await each.rollback(branch(2), decided=True)
        assert (await world.get("a"), await world.get("b")) == ("1", None)

    async def test_absence_explains_nothing_while_it_is_not_decided(
        self, world: ResourceWorld, preparer: Opened
    ) -> None:
        await _prepared(world, preparer, branch(1), "a")
        with pytest.raises(NoSuchBranch):
            await preparer.commit(branch(2), decided=False)
        with pytest.raises(NoSuchBranch):
            await preparer.rollback(branch(2), decided=False)
        await preparer.commit(branch(1), decided=False)
        assert await world.get("a") == "1"

    async def test_several_may_finish_one_branch_at_once(
        self, world: ResourceWorld, preparer: Opened, other: Opened
    ) -> None:
        for number in range(5):
            await _prepared(world, preparer, branch(number), f"k{number}")
            finishing = (each.commit(branch(number), decided=True) for each in (preparer, other) * 3)
            await asyncio.gather(*finishing)
            assert await world.get(f"k{number}") == "1"
        assert list(await other.recover(OWNER)) == []

    async def test_only_ones_own_are_recovered(self, world: ResourceWorld, preparer: Opened, other: Opened) -> None:
        names = [branch(2), branch(1), branch(1, owner="rooms-2"), branch(1, owner="room"), branch(1, name="ledger")]
        for number, name in enumerate(names):
            await _prepared(world, preparer, name, f"k{number}")
        try:
            found = await other.recover(OWNER)
            assert [doubt.branch for doubt in found] == [branch(2), branch(1), branch(1, name="ledger")]
            assert [doubt.prepared_at for doubt in found] == sorted(doubt.prepared_at for doubt in found)
            assert [doubt.branch for doubt in await other.recover("room")] == [branch(1, owner="room")]
            assert list(await other.recover("nobody")) == []
            assert {doubt.branch for doubt in await other.recover()} >= set(names), "a doctor sees those of all owners"
        finally:
            for name in names:
                await other.rollback(name, decided=True)

    async def test_a_work_that_changed_nothing_leaves_nothing(self, preparer: Opened) -> None:
        work = await preparer.begin(branch())
        if await work.prepare() == Vote.PREPARED:
            await preparer.rollback(branch(), decided=True)
        assert list(await preparer.recover(OWNER)) == []

    async def test_a_prepared_work_is_over(self, world: ResourceWorld, preparer: Opened) -> None:
        work = await preparer.begin(branch())
        await world.put(work.connection, "a", "1")
        await work.prepare()
        with pytest.raises(OutcomeNotYours):
            await work.prepare()
        with pytest.raises(OutcomeNotYours):
            await work.commit()
        await work.rollback()  # harmless: it is the database's now
        await preparer.commit(branch(), decided=True)
        assert await world.get("a") == "1"

    async def test_a_branch_is_prepared_once(self, world: ResourceWorld, preparer: Opened, other: Opened) -> None:
        await _prepared(world, preparer, branch(), "a")
        work = await other.begin(branch())
        await world.put(work.connection, "b", "1")
        with pytest.raises(ResourceBusy):
            await work.prepare()
        await other.commit(branch(), decided=True)
        assert (await world.get("a"), await world.get("b")) == ("1", None)

    async def test_barrier_rows_share_the_fate_of_the_branch(self, preparer: Opened, other: Opened) -> None:
        for number in (1, 2):
            work = await preparer.begin(branch(number))
            assert await work.enter(1, b"event") == Admission.RUN
            await work.prepare()
        await other.commit(branch(1), decided=True)
        await other.rollback(branch(2), decided=True)
        assert list(await other.completed(branch(1))) == [CompletedStep(1, b"event")]
        assert list(await other.completed(branch(2))) == []

    async def test_the_reaper_finishes_what_it_knows_and_nothing_else(
        self, world: ResourceWorld, preparer: Opened, other: Opened
    ) -> None:
        known: dict[BranchId, Outcome] = {branch(1): "commit", branch(2): "abort", branch(4, owner="hall"): "abort"}
        for number, name in enumerate([*known, branch(3)]):
            await _prepared(world, preparer, name, f"k{number}")

        async def outcome_of(name: BranchId) -> Outcome | None:
            return known.get(name)

        reaped = await reap(other, OWNER, outcome_of)
        assert (reaped.committed, reaped.rolled_back, reaped.failed) == ((branch(1),), (branch(2),), ())
        assert [doubt.branch for doubt in reaped.left] == [branch(3)]
        assert [doubt.branch for doubt in await other.recover("hall")] == [branch(4, owner="hall")]
        assert [await world.get(f"k{number}") for number in range(4)] == ["1", None, None, None]
        for left in (branch(3), branch(4, owner="hall")):
            await other.rollback(left, decided=True)

    async def test_many_at_once(self, world: ResourceWorld, preparer: Opened, other: Opened) -> None:
        async def one(number: int) -> None:
            await _prepared(world, preparer, branch(number), f"k{number}")
            finish = other.commit if number % 2 else other.rollback
            await finish(branch(number), decided=True)

        await asyncio.gather(*(one(number) for number in range(12)))
        assert [await world.get(f"k{number}") for number in range(12)] == [None, "1"] * 6
        assert list(await preparer.recover(OWNER)) == []


class ResourceContract(WorkContract, BarrierContract, LastResourceContract, PreparedContract):
    """All of it. A subclass gives the fixture `world`."""


async def _done(world: ResourceWorld, resource: Opened, value: str, name: BranchId | None = None) -> None:
    work = await resource.begin(name or branch())
    assert await work.enter(1, b"event") == Admission.RUN
    await world.put(work.connection, "k", value)
    await work.commit()


async def _prepared(world: ResourceWorld, resource: Opened, name: BranchId, key: str) -> None:
    work = await resource.begin(name)
    await world.put(work.connection, key, "1")
    assert await work.prepare() == Vote.PREPARED


async def _undo(resource: Opened) -> Admission:
    return await _through(await_work=resource.begin(branch()), step=lambda work: work.undo(1))


async def _enter(resource: Opened) -> Admission:
    return await _through(await_work=resource.begin(branch()), step=lambda work: work.enter(1))


async def _through(*, await_work: Awaitable[Work[Any]], step: Callable[[Work[Any]], Awaitable[Admission]]) -> Admission:
    work = await await_work
    try:
        found = await step(work)
    except ResourceError:
        await work.rollback()
        raise
    await work.commit()
    return found
