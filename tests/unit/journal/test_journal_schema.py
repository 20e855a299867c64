"""The version of the format, and what an older Tutti does with a newer journal."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest

from tutti.errors import JournalUnfit
from tutti.journal.schema import FORMAT, check_format, statements
from tutti.journal.sqlite import SqliteJournal


def rewrite(path: Path, **meta: str) -> None:
    with sqlite3.connect(path) as connection:
        connection.executemany("UPDATE meta SET value = ? WHERE name = ?", [(v, k) for k, v in meta.items()])
    connection.close()


async def opened_once(path: Path) -> str:
    journal = SqliteJournal(path)
    await journal.start()
    await journal.close()
    return journal.id


async def test_a_newer_format_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    await opened_once(path)
    rewrite(path, format=str(FORMAT + 2), oldest_reader=str(FORMAT + 1))
    before = path.read_bytes()
    with pytest.raises(JournalUnfit, match=f"has format {FORMAT + 2}; this version of Tutti understands {FORMAT}"):
        await SqliteJournal(path).start()
    assert path.read_bytes() == before


async def test_a_newer_format_that_we_may_share_is_shared(tmp_path: Path) -> None:
    """A rolling upgrade: the newer one says that its neighbour still understands."""
    path = tmp_path / "journal.db"
    name = await opened_once(path)
    rewrite(path, format=str(FORMAT + 1), oldest_reader=str(FORMAT))
    assert await opened_once(path) == name


def test_a_format_that_is_no_number_is_refused() -> None:
    with pytest.raises(JournalUnfit, match="does not say its format"):
        check_format({"format": "x", "oldest_reader": "1"}, "here")


def test_every_statement_is_complete_and_may_be_repeated() -> None:
    connection = sqlite3.connect(":memory:")
    made = statements(number="REAL", counter="INTEGER PRIMARY KEY AUTOINCREMENT")
    for statement in made * 2:
        assert not re.search(r"[{}]", statement)
        connection.execute(statement)
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    connection.close()
    assert {"meta", "leases", "transactions", "decisions", "statuses", "outcomes", "heuristics"} <= tables
