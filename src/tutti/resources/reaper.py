"""Finishing what was left prepared: by a participant that died, or a connection that broke.

The reaper asks the resource for branches of its own prefix and owner, and somebody who knows for the outcome of each.
What is not known is left alone, however old: a branch may be rolled back only when its transaction is known to have
aborted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import assert_never

import msgspec

from tutti.errors import ResourceError
from tutti.resources.gid import BranchId
from tutti.resources.port import InDoubt, Outcome, Resource

OutcomeOf = Callable[[BranchId], Awaitable[Outcome | None]]  # None: not decided, or not known here


class Reaped(msgspec.Struct, frozen=True):
    """`left`: no outcome is known. `failed`: it is, but the database did not let us; the sentence says why."""

    committed: tuple[BranchId, ...] = ()
    rolled_back: tuple[BranchId, ...] = ()
    left: tuple[InDoubt, ...] = ()
    failed: tuple[tuple[BranchId, str], ...] = ()


async def reap(resource: Resource[object], owner: str, outcome_of: OutcomeOf) -> Reaped:
    """Finish every branch of `owner` whose outcome is known. Safe to run at any time, in several processes at once."""
    committed, rolled_back, left, failed = [], [], [], []
    for doubt in await resource.recover(owner):
        outcome = await outcome_of(doubt.branch)
        try:
            match outcome:
                case "commit":
                    await resource.commit(doubt.branch, decided=True)
                    committed.append(doubt.branch)
                case "abort":
                    await resource.rollback(doubt.branch, decided=True)
                    rolled_back.append(doubt.branch)
                case None:
                    left.append(doubt)
                case _:
                    assert_never(outcome)
        except ResourceError as error:
            failed.append((doubt.branch, str(error)))
    return Reaped(tuple(committed), tuple(rolled_back), tuple(left), tuple(failed))
