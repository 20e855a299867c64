"""The schedule follows from the seed, and leaves out nobody."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.chaos.transactions.schedule import (
    INSTANCES,
    MANAGER_STEPS,
    MEMBER_STEPS,
    PHASES,
    POSTGRES,
    ROLES,
    schedule,
)
from tests.chaos.transactions.workload import Deal


def test_the_same_seed_gives_the_same_schedule_and_transfers() -> None:
    assert schedule(7, 8) == schedule(7, 8) != schedule(8, 8)
    assert Deal.drawn(7, "publisher-1", 3) == Deal.drawn(7, "publisher-1", 3) != Deal.drawn(8, "publisher-1", 3)


@pytest.mark.parametrize("seed", range(20))
def test_every_role_dies_in_every_phase_and_postgres_once(seed: int) -> None:
    aims = schedule(seed)
    assert Counter((aim.role, aim.phase) for aim in aims if aim.role != POSTGRES) == Counter(
        (role, phase) for role in ROLES for phase in PHASES
    )
    assert sum(aim.role == POSTGRES for aim in aims) == 1
    assert [aim.at for aim in aims] == sorted(aim.at for aim in aims)
    assert len({aim.name for aim in aims}) == len(aims)
    assert all(0 < aim.at < 1 and aim.also != aim.role for aim in aims)


def test_every_phase_can_be_seen() -> None:
    assert set(MEMBER_STEPS) == set(PHASES)
    assert set(MANAGER_STEPS) == set(PHASES) - {"compensating"}  # seen at the subscriber that compensates
    assert set(INSTANCES) >= set(ROLES) - {"server"}


def test_the_transfers_are_of_all_kinds() -> None:
    deals = [Deal.drawn(1, "publisher-1", number) for number in range(300)]
    for kind in ("census", "own", "last"):
        assert 60 < sum(getattr(deal, kind) for deal in deals) < 160
    assert {deal.transfer.refused_by for deal in deals} == {"", "north", "south"}
    assert {deal.scope for deal in deals} == {"private", "public"}
    assert 20 < sum(deal.transfer.booked for deal in deals) < 80
