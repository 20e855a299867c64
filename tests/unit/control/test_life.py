"""The tables of the two large machines, and of their parts, as data."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import pytest

from tutti.control import census, closing, commitment, compensation, doubt
from tutti.control.participation import finishing
from tutti.control.participation import life as participation
from tutti.control.participation.life import FINISHING, QUESTIONS, RESUMED, Cause, Guard, Stage
from tutti.control.table import Row
from tutti.control.transaction import life as transaction

TABLES = {
    module.__name__: (module.Stage, module.TRANSITIONS)
    for module in (census, closing, commitment, compensation, doubt, finishing, participation, transaction)
}


@pytest.mark.parametrize(("stages", "table"), TABLES.values(), ids=TABLES)
def test_every_stage_has_its_rows_and_can_be_reached(
    stages: type[StrEnum], table: Mapping[StrEnum, Mapping[StrEnum, Row[Any, Any]]]
) -> None:
    assert set(table) == set(stages)
    first = next(iter(stages))
    reached = {first} | {row.to for rows in table.values() for row in rows.values()}
    assert reached == set(stages)


def test_after_yes_only_what_the_manager_signed_leads_on_unless_an_operator_decides() -> None:
    rows = participation.TRANSITIONS[Stage.VOTED]
    operator = {Cause.RESOLVE_COMMIT, Cause.RESOLVE_ABORT}
    for cause, row in rows.items():
        assert row.to is Stage.VOTED or cause in operator or Guard.MANAGER in row.guards
    assert not {Cause.FAILURE, Cause.SURRENDER} & rows.keys()


def test_commit_comes_only_after_yes() -> None:
    commits = {stage for stage, rows in participation.TRANSITIONS.items() if Cause.COMMIT in rows}
    assert commits == {Stage.VOTED}


def test_each_state_of_doubt_has_its_question_and_the_log_its_stage() -> None:
    assert set(QUESTIONS.values()) == {"joined", "working", "voted"}
    assert RESUMED["voted"] is Stage.VOTED
    assert not FINISHING & QUESTIONS.keys()


def test_every_vote_is_guarded_by_list_key_epoch_and_once() -> None:
    voter = {commitment.Guard.MEMBER, commitment.Guard.KEY, commitment.Guard.EPOCH, commitment.Guard.FIRST}
    votes = {commitment.Cause.YES, commitment.Cause.NO, commitment.Cause.STILL_OPEN}
    for rows in commitment.TRANSITIONS.values():
        for cause in votes & rows.keys():
            assert voter <= set(rows[cause].guards)
