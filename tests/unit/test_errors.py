"""The error tree: as it is drawn, and as it speaks."""

from __future__ import annotations

import re

import pytest

from tutti import errors
from tutti.errors import FilterError, InvariantViolated, TuttiError, TypeConflict, invariant


def drawn() -> dict[str, str]:
    """Name and parent of every error in the module's picture."""
    parents: dict[str, str] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        if found := re.match(r"^((?:│   |    )*(?:├── |└── )?)([A-Z]\w+)", line):
            depth = len(found[1]) // 4
            if depth == 0 and found[2] != "TuttiError":
                continue  # prose
            path = [*path[:depth], found[2]]
            parents[found[2]] = path[depth - 1] if depth else "Exception"
    return parents


def test_the_picture_shows_the_real_tree() -> None:
    real = {
        name: value.__mro__[1].__name__
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, TuttiError)
    }
    assert drawn() == real


def test_an_error_says_what_and_what_to_do() -> None:
    error = TuttiError("the server is full", hint="purge the stream")
    assert (error.what, error.hint) == ("the server is full", "purge the stream")
    assert str(error) == "the server is full\n  hint: purge the stream"
    assert str(TuttiError("the server is full")) == "the server is full"


def test_a_filter_error_points_at_the_character() -> None:
    error = FilterError("unknown operator", text="a = 1\nAND b ?? 2", position=12, hint="use =")
    assert str(error) == "unknown operator\n  AND b ?? 2\n        ^\n  hint: use ="
    assert error.position == 12


@pytest.mark.parametrize("position", [0, 500, 999, 1000])
def test_a_long_filter_is_shown_around_the_fault(position: int) -> None:
    _, shown, pointer = str(FilterError("wrong", text="x" * 1000, position=position)).split("\n")
    assert len(shown) <= 122
    assert pointer.index("^") <= len(shown)


def test_a_tab_does_not_move_the_pointer() -> None:
    _, shown, pointer = str(FilterError("wrong", text="\ta ?", position=3)).split("\n")
    assert shown[pointer.index("^")] == "?"


def test_a_type_conflict_names_the_fields() -> None:
    assert TypeConflict("TradeDone changed", clashes=("price: decimal became string",)).clashes


def test_an_invariant_raises_and_asks_for_a_report() -> None:
    invariant([0], "never said")
    with pytest.raises(InvariantViolated, match=r"positions only grow\n  hint: this is a bug in Tutti"):
        invariant([], "positions only grow")
