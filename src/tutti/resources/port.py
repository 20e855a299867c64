"""The port between a transaction and what it changes.

A `Resource` is a database that a participant works on; `begin` pins one of its connections for a branch and gives a
`Work`, in which the participant's code runs. A work ends in exactly one of four ways:

* `prepare`: the branch can now be committed or rolled back by its id, from any process, after any crash. For resources
  with `prepares`.
* `commit`: at once, in one local transaction with the barrier rows written through `enter` and `undo`. For participants
  that are compensatable.
* `commit_last`: at once, together with a row that *is* the outcome of the whole transaction. For the last resource.
* `rollback`.

Barrier rows and outcome markers live in one table beside the data, which `preflight(barrier=True)` creates. See
`barrier.py` for what they settle.

Errors: all are `ResourceError`. After any error of `prepare`, the work is over and the branch votes no; then call
`rollback(branch, decided=True)`, because after `BranchUnknown` it may have been prepared all the same. The suite in
`tutti.testing.contracts.resources` certifies an implementation.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from typing import Literal, Protocol, TypeVar, runtime_checkable

import msgspec

from tutti.resources.gid import BranchId

ConnectionT_co = TypeVar("ConnectionT_co", covariant=True)

Outcome = Literal["commit", "abort"]


class Vote(StrEnum):
    PREPARED = "prepared"
    READ_ONLY = "read_only"  # it changed nothing and holds nothing: no decision is needed, none is waited for


class Admission(StrEnum):
    """What the barrier says to a step of work, or to its compensation."""

    RUN = "run"
    REPEATED = "repeated"  # it has happened, durably: do nothing, and count it as done
    EMPTY = "empty"  # a compensation for work that never happened: do nothing; the work will not happen later either
    LATE = "late"  # work whose compensation came first: do nothing, and never vote yes


class InDoubt(msgspec.Struct, frozen=True):
    """A prepared branch that waits for its outcome. `prepared_at`: seconds since the epoch, by the database's clock."""

    branch: BranchId
    prepared_at: float


class CompletedStep(msgspec.Struct, frozen=True):
    """A step of work that was committed at once. `entry` is what the participant wrote beside it."""

    step: int
    entry: bytes


class Preflight(msgspec.Struct, frozen=True):
    """What a resource is, after it was found fit. `warnings` are sentences for the operator."""

    version: str
    prepared_now: int = 0
    prepared_max: int = 0  # 0: it cannot prepare
    warnings: tuple[str, ...] = ()


class Work(Protocol[ConnectionT_co]):
    """One branch at work. Not for use by several tasks at once; `connection` is not usable once it has ended."""

    @property
    def branch(self) -> BranchId: ...

    @property
    def connection(self) -> ConnectionT_co:
        """What the user's code works with: the driver's own. It refuses to commit and to roll back."""
        ...

    def attempt(self) -> AbstractAsyncContextManager[None]:
        """A part of the work that may fail: an exception undoes what was done inside, no more, and goes on."""
        ...

    async def enter(self, step: int, entry: bytes = b"") -> Admission:
        """The barrier row of a step of work, with what should be known when it is compensated. RUN, REPEATED, LATE."""
        ...

    async def undo(self, step: int) -> Admission:
        """The barrier row of the compensation of a step. RUN, REPEATED, EMPTY; commit the work in every case."""
        ...

    async def prepare(self) -> Vote:
        """The work is over in every case. Raises CannotPrepare, ResourceBusy, OutcomeNotYours, BranchUnknown."""
        ...

    async def commit(self) -> None:
        """Commit in one phase. After `BranchUnknown`, begin again and `enter` the same step: REPEATED says it was."""
        ...

    async def commit_last(self) -> Outcome:
        """Commit the work and, with it, the transaction; "abort" if recovery was first, and then nothing is committed.
        After `BranchUnknown`, `settle_last` tells."""
        ...

    async def rollback(self) -> None:
        """Nothing of it stays. Harmless when the work has ended, however it did; a lost connection is no error."""
        ...


@runtime_checkable
class Resource(Protocol[ConnectionT_co]):
    """Everything Tutti asks of a database. It starts when it is first used; a bus that uses it closes it, unless it was
    started before. Whoever wants to know at once whether it can be reached starts it, and closes it."""

    @property
    def name(self) -> str: ...

    @property
    def prepares(self) -> bool:
        """Whether works can `prepare`. One that cannot is compensatable, or the last resource."""
        ...

    async def start(self) -> bool:
        """Before use. False if it was started already: whoever did that closes it."""
        ...

    async def close(self) -> None:
        """After use. It may be started again."""
        ...

    async def preflight(self, *, barrier: bool = False) -> Preflight:
        """Raises `ResourceUnfit`, which says what to set, unless the resource can do what it is for. With `barrier` it
        also has its table; whoever calls `enter`, `undo`, `commit_last` or `settle_last` asks for that once before."""
        ...

    async def begin(self, branch: BranchId) -> Work[ConnectionT_co]: ...

    async def commit(self, branch: BranchId, *, decided: bool) -> None:
        """Commit a prepared branch. One that is not there was finished before if the outcome is `decided`, and is
        `NoSuchBranch` if it is not (an operator's own decision)."""
        ...

    async def rollback(self, branch: BranchId, *, decided: bool) -> None: ...

    async def recover(self, owner: str = "") -> Sequence[InDoubt]:
        """The prepared branches of this owner in this database, oldest first; of all owners, where a doctor looks.
        Those of other prefixes are never listed."""
        ...

    async def completed(self, branch: BranchId) -> Sequence[CompletedStep]:
        """Steps that were entered, committed, and not yet undone, in the order of their numbers."""
        ...

    async def unsettled(self, owner: str) -> Sequence[BranchId]:
        """Branches of this owner with barrier rows that nobody told to `forget`: what a participant that keeps no other
        log recovers from."""
        ...

    async def settle_last(self, branch: BranchId) -> Outcome:
        """The outcome that the last resource holds; if there is none yet, it is "abort" from now on."""
        ...

    async def forget(self, branch: BranchId) -> None:
        """Remove its barrier rows, once nothing of this transaction can come back."""
        ...
