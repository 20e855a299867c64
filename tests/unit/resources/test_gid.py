from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutti.errors import DeclarationError
from tutti.resources.gid import BranchId, branch_of, gid_of, gid_start

PART = st.text(alphabet="abcXYZ019_-", min_size=1, max_size=40)


def test_a_name_is_its_four_parts() -> None:
    assert gid_of("tutti", BranchId("rooms", "j1-9f", "calendar")) == "tutti:rooms:j1-9f:calendar"


@given(PART, PART, PART, PART)
def test_a_name_is_read_back(prefix: str, owner: str, tx: str, name: str) -> None:
    branch = BranchId(owner, tx, name)
    gid = gid_of(prefix, branch)
    assert branch_of(prefix, owner, gid) == branch
    assert gid.startswith(gid_start(prefix, owner))
    assert branch_of(prefix, "", gid) == branch
    assert gid.startswith(gid_start(prefix, ""))
    assert branch_of(f"{prefix}x", "", gid) is None


@given(st.tuples(PART, PART), st.tuples(PART, PART), PART, PART)
def test_another_prefix_or_owner_is_never_ours(
    mine: tuple[str, str], others: tuple[str, str], tx: str, name: str
) -> None:
    prefix, owner = mine
    gid = gid_of(prefix, BranchId(owner, tx, name))
    if others != mine:
        assert branch_of(*others, gid) is None
        assert not gid.startswith(gid_start(*others))


@pytest.mark.parametrize("gid", ["", "tutti:rooms", "tutti:rooms:a:b:c", "tutti:rooms::b", "tutti:rooms:a b:c", "x"])
def test_what_only_looks_like_ours_is_not(gid: str) -> None:
    assert branch_of("tutti", "rooms", gid) is None


@pytest.mark.parametrize("part", ["", "a:b", "a b", "a'b", "é", "a\n", "a.b"])
def test_characters_are_strict(part: str) -> None:
    for branch in (BranchId(part, "t", "b"), BranchId("o", part, "b"), BranchId("o", "t", part)):
        with pytest.raises(DeclarationError, match="letters, digits"):
            gid_of("tutti", branch)
    with pytest.raises(DeclarationError, match="prefix"):
        gid_of(part, BranchId("o", "t", "b"))


def test_a_name_has_at_most_199_characters() -> None:
    assert len(gid_of("tutti", BranchId("o", "t", "b" * 189))) == 199
    with pytest.raises(DeclarationError, match="200 characters"):
        gid_of("tutti", BranchId("o", "t", "b" * 190))
