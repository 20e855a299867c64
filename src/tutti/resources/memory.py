"""A resource in memory: keys and values with locks, prepared branches and a barrier, for tests and the simulator.

`MemoryStore` is the database: what is committed or prepared in it outlives the resources that work on it, as a server
outlives its clients. Its methods are plain calls; nothing waits, so that a simulation stays deterministic: a key that
another branch holds is `ResourceBusy` at once. `MemoryResource` is the port over it.

 1. A branch sees what is committed and its own writes. A write takes the key's lock until the branch ends.
 2. A prepared branch keeps its writes and locks in the store. Everything else of a branch is lost with its work.
 3. Barrier rows are keys like any other, in a space of their own, so they commit and roll back with the data.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, NoReturn

import msgspec

from tutti.errors import NoSuchBranch, OutcomeNotYours, ResourceBusy
from tutti.resources.barrier import Op, admitted_undo, admitted_work, outcome_of
from tutti.resources.gid import PREFIX, BranchId, gid_of
from tutti.resources.port import Admission, CompletedStep, InDoubt, Outcome, Preflight, Vote

_BARRIER: Final = "barrier"
_DATA: Final = "data"
_Key = tuple[object, ...]


class _Row(msgspec.Struct, frozen=True):
    word: str
    entry: bytes
    number: int


class _Prepared(msgspec.Struct):
    holder: int
    writes: dict[_Key, object]
    prepared_at: float


class MemoryStore:
    """`clock` gives the seconds since the epoch that prepared branches are dated with."""

    def __init__(self, *, clock: Callable[[], float] = lambda: 0.0) -> None:
        self._clock = clock
        self._committed: dict[_Key, object] = {}
        self._locks: dict[_Key, int] = {}  # by holder: one branch may be at work in two processes
        self._holders: list[BranchId] = []
        self._prepared: dict[BranchId, _Prepared] = {}
        self._rows_written = 0

    @property
    def data(self) -> dict[str, object]:
        """What is committed."""
        return {str(key[1]): value for key, value in self._committed.items() if key[0] == _DATA}

    @property
    def prepared(self) -> Sequence[InDoubt]:
        return [InDoubt(branch, kept.prepared_at) for branch, kept in self._prepared.items()]

    def read(self, key: _Key) -> object:
        return self._committed.get(key)

    def rows(self) -> Sequence[tuple[_Key, _Row]]:
        """Barrier rows, in the order in which they were written."""
        found = [(key, value) for key, value in self._committed.items() if isinstance(value, _Row)]
        return sorted(found, key=lambda item: item[1].number)

    def holder(self, branch: BranchId) -> int:
        """A new holder of locks, on behalf of a branch."""
        self._holders.append(branch)
        return len(self._holders) - 1

    def lock(self, holder: int, key: _Key) -> None:
        other = self._locks.setdefault(key, holder)
        if other != holder:
            raise ResourceBusy(
                f"{key[1:]} is held by {self._holders[other]}", hint="the branch votes no; try the transaction again"
            )

    def unlock(self, holder: int) -> None:
        self._locks = {key: other for key, other in self._locks.items() if other != holder}

    def apply(self, holder: int, writes: dict[_Key, object]) -> None:
        for key, value in writes.items():
            if value is None:
                self._committed.pop(key, None)
            else:
                self._committed[key] = value
        self.unlock(holder)

    def keep(self, branch: BranchId, holder: int, writes: dict[_Key, object]) -> None:
        self._prepared[branch] = _Prepared(holder, writes, self._clock())

    def is_prepared(self, branch: BranchId) -> bool:
        return branch in self._prepared

    def commit(self, branch: BranchId, *, decided: bool) -> None:
        if kept := self._take(branch, decided=decided):
            self.apply(kept.holder, kept.writes)

    def rollback(self, branch: BranchId, *, decided: bool) -> None:
        if kept := self._take(branch, decided=decided):
            self.unlock(kept.holder)

    def _take(self, branch: BranchId, *, decided: bool) -> _Prepared | None:
        kept = self._prepared.pop(branch, None)
        if kept is None and not decided:
            raise NoSuchBranch(f"no branch {branch} is prepared", hint="ask for the outcome first")
        return kept

    def numbered(self, word: str, entry: bytes) -> _Row:
        self._rows_written += 1
        return _Row(word, entry, self._rows_written)

    def forget(self, branch: BranchId) -> None:
        self._committed = {key: value for key, value in self._committed.items() if key[:2] != (_BARRIER, branch)}


class MemorySession:
    """What the user works with."""

    def __init__(self, work: MemoryWork) -> None:
        self._work = work

    def get(self, key: str) -> object:
        return self._work.read((_DATA, key))

    def put(self, key: str, value: object) -> None:
        """`None` deletes."""
        self._work.write((_DATA, key), value)

    def commit(self) -> NoReturn:
        raise _not_yours("commit()")

    def rollback(self) -> NoReturn:
        raise _not_yours("rollback()")


class MemoryWork:
    """See `tutti.resources.port.Work`."""

    def __init__(self, store: MemoryStore, branch: BranchId) -> None:
        self.branch = branch
        self._store = store
        self._holder = store.holder(branch)
        self._writes: dict[_Key, object] = {}
        self._open = True

    @property
    def connection(self) -> MemorySession:
        self._check_open()
        return MemorySession(self)

    def read(self, key: _Key) -> object:
        self._check_open()
        return self._writes[key] if key in self._writes else self._store.read(key)

    def write(self, key: _Key, value: object) -> None:
        self._check_open()
        self._store.lock(self._holder, key)
        self._writes[key] = value

    def attempt(self) -> AbstractAsyncContextManager[None]:
        return self._attempt()

    @asynccontextmanager
    async def _attempt(self) -> AsyncIterator[None]:
        before = dict(self._writes)
        try:
            yield
        except BaseException:
            self._writes = before
            raise

    async def enter(self, step: int, entry: bytes = b"") -> Admission:
        there = self.insert(step, "work", "done", entry)
        return admitted_work(inserted=there is None, word=there.word if there else None)

    async def undo(self, step: int) -> Admission:
        there = self.insert(step, "work", "void")
        if there is not None and there.word == "void":
            return Admission.REPEATED
        if there is None:
            return admitted_undo(voided=True, inserted=False)
        return admitted_undo(voided=False, inserted=self.insert(step, "undo", "done") is None)

    def insert(self, step: int, op: Op, word: str, entry: bytes = b"") -> _Row | None:
        """The row that is there; None if this one now is."""
        key = (_BARRIER, self.branch, step, op)
        # Even who finds a row takes the lock: it may be another's, not committed yet.
        self._check_open()
        if not isinstance(self._store.read(key), _Row):
            self._store.lock(self._holder, key)
        there = self.read(key)
        if isinstance(there, _Row):
            return there
        self.write(key, self._store.numbered(word, entry))
        return None

    async def prepare(self) -> Vote:
        self._end()
        if not self._writes:
            return Vote.READ_ONLY
        if self._store.is_prepared(self.branch):
            self._store.unlock(self._holder)
            raise ResourceBusy(f"a branch {self.branch} is prepared already", hint="finish it first")
        self._store.keep(self.branch, self._holder, self._writes)
        return Vote.PREPARED

    async def commit(self) -> None:
        self._end()
        self._store.apply(self._holder, self._writes)

    async def commit_last(self) -> Outcome:
        there = self.insert(0, "outcome", "commit")
        if there is None:
            await self.commit()
            return "commit"
        await self.rollback()
        return outcome_of(there.word)

    async def rollback(self) -> None:
        if self._open:
            self._open = False
            self._store.unlock(self._holder)

    def _end(self) -> None:
        self._check_open()
        self._open = False

    def _check_open(self) -> None:
        if not self._open:
            raise OutcomeNotYours(f"branch {self.branch}: the work has ended", hint="do all of the work before")


class MemoryResource:
    """See `tutti.resources.port.Resource`."""

    prepares: Final = True

    def __init__(self, name: str, store: MemoryStore | None = None, *, prefix: str = PREFIX) -> None:
        self.name = name
        self.store = store or MemoryStore()
        self._prefix = prefix
        self._started = False
        self._works: list[MemoryWork] = []

    async def start(self) -> bool:
        was, self._started = self._started, True
        return not was

    async def close(self) -> None:
        self._started = False
        for work in self._works:
            await work.rollback()
        self._works.clear()

    async def preflight(self, *, barrier: bool = False) -> Preflight:  # noqa: ARG002  the barrier is always there
        return Preflight("memory", len(self.store.prepared), 2**31)

    async def begin(self, branch: BranchId) -> MemoryWork:
        gid_of(self._prefix, branch)
        work = MemoryWork(self.store, branch)
        self._works.append(work)
        return work

    async def commit(self, branch: BranchId, *, decided: bool) -> None:
        self.store.commit(branch, decided=decided)

    async def rollback(self, branch: BranchId, *, decided: bool) -> None:
        self.store.rollback(branch, decided=decided)

    async def recover(self, owner: str = "") -> Sequence[InDoubt]:
        return [doubt for doubt in self.store.prepared if owner in {"", doubt.branch.owner}]

    async def completed(self, branch: BranchId) -> Sequence[CompletedStep]:
        rows = {(key[2], key[3]): row for key, row in self.store.rows() if key[1] == branch}
        found = [
            CompletedStep(step, row.entry)
            for (step, op), row in rows.items()
            if op == "work" and row.word == "done" and isinstance(step, int) and (step, "undo") not in rows
        ]
        return sorted(found, key=lambda completed: completed.step)

    async def unsettled(self, owner: str) -> Sequence[BranchId]:
        branches = (key[1] for key, _ in self.store.rows() if key[3] == "work")
        return list(dict.fromkeys(b for b in branches if isinstance(b, BranchId) and b.owner == owner))

    async def settle_last(self, branch: BranchId) -> Outcome:
        work = await self.begin(branch)
        there = work.insert(0, "outcome", "abort")
        await work.commit()
        return outcome_of(there.word if there else "abort")

    async def forget(self, branch: BranchId) -> None:
        self.store.forget(branch)


def _not_yours(what: str) -> OutcomeNotYours:
    return OutcomeNotYours(
        f"{what} on a session that belongs to a transaction: its outcome is not decided here",
        hint="raise an exception to abort, return to agree",
    )
