from __future__ import annotations

import pytest

from tutti.errors import OutcomeNotYours
from tutti.resources.postgres.statements import changes, notifies, refuse_ending


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("commit", "COMMIT"),
        ("COMMIT WORK;", "COMMIT"),
        ("  end", "END"),
        ("-- a\n/* b */ -- c\nRollback", "ROLLBACK"),
        ("rollback and chain", "ROLLBACK"),
        ("rollback prepared 'x'", "ROLLBACK"),
        ("abort;", "ABORT"),
        ("begin", "BEGIN"),
        ("start   transaction", "START TRANSACTION"),
        ("prepare\ntransaction 'x'", "PREPARE TRANSACTION"),
        ("discard all", "DISCARD"),
    ],
)
def test_what_ends_or_begins_a_transaction_is_refused(statement: str, named: str) -> None:
    with pytest.raises(OutcomeNotYours) as raised:
        refuse_ending(statement)
    assert raised.value.what.startswith(f"{named} on a connection")


@pytest.mark.parametrize(
    "statement",
    [
        "",
        "insert into commit values (1)",
        "rollback to savepoint a",
        "ROLLBACK WORK TO a",
        "rollback transaction to a",
        "savepoint commit",
        "release savepoint a",
        "ending",
        "prepare p as select 1",
        "select 'x'; -- commit",
        "create function f() returns void language plpgsql as $$ begin perform 1; end; $$",
        "do $$ begin null; end $$",
    ],
)
def test_the_rest_passes(statement: str) -> None:
    refuse_ending(statement)


@pytest.mark.parametrize("statement", ["notify a", "LISTEN a", "select pg_notify('a', '')", "unlisten *"])
def test_notifications_are_noticed(statement: str) -> None:
    assert notifies(statement)


def test_other_statements_do_not_notify() -> None:
    assert not notifies("insert into listeners values ('notified')")


@pytest.mark.parametrize("statement", ["insert into a values (1)", "-- b\n UPDATE a SET b = 1", "/* c */ merge into a"])
def test_what_changes_something_as_a_rule_is_known(statement: str) -> None:
    assert changes(statement)


@pytest.mark.parametrize("statement", ["select 1", "SELECT 'update'", "insertion()", "", "with a as (insert into b)"])
def test_whatever_else_is_left_to_the_server(statement: str) -> None:
    assert not changes(statement)
