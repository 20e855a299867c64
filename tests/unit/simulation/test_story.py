"""A failure explains itself."""

from __future__ import annotations

from tutti.simulation import story
from tutti.simulation.checkers import INVARIANTS
from tutti.simulation.planted import BUGS, unchecked
from tutti.simulation.run import play


def test_it_names_the_seed_the_rule_the_trace_and_the_command() -> None:
    (bug,) = (bug for bug in BUGS if bug.name == "a decision before its row")
    with bug.plant():
        report, trace = play(unchecked(1))
    assert report.failure is not None
    lines = story.tell(report, report.failure, trace)
    assert lines[0].startswith(f"seed 1 breaks 'write-ahead' in {report.failure.tx}: p")
    assert "no decision leaves before its row is durable" in lines[1]
    assert "Decide(" in lines[-4], "the last thing that happened"
    assert lines[-2] == "  again: python -m tutti.simulation --seed 1 --trace"
    assert lines[-1] == "  smaller: python -m tutti.simulation --seed 1 --shrink"
    assert len(story.tell(report, report.failure, trace, last=2)) == 7


def test_every_rule_has_words() -> None:
    assert all(story.rule(invariant.name) == invariant.rule for invariant in INVARIANTS)
    assert story.rule("crash") == "a machine takes every input"
