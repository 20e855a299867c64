"""The checkers bite: every planted bug is noticed, by whom it should be."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from tutti.simulation import planted
from tutti.simulation.checkers import INVARIANTS
from tutti.simulation.planted import BUGS, TABLES, Bug
from tutti.simulation.run import play
from tutti.simulation.scenario import draw

SEEDS_COUNT = 500


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_noticed(bug: Bug) -> None:
    caught = planted.catch(bug.name, bug.plant, range(SEEDS_COUNT))
    assert caught.failure is not None, f"{caught.seeds} scenarios did not notice"
    assert caught.failure.invariant in bug.noticed_by, caught.failure


def test_every_invariant_notices_a_planted_bug() -> None:
    assert {name for bug in BUGS for name in bug.noticed_by} == {invariant.name for invariant in INVARIANTS}


def test_what_was_planted_is_taken_out_again() -> None:
    before = play(draw(1))[1].digest()
    tables = repr(TABLES)
    for plant in [bug.plant for bug in BUGS] + [plant for _, plant in planted.mutants()]:
        with plant():
            pass
    assert repr(TABLES) == tables
    assert play(draw(1))[1].digest() == before


def test_there_is_a_mutant_for_every_guard() -> None:
    guards = sum(len(row.guards) for table in TABLES.values() for rows in table.values() for row in rows.values())
    mutants = list(planted.mutants())
    assert len(mutants) == guards > 90
    assert len({name for name, _ in mutants}) == guards


def test_a_mutant_lacks_its_guard() -> None:
    name, plant = next(
        (name, plant) for name, plant in planted.mutants() if name.startswith("participation: working, abort")
    )
    caught = planted.catch(name, plant, range(20))
    assert caught.failure is not None
    assert caught.failure.invariant == "strangers"


def test_without_a_bug_nobody_objects() -> None:
    assert planted.catch("nothing", nullcontext, range(3)) == planted.Catch("nothing", 3, None)
