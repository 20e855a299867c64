"""Sessions, prepared branches, rows and barrier rows."""

from __future__ import annotations

from tests.unit.simulation.quiet import ground
from tutti.model.transaction import Consumed
from tutti.simulation.database import Database
from tutti.simulation.facts import Applied, Committed, Fact, Joined, Prepared, RolledBack, Undone
from tutti.simulation.ground import Ground

TX, PLACE = "j1-1", "own:j1-1"
E1, E2 = Consumed("manager", "A", 1, 1), Consumed("manager", "A", 2, 2)


class Watched(Database):
    def __init__(self) -> None:
        self.world: Ground = ground()
        super().__init__("s0", self.world)
        self.facts: list[Fact] = []
        self.world.judge = self  # type: ignore[assignment]  # here only what is seen matters

    def observe(self, fact: Fact) -> None:
        self.facts.append(fact)


def test_a_branch_is_prepared_and_committed_once() -> None:
    database = Watched()
    database.work(PLACE, 1, E1)
    database.prepare(TX, PLACE, 1)
    database.prepare(TX, PLACE, 1)
    assert database.prepared() == [(TX, PLACE, 1)]
    database.commit(TX, PLACE, (1,))
    database.commit(TX, PLACE, (1,))
    applied = Applied(TX, PLACE, E1, prepared=True)
    assert database.facts == [Prepared(TX, PLACE, 1), Committed(TX, PLACE, 1), applied]
    assert database.prepared() == []


def test_what_is_rolled_back_leaves_nothing() -> None:
    database = Watched()
    database.work(PLACE, 1, E1)
    database.prepare(TX, PLACE, 1)
    database.work(PLACE, 2, E2)
    database.roll_back(TX, PLACE, (1, 2))
    database.commit_session(TX, PLACE, 2)
    assert database.facts == [Prepared(TX, PLACE, 1), RolledBack(TX, PLACE, 1)]


def test_sessions_die_with_the_process_and_prepared_branches_do_not() -> None:
    database = Watched()
    database.work(PLACE, 1, E1)
    database.prepare(TX, PLACE, 1)
    database.work(PLACE, 2, E2)
    database.lose_sessions()
    database.prepare(TX, PLACE, 2)
    database.commit(TX, PLACE, (1, 2))
    assert [fact.event for fact in database.facts if isinstance(fact, Applied)] == [E1]


def test_an_event_is_committed_and_undone_once() -> None:
    database = Watched()
    assert database.commit_event(TX, PLACE, E1)
    assert not database.commit_event(TX, PLACE, E1)
    database.compensate(TX, PLACE, E1)
    database.compensate(TX, PLACE, E1)
    assert not database.commit_event(TX, PLACE, E1), "the barrier"
    assert database.facts == [Applied(TX, PLACE, E1, prepared=False), Undone(TX, PLACE, E1)]


def test_undoing_before_the_work_keeps_the_work_out() -> None:
    database = Watched()
    database.compensate(TX, PLACE, E2)
    assert database.facts == []
    assert database.undone_before(PLACE, E2)
    assert not database.commit_event(TX, PLACE, E2)


def test_it_stands_on_the_ground() -> None:
    world = ground()
    world.see("s0", Joined(TX, PLACE, "k", "s0", ("A",), compensatable=True))
    Database("s0", world).commit_event(TX, PLACE, E1)
    assert world.judge.ledger.applied == {PLACE: [E1]}
