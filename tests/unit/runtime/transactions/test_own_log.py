"""Where the participants' log is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tutti.errors import DeclarationError
from tutti.journal.postgres import PostgresParticipantLog
from tutti.runtime.transactions.own_log import FILE, PassingLog, _log_at, log_opener


async def test_a_folder_is_made_and_holds_it(tmp_path: Path) -> None:
    log = await log_opener(tmp_path / "new")()
    assert await log.open_rows("rooms") == ()
    await log.close()
    assert (tmp_path / "new" / FILE).exists()


async def test_without_a_place_it_goes_with_its_user() -> None:
    log = await log_opener(None)()
    assert isinstance(log, PassingLog)
    assert log.path.exists()
    await log.close()
    assert not log.path.parent.exists()


def test_a_database_of_several_hosts_is_named_by_url() -> None:
    assert isinstance(_log_at("postgresql://127.0.0.1/journal"), PostgresParticipantLog)


def test_other_places_are_refused() -> None:
    with pytest.raises(DeclarationError, match="mysql:// is no place"):
        _log_at("mysql://127.0.0.1/journal")
