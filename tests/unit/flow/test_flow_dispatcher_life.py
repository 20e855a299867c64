"""The table of an event's life makes sense as a table."""

from __future__ import annotations

from tutti.flow.dispatcher.life import BURYING, DONE, FORGOTTEN, NOBODY, ORPHANED, TRANSITIONS, WAITING, Cause, Life


def reachable(start: Life, *, without: frozenset[Cause] = frozenset()) -> set[Life]:
    found = {start}
    grown = True
    while grown:
        more = {life for known in found for cause, life in TRANSITIONS[known].items() if cause not in without}
        grown = not more <= found
        found |= more
    return found


def test_every_life_has_a_row_and_is_reached() -> None:
    assert set(TRANSITIONS) == set(Life)
    assert reachable(WAITING) == set(Life)


def test_every_life_can_end() -> None:
    assert all(reachable(life) & {DONE, FORGOTTEN} for life in Life)


def test_nothing_comes_back_from_the_end() -> None:
    assert reachable(DONE) == {DONE, FORGOTTEN}
    assert reachable(FORGOTTEN) == {FORGOTTEN}


def test_while_a_partition_is_ours_nothing_of_it_is_forgotten() -> None:
    ours = reachable(WAITING, without=frozenset({Cause.REVOCATION, Cause.DRAINING}))
    assert not ours & {FORGOTTEN, ORPHANED}


def test_only_a_burial_ends_a_burying_that_is_ours() -> None:
    assert [cause for cause, life in TRANSITIONS[BURYING].items() if life is DONE] == [Cause.BURIAL]


def test_every_life_of_ours_can_be_revoked() -> None:
    assert all(Cause.REVOCATION in TRANSITIONS[life] for life in Life if life is not ORPHANED)


def test_the_shared_empty_queue_stays_empty() -> None:
    assert NOBODY.maxlen == 0
