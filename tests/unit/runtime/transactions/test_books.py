from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.runtime.transactions.operated import site_in
from tutti.errors import DeclarationError
from tutti.runtime.transactions.books import Place, opened
from tutti.runtime.transactions.own_log import FILE


async def test_what_is_there_is_opened(tmp_path: Path) -> None:
    async with site_in(tmp_path) as site:
        async with opened(Place(str(tmp_path), tmp_path)) as books:
            assert books.journal is not None
            assert books.journal.id == site.journal.id
            assert books.key is not None
            assert books.key.public == site.key.public
            assert books.journal_for(f"{site.journal.id}-r-1") is books.journal
            assert books.journal_for("elsewhere-r-1") is None
        assert await site.journal.now() > 0


async def test_nothing_is_made_where_there_is_nothing(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match="no journal of transactions in") as raised:
        async with opened(Place(str(tmp_path), tmp_path)):
            pytest.fail("there is nothing to open")
    assert "--journal" in raised.value.hint
    assert not (tmp_path / FILE).exists()


async def test_a_log_alone_is_enough(tmp_path: Path) -> None:
    async with site_in(tmp_path / "site"):
        pass
    (tmp_path / "host").mkdir()
    (tmp_path / "site" / FILE).rename(tmp_path / "host" / FILE)
    async with opened(Place(str(tmp_path / "host"), tmp_path / "host")) as books:
        assert (books.journal, books.key) == (None, None)
        assert books.log is not None
        assert await books.log.open_rows() == ()


def test_a_place_keeps_its_password_to_itself() -> None:
    place = Place("postgresql://ada:secret@db/journal", Path("data"))
    assert str(place) == "postgresql://db/journal"
    assert place.key_file == Path("data/journal.key")
    assert Place("here", Path("data")).key_file == Path("here/journal.key")
