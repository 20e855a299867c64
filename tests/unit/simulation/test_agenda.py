"""What happens next."""

from __future__ import annotations

from tutti.simulation.agenda import Agenda


def test_what_is_due_first_happens_first_and_ties_keep_their_order() -> None:
    agenda, done = Agenda(), []
    agenda.at(2.0, lambda: done.append("c"))
    agenda.at(1.0, lambda: done.append("a"))
    agenda.at(1.0, lambda: done.append("b"))
    while agenda.step(5.0):
        pass
    assert done == ["a", "b", "c"]
    assert (agenda.now, agenda.steps) == (5.0, 3)


def test_nothing_happens_in_the_past_or_too_early() -> None:
    agenda, done = Agenda(), []
    agenda.now = 3.0
    agenda.at(1.0, lambda: done.append(agenda.now))
    agenda.later(4.0, lambda: done.append(agenda.now))
    assert agenda.step(6.0)
    assert not agenda.step(6.0)
    assert done == [3.0]
    assert agenda.now == 6.0
