from __future__ import annotations

import hashlib

import pytest

from tutti.errors import DeclarationError
from tutti.model.transaction import Decision, Offer, counted, everybody, journal_of, lacking, member_hash, total


def test_a_transaction_id_names_its_journal() -> None:
    assert journal_of("j1-abc-def") == "j1"


@pytest.mark.parametrize("tx", ["", "j1", "-abc", "j1-"])
def test_what_is_no_transaction_id_is_refused(tx: str) -> None:
    with pytest.raises(DeclarationError):
        journal_of(tx)


def test_a_member_is_named_by_a_hash_of_transaction_and_pseudonym() -> None:
    assert member_hash("j1-a", "p") == hashlib.sha256(b"j1-a\x1fp").hexdigest()[:32]
    assert len({member_hash("j1-a", "p"), member_hash("j1-b", "p"), member_hash("j1-a", "q")}) == 3


def test_the_row_decides_for_everybody_but_the_excluded() -> None:
    row = Decision("j1-a", "commit", 1, excluded=("h2",))
    assert (row.outcome_for("h1"), row.outcome_for("h2")) == ("commit", "abort")


def test_counts() -> None:
    counts = {"manager": {"A": 2, "B": 1}, "h1": {"A": 1}}
    assert total(counts) == 4
    assert counted(counts, "manager", "A") == 2
    assert counted(counts, "h2", "A") == 0
    assert counted(counts, "h1", "B") == 0


def test_what_differs_counts_only_for_handled_types() -> None:
    sent = {"manager": {"A": 2, "B": 1}}
    assert list(lacking(sent, {"manager": {"A": 2}}, ["A"])) == []
    assert list(lacking(sent, {"manager": {"A": 2}}, ["A", "B"])) == [("manager", "B")]
    assert list(lacking(sent, {"manager": {"A": 3}}, ["A"])) == [("manager", "A")]
    assert list(lacking({}, {"h1": {"A": 1}}, ["A"])) == [("h1", "A")]


def test_everybody_is_vital_unless_said_otherwise() -> None:
    assert everybody(Offer("p"))
