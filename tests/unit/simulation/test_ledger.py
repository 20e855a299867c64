"""What is entered, and what can be asked."""

from __future__ import annotations

import inspect

from tutti.model.messages import MANAGER, Close, Prepare, Vote
from tutti.model.transaction import Consumed, Decision
from tutti.simulation import facts as f
from tutti.simulation.ledger import Ledger

TX, A = "j1-1", "hash of a"
E1 = Consumed("manager", "A", 1, 1)


def test_every_kind_of_fact_has_its_place() -> None:
    kinds = {kind for _, kind in inspect.getmembers(f, inspect.isclass) if issubclass(kind, f.Fact)} - {f.Fact}
    assert Ledger()._enter.keys() == kinds


def test_a_yes_binds_until_the_manager_asks_for_another_round() -> None:
    ledger = Ledger()
    ledger.enter(f.Sent(TX, "p0", Prepare(TX, 1, 1, {}, 60.0), MANAGER))
    assert not ledger.bound(TX, A)
    ledger.enter(f.Sent(TX, "s0", Vote(TX, 1, 1, A, "yes"), "ka"))
    assert ledger.bound(TX, A)
    ledger.enter(f.Sent(TX, "s0", Close(TX, 1, 9), "ka"))
    assert ledger.bound(TX, A), "only the manager can take it back"
    ledger.enter(f.Sent(TX, "p0", Close(TX, 1, 2), MANAGER))
    assert not ledger.bound(TX, A)


def test_the_first_row_stands() -> None:
    ledger = Ledger()
    assert ledger.outcome_for(TX, A) is None
    ledger.enter(f.Decided(TX, Decision(TX, "commit", 1, excluded=(A,))))
    ledger.enter(f.Decided(TX, Decision(TX, "abort", 1)))
    assert ledger.outcome_for(TX, A) == "abort", "it is left out"
    assert ledger.outcome_for(TX, "another") == "commit"


def test_what_is_undone_is_not_there_any_more() -> None:
    ledger = Ledger()
    ledger.enter(f.Applied(TX, A, E1, prepared=False))
    ledger.enter(f.Undone(TX, A, E1))
    assert (ledger.applied[A], ledger.undone[A]) == ([], [E1])


def test_demands_are_met_and_requests_answered() -> None:
    ledger = Ledger()
    ledger.enter(f.Demanded(TX, "child"))
    ledger.enter(f.Asked(TX, 1, "commit"))
    ledger.enter(f.Asked(TX, 2, "abort"))
    assert (ledger.demands[TX], ledger.waiting[TX]) == ({"child"}, {1})
    ledger.enter(f.Fulfilled(TX, "child"))
    assert ledger.demands[TX] == set()


def test_places_have_the_names_of_their_sites() -> None:
    ledger = Ledger()
    assert ledger.who(A) == A
    ledger.enter(f.Joined(TX, A, "ka", "s0", (), compensatable=False))
    assert ledger.who(A) == "s0"
