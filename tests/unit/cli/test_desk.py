from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.runtime.transactions.operated import site_in
from tutti.cli.desk import desk, operator_name, place_of, reached
from tutti.cli.options import Common, Session
from tutti.cli.output import JsonOutput
from tutti.errors import DeclarationError, ResourceError


def session(folder: Path) -> Session:
    return Session(Common(data=str(folder)), JsonOutput())


def test_the_journal_is_where_connect_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TUTTI_JOURNAL", raising=False)
    at = session(tmp_path)
    assert place_of(at, "").journal == str(tmp_path)
    monkeypatch.setenv("TUTTI_JOURNAL", "postgresql://db/journal")
    assert place_of(at, "").journal == "postgresql://db/journal"
    assert place_of(at, "").folder == tmp_path, "there is the key"
    assert place_of(at, str(tmp_path / "other")).journal == str(tmp_path / "other")
    with pytest.raises(DeclarationError, match="mysql:// is no place for a journal"):
        place_of(at, "mysql://db")


async def test_a_server_that_does_not_run_is_not_started(tmp_path: Path) -> None:
    async with site_in(tmp_path), desk(session(tmp_path), "", bus=True) as at:
        assert at.bus is None
        assert "does not run" in at.away
    assert not (tmp_path / "server").exists()


async def test_a_server_that_cannot_be_reached_is_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUTTI_DATA", str(tmp_path))
    far = Session(Common(url="http://127.0.0.1"), JsonOutput())
    async with site_in(tmp_path), desk(far, "", bus=True) as at:
        assert at.bus is None
        assert at.away


async def test_resources_are_named_by_module_or_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "reached_by_name.py").write_text(
        "from tutti.resources.memory import MemoryResource, MemoryStore\n"
        "books = MemoryResource('books', MemoryStore())\n"
    )
    monkeypatch.chdir(tmp_path)
    async with reached(["reached_by_name:books"]) as resources:
        assert [resource.name for resource in resources] == ["books"]
    with pytest.raises(DeclarationError, match="two of --resources are called 'books'"):
        async with reached(["reached_by_name:books"] * 2):
            pytest.fail("which of them?")
    with pytest.raises(DeclarationError, match="names no resource") as raised:
        async with reached(["reached_by_name"]):
            pytest.fail("which of them?")
    assert "reached_by_name:books" in raised.value.hint


async def test_a_database_that_does_not_answer_is_named_without_its_password() -> None:
    with pytest.raises(ResourceError, match=r"--resources rooms=postgresql://127\.0\.0\.1:1/rooms") as raised:
        async with reached(["rooms=postgresql://ada:secret@127.0.0.1:1/rooms"]):
            pytest.fail("nobody is there")
    assert "secret" not in str(raised.value)


def test_the_operator_has_a_name() -> None:
    assert "@" in operator_name()
