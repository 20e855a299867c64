"""The command, as people and machines see it."""

from __future__ import annotations

import json

import pytest

from tutti.simulation import planted
from tutti.simulation.__main__ import main
from tutti.simulation.run import play
from tutti.simulation.scenario import draw


def test_a_green_suite(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "3", "--from", "10"]) == 0
    *shown, last = capsys.readouterr().out.splitlines()
    figures = json.loads(last)
    assert (figures["scenarios"], figures["from"], figures["violations"], figures["green"]) == (3, 10, [], True)
    assert figures["committed"] + figures["aborted"] + figures["never_began"] == figures["transactions"]
    text = "\n".join(shown)
    for word in (
        "3 scenarios",
        "scenarios/s",
        "committed",
        "heuristic",
        "violations",
        "a message is lost",
        "crash of a",
    ):
        assert word in text
    assert "no rule was broken" in text


def test_json_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "1", "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["scenarios"] == 1


def test_a_violation_is_told_with_the_command_that_replays_it(capsys: pytest.CaptureFixture[str]) -> None:
    (bug,) = (bug for bug in planted.BUGS if bug.name == "a yes before the own log")
    with bug.plant():
        assert main(["--seeds", "5"]) == 1
        told = capsys.readouterr().out
        assert main(["--seed", "0", "--trace"]) == 1
        replayed = capsys.readouterr().out
        assert main(["--seed", "0", "--shrink"]) == 1
        shrunk = capsys.readouterr().out
    assert "seed 0 breaks 'write-ahead'" in told
    assert "again: python -m tutti.simulation --seed 0 --trace" in told
    assert "seed 4 breaks 'write-ahead'; again: python -m tutti.simulation --seed 4 --trace" in told
    assert "red: 5 scenarios broke a rule" in told
    assert [one["check"] for one in json.loads(told.splitlines()[-1])["violations"]] == ["write-ahead"] * 5
    assert "WriteLog(" in replayed
    assert json.loads(replayed.splitlines()[-1])["violations"][0]["check"] == "write-ahead"
    assert "left are 1 transactions" in shrunk


def test_one_seed_and_one_transaction(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "7", "--trace", "--tx", "j1-0"]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert json.loads(last)["digest"] == play(draw(7))[1].digest()
    assert any(" j1-0 " in line for line in lines)
    assert not any(" j1-1 " in line[:40] for line in lines)


def test_planted_bugs_and_mutants_are_counted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planted, "BUGS", planted.BUGS[:2])
    assert main(["--planted"]) == 0
    out = capsys.readouterr().out
    assert json.loads(out.splitlines()[-1]) == {"planted": 2, "noticed": 2, "most_seeds": 1}
    assert "commit before all votes" in out.replace("\n", " ")
    monkeypatch.setattr(planted, "mutants", lambda: [("a mutant", planted.BUGS[0].plant)])
    assert main(["--mutants"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {"mutants": 1, "noticed": 1, "share": 1.0}
