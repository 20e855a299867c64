"""Managers and members in a small world: messages are lost, repeated, late and forged; the journal fails before and
after it wrote; members and managers crash at any effect, members come back from their own log, managers as successors.

Watched at every step (in `tests/unit/control/small_world.py`): nothing is announced before the row; the row never
changes and commits only with a yes, for this round and written down, of everybody who is not left out; a vote never
changes; after a yes nobody aborts alone; nobody commits against the row. When the faults stop: everything ends, no
branch stays prepared, and every member's database shows exactly what the row says, once.

`play(seed)` replays a failure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.control.small_world import TX, World, play
from tutti.control import census, closing, commitment
from tutti.control.participation import life
from tutti.control.table import Row, follow
from tutti.errors import InvariantViolated

SEEDS = 1_200
CHUNK = 200


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_any_order_duplication_loss_crash_and_forgery(first: int) -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(first, first + CHUNK):
        try:
            world = play(seed)
        except (AssertionError, InvariantViolated) as error:
            pytest.fail(f"play({seed}): {error}")
        outcomes[world.decisions[TX].outcome if TX in world.decisions else "never began"] += 1
        outcomes["crashes"] += world.crashes
    assert outcomes["commit"] > 0.3 * CHUNK, f"a system that aborts everything proves nothing: {outcomes}"
    assert outcomes["abort"] > 0.1 * CHUNK, outcomes
    assert outcomes["crashes"] > 0.3 * CHUNK, outcomes


def test_the_same_seed_is_the_same_world() -> None:
    def fingerprint(world: World) -> object:
        return world.sent, world.decisions, world.log, world.crashes, [member.applied for member in world.members]

    for seed in range(20):
        assert fingerprint(play(seed)) == fingerprint(play(seed))


@given(st.integers(min_value=SEEDS))
@settings(max_examples=150, deadline=None)
def test_any_other_seed(seed: int) -> None:
    play(seed)


# Guards that are taken away: somebody must notice.

MUTANTS: list[tuple[dict[Any, dict[Any, Row[Any, Any]]], StrEnum, StrEnum, StrEnum]] = [
    (commitment.TRANSITIONS, commitment.Stage.VOTING, commitment.Cause.YES, commitment.Guard.MEMBER),
    (commitment.TRANSITIONS, commitment.Stage.VOTING, commitment.Cause.YES, commitment.Guard.KEY),
    (commitment.TRANSITIONS, commitment.Stage.VOTING, commitment.Cause.YES, commitment.Guard.EPOCH),
    (commitment.TRANSITIONS, commitment.Stage.VOTING, commitment.Cause.YES, commitment.Guard.ROUND),
    (commitment.TRANSITIONS, commitment.Stage.VOTING, commitment.Cause.COMPLETE, commitment.Guard.VITAL_YES),
    (commitment.TRANSITIONS, commitment.Stage.VOTING, commitment.Cause.COMPLETE, commitment.Guard.SETTLED),
    (commitment.TRANSITIONS, commitment.Stage.VOTING, commitment.Cause.COMPLETE, commitment.Guard.REQUIREMENTS),
    (commitment.TRANSITIONS, commitment.Stage.DECIDED, commitment.Cause.ENDING, commitment.Guard.MEMBER),
    (life.TRANSITIONS, life.Stage.WORKING, life.Cause.EVENT, life.Guard.NEW_EVENT),
    (life.TRANSITIONS, life.Stage.WORKING, life.Cause.READY, life.Guard.COUNTS_AGREE),
    (life.TRANSITIONS, life.Stage.VOTED, life.Cause.COMMIT, life.Guard.MANAGER),
    (life.TRANSITIONS, life.Stage.VOTED, life.Cause.ABORT, life.Guard.MANAGER),
    (life.TRANSITIONS, life.Stage.VOTED, life.Cause.PREPARE, life.Guard.LATER_ROUND),
    (census.TRANSITIONS, census.Stage.INVITING, census.Cause.FULFILMENT, census.Guard.ENOUGH),
    (closing.TRANSITIONS, closing.Stage.COUNTING, closing.Cause.RELEASE, closing.Guard.DEFERRED),
]


@pytest.mark.parametrize(
    ("table", "state", "cause", "guard"), MUTANTS, ids=[f"{m[1]}: {m[2]}: {m[3]}" for m in MUTANTS]
)
def test_a_guard_that_is_missing_is_noticed(
    table: dict[Any, dict[Any, Row[Any, Any]]],
    state: StrEnum,
    cause: StrEnum,
    guard: StrEnum,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row = table[state][cause]
    assert guard in row.guards
    monkeypatch.setitem(table[state], cause, Row(row.to, tuple(other for other in row.guards if other != guard)))
    for seed in range(500):
        try:
            play(seed)
        except (AssertionError, InvariantViolated, RecursionError):
            return
    pytest.fail(f"nobody noticed that {guard!r} is missing")


@given(st.data())
def test_without_a_row_or_with_a_guard_that_fails_nothing_happens(data: st.DataObject) -> None:
    table: Mapping[Any, Mapping[Any, Row[Any, Any]]] = commitment.TRANSITIONS
    state = data.draw(st.sampled_from(list(commitment.Stage)))
    cause = data.draw(st.sampled_from(list(commitment.Cause)))
    refused = data.draw(st.sampled_from(list(commitment.Guard)))
    after = follow(commitment.TRANSITIONS, state, cause, lambda guard: guard is not refused)
    row = table[state].get(cause)
    assert after == (row.to if row is not None and refused not in row.guards else None)
