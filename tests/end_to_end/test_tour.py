"""The main job, played in earnest: eight processes, a poisoned event, a handler that raises, a killed server."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from examples.mediator_tour.events import EXCHANGES, TradeDone, trades
from examples.mediator_tour.ledger import DESKS, EXPECTED_LETTERS, Ledger, Letter, Line
from tests.leftovers import processes_left

ROOT = Path(__file__).parents[2]


def test_the_tour_keeps_its_promises(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "examples.mediator_tour", "--count", "150", "--seconds", "4"],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "Nothing lost, order kept." in ran.stdout
    assert "450 of 450 trades published" in ran.stdout
    assert "refuses a quantity of 13 (after 3 attempts)" in ran.stdout
    assert "price" in ran.stdout
    assert "was killed" in ran.stdout
    assert ran.stderr == ""
    assert list(tmp_path.glob("tutti-tour-*")) == []


def played(count: int = 100) -> Ledger:
    """A ledger of a day on which everything went well."""
    ledger = Ledger(count)
    for exchange in EXCHANGES:
        for trade in trades(exchange, count):
            ledger.note_stored(exchange, trade.number)
            for desk, (_, wanted) in DESKS.items():
                if wanted(trade):
                    ledger.note_handled(desk, exchange, trade.number, trade.symbol)
    ledger.letters = list(EXPECTED_LETTERS)
    return ledger


def test_a_good_day_holds() -> None:
    ledger = played()
    assert ledger.complete
    assert all(verdict.holds for verdict in ledger.verdicts())


@pytest.mark.parametrize(
    ("numbers", "handled", "repeated", "misplaced"),
    [
        ([1, 2, 5, 8], 4, 0, []),
        ([1, 2, 1, 2, 5, 8], 4, 2, []),
        ([1, 5, 2, 8], 2, 0, [5, 8]),
        ([1, 2, 3, 5, 8], 4, 0, [3]),
    ],
)
def test_a_line_notices(numbers: list[int], handled: int, repeated: int, misplaced: list[int]) -> None:
    line = Line([1, 2, 5, 8])
    for number in numbers:
        line.take(number)
    assert (line.handled, line.repeated, line.misplaced) == (handled, repeated, misplaced)


def test_a_bad_day_does_not_hold() -> None:
    swapped, unknown = played(), played()
    swapped.lines["archive", "tokyo"].misplaced.append(7)
    unknown.letters = [Letter("ibm", "x", "something else"), *unknown.letters[1:]]
    for ledger in (swapped, unknown, Ledger(100)):
        assert not all(verdict.holds for verdict in ledger.verdicts())


def test_the_trades_of_the_day_are_always_the_same() -> None:
    assert trades("london", 100) == trades("london", 100)
    assert sum(trade.quantity == 13 for exchange in EXCHANGES for trade in trades(exchange, 200)) == 1
    assert isinstance(trades("tokyo", 1)[0], TradeDone)


def test_an_interrupted_tour_leaves_nothing_behind(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "examples.mediator_tour"],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        for line in process.stdout:
            if "Trading" in line:
                break
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert errors == ""
    assert processes_left(tmp_path) == []
    assert list(tmp_path.glob("tutti-tour-*")) == []
