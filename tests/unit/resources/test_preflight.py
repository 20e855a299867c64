from __future__ import annotations

import msgspec
import pytest

from tutti.errors import ResourceUnfit
from tutti.resources.postgres.preflight import Facts, checked, facts_of

FIT = Facts(180_004, "18.4", 200, 100, 3, False, False, True, "on")


def test_a_row_becomes_facts() -> None:
    assert facts_of((180_004, "18.4", 200, 100, 3, False, False, True, "on")) == FIT


def test_a_fit_server() -> None:
    found = checked("calendar", FIT, barrier=True, durable=True)
    assert (found.version, found.prepared_now, found.prepared_max, found.warnings) == ("18.4", 3, 200, ())


@pytest.mark.parametrize(
    ("change", "what", "hint"),
    [
        ({"number": 120_017, "version": "12.17"}, "PostgreSQL 12.17 is too old", "13 or newer"),
        ({"standby": True}, "read-only", "primary"),
        ({"read_only": True}, "read-only", "primary"),
        ({"prepared_max": 0}, "max_prepared_transactions = 0", "ALTER SYSTEM SET max_prepared_transactions"),
        ({"prepared_now": 200}, "all 200 places", "pg_prepared_xacts"),
        ({"fsync": False}, "fsync = off", "fsync = on"),
        ({"synchronous_commit": "off"}, "synchronous_commit = off", "synchronous_commit = on"),
    ],
)
def test_an_unfit_server_says_what_to_set(change: dict[str, object], what: str, hint: str) -> None:
    with pytest.raises(ResourceUnfit) as raised:
        checked("calendar", msgspec.structs.replace(FIT, **change), barrier=True, durable=True)
    assert what in raised.value.what
    assert "'calendar'" in raised.value.what
    assert hint in raised.value.hint


def test_syncing_may_be_waived_for_tests() -> None:
    checked("x", msgspec.structs.replace(FIT, fsync=False, synchronous_commit="off"), barrier=True, durable=False)


def test_prepare_is_synced_whatever_synchronous_commit_says() -> None:
    checked("x", msgspec.structs.replace(FIT, synchronous_commit="off"), barrier=False, durable=True)


def test_it_warns_before_it_is_too_late() -> None:
    [warning] = checked("x", msgspec.structs.replace(FIT, prepared_now=160), barrier=False, durable=True).warnings
    assert warning == "160 of 200 places for prepared transactions are taken"
    [warning] = checked("x", msgspec.structs.replace(FIT, prepared_max=50), barrier=False, durable=True).warnings
    assert "below max_connections" in warning
