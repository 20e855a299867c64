"""Chance, faults in force, and who watches."""

from __future__ import annotations

import pytest

from tests.unit.simulation.quiet import ground
from tutti.control.participation.messages import Park, Stuck
from tutti.model.transaction import Consumed, Decision
from tutti.simulation.checkers import Violation
from tutti.simulation.facts import Proposed
from tutti.simulation.faults import Crash, Faults

PARK = Park(Consumed("manager", "A", 1, 1), "busy")


def test_a_fault_strikes_and_is_counted() -> None:
    world = ground()
    assert not world.strikes(0.0, "a message is lost")
    assert world.strikes(1.0, "a message is lost")
    assert world.fired == {"a message is lost": 1}


def test_a_process_dies_at_its_effect_the_time_that_was_drawn() -> None:
    world = ground(Faults(crashes=(Crash("member", "Park", "before", 1, 4.0),)))
    assert world.crash_due("member", PARK, "before") is None, "skipped"
    assert world.crash_due("member", PARK, "after") is None
    assert world.crash_due("manager", PARK, "before") is None
    assert world.crash_due("member", Stuck("x"), "before") is None
    assert world.crash_due("member", PARK, "before") == 4.0
    assert world.crash_due("member", PARK, "before") is None, "once"
    assert world.fired["crash of a member before Park"] == 1


def test_a_healed_world_has_no_faults() -> None:
    world = ground(Faults(loss=1.0))
    world.heal()
    assert world.healed
    assert world.faults == Faults()


def test_what_is_seen_is_traced_and_judged() -> None:
    world = ground()
    wrong = Proposed("j1-1", Decision("j1-1", "commit", 1))
    with pytest.raises(Violation, match="validity"):
        world.see("p0", wrong)
    assert len(world.trace) == 1
