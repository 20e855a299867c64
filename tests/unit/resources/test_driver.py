from __future__ import annotations

import pytest

from tutti.errors import (
    BranchUnknown,
    CannotPrepare,
    ResourceBusy,
    ResourceError,
    ResourceUnfit,
    ResourceUnreachable,
)
from tutti.resources.postgres.driver import (
    committing_failed,
    connecting_failed,
    fault_of,
    preparing_failed,
    working_failed,
)


@pytest.mark.parametrize(
    ("sqlstate", "message", "kind", "hint"),
    [
        (
            "0A000",
            "cannot PREPARE a transaction that has operated on temporary objects",
            CannotPrepare,
            "ordinary table",
        ),
        ("0A000", "cannot PREPARE … executed LISTEN, UNLISTEN, or NOTIFY", CannotPrepare, "publish an event"),
        ("0A000", "cannot PREPARE … created a cursor WITH HOLD", CannotPrepare, "close the cursor"),
        ("0A000", "cannot PREPARE a transaction that has exported snapshots", CannotPrepare, "snapshot"),
        ("0A000", "cannot PREPARE for a new reason", CannotPrepare, "compensatable"),
        ("25P02", "current transaction is aborted", CannotPrepare, "savepoint"),
        ("55000", "prepared transactions are disabled", ResourceUnfit, "max_prepared_transactions"),
        ("53200", "maximum number of prepared transactions reached", ResourceBusy, "max_prepared_transactions"),
        ("42710", "transaction identifier is already in use", ResourceBusy, "finish it first"),
        ("40001", "could not serialize access", ResourceBusy, "tried again"),
        ("23505", "duplicate key in a deferred constraint", ResourceError, "rolled back"),
        ("57P01", "terminating connection due to administrator command", BranchUnknown, "roll the branch back"),
        ("08006", "connection failure", BranchUnknown, "roll the branch back"),
    ],
)
def test_why_a_branch_was_not_prepared(sqlstate: str, message: str, kind: type[ResourceError], hint: str) -> None:
    error = preparing_failed("calendar", "tutti:o:t:b", fault_of(sqlstate, message, lost=False))
    assert type(error) is kind
    assert message in error.what or kind is CannotPrepare
    assert "tutti:o:t:b" in error.what
    assert hint in error.hint


def test_a_lost_connection_rolls_work_back_but_leaves_a_commit_unknown() -> None:
    lost = fault_of(None, "reset by peer", lost=True)
    assert type(working_failed("here", lost)) is ResourceUnreachable
    assert type(committing_failed("here", lost)) is BranchUnknown
    assert type(committing_failed("here", fault_of("40001", "", lost=False))) is ResourceBusy


@pytest.mark.parametrize(
    ("sqlstate", "kind"),
    [
        ("53300", ResourceBusy),
        ("28P01", ResourceUnfit),
        ("28000", ResourceUnfit),
        ("3D000", ResourceUnfit),
        ("57P03", ResourceUnreachable),
        (None, ResourceUnreachable),
    ],
)
def test_why_there_is_no_connection(sqlstate: str | None, kind: type[ResourceError]) -> None:
    assert type(connecting_failed("calendar", fault_of(sqlstate, "no", lost=False))) is kind
