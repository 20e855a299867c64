"""The SQLite journal where it is a file: its locks, its rights, its disk."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tutti.errors import AnswerLost, JournalUnfit, JournalUnreachable
from tutti.journal import Proposal
from tutti.journal.sqlite import SqliteJournal, SqliteParticipantLog, explained, require_synced
from tutti.model.transaction import Decision, TransactionRecord
from tutti.testing.contracts.participants import row_of


async def begun(journal: SqliteJournal, name: str = "1") -> str:
    tx = f"{journal.id}-{name}"
    await journal.register(TransactionRecord(tx, "Meeting", 1.0, "m", 1))
    return tx


async def test_the_settings_are_what_they_should_be(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "deep" / "journal.db")
    await journal.start()
    await begun(journal)
    connection = sqlite3.connect(journal.path)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()
    assert (journal.path.stat().st_mode & 0o077, journal.path.with_name("journal.db.lock").exists()) == (0, True)
    await journal.close()


@pytest.mark.parametrize("weak", ["OFF", "NORMAL"])
def test_a_database_that_does_not_sync_is_refused(tmp_path: Path, weak: str) -> None:
    connection = sqlite3.connect(tmp_path / "journal.db")
    connection.execute(f"PRAGMA synchronous = {weak}")
    with pytest.raises(JournalUnfit, match="does not sync"):
        require_synced(connection, tmp_path)
    connection.close()
    memory = sqlite3.connect(":memory:")
    with pytest.raises(JournalUnfit, match="journal_mode memory"):
        require_synced(memory, tmp_path)
    memory.close()


async def test_another_writer_is_waited_for_and_then_named(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "journal.db", busy=0.05)
    await journal.start()
    tx = await begun(journal)
    turn = os.open(tmp_path / "journal.db.lock", os.O_RDWR)
    fcntl.flock(turn, fcntl.LOCK_EX)
    with pytest.raises(JournalUnreachable, match="has the turn to write"):
        await journal.decide(Proposal(tx, "commit", 1))
    assert not isinstance(await journal.decision(tx), Decision), "readers do not wait"
    fcntl.flock(turn, fcntl.LOCK_UN)
    assert (await journal.decide(Proposal(tx, "commit", 1))).outcome == "commit"
    os.close(turn)
    await journal.close()


async def test_a_stranger_that_locks_the_database_is_waited_for_too(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "journal.db", busy=0.05)
    await journal.start()
    tx = await begun(journal)
    stranger = sqlite3.connect(journal.path, isolation_level=None)
    stranger.execute("BEGIN IMMEDIATE")
    with pytest.raises(JournalUnreachable, match="SQLITE_BUSY"):
        await journal.decide(Proposal(tx, "commit", 1))
    stranger.execute("ROLLBACK")
    stranger.close()
    assert (await journal.decide(Proposal(tx, "commit", 1))).outcome == "commit"
    await journal.close()


@pytest.mark.parametrize("content", [b"not a database at all" * 100, b"SQLite format 3\0" + b"\xff" * 8_000])
async def test_a_file_that_is_no_journal_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "journal.db"
    path.write_bytes(content)
    with pytest.raises(JournalUnfit, match="no journal, or a damaged one"):
        await SqliteJournal(path).start()
    assert path.read_bytes() == content


async def test_a_damaged_outcome_is_never_guessed(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "journal.db")
    await journal.start()
    tx = await begun(journal)
    await journal.decide(Proposal(tx, "commit", 1))
    stranger = sqlite3.connect(journal.path, isolation_level=None)
    stranger.execute("PRAGMA ignore_check_constraints = ON")
    stranger.execute("UPDATE decisions SET outcome = 'c0mmit'")
    stranger.close()
    with pytest.raises(JournalUnfit, match="a decision in the journal reads"):
        await journal.decision(tx)
    await journal.close()


async def test_a_folder_that_cannot_be_made_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalUnreachable, match=r"ENOTDIR|EEXIST"):
        await SqliteJournal(tmp_path / "file" / "journal.db").start()


def test_what_happened_during_a_commit_is_not_known() -> None:
    broken = sqlite3.OperationalError("disk I/O error")
    assert isinstance(explained(broken, Path("j"), committing=True), AnswerLost)
    assert isinstance(explained(broken, Path("j"), committing=False), JournalUnreachable)
    assert isinstance(explained(PermissionError(13, "denied"), Path("j"), committing=False), JournalUnfit)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte, where that is allowed."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", place], capture_output=True, check=False)  # noqa: S607  mount from the PATH
    if mounted.returncode != 0:
        pytest.skip(f"no right to mount: {mounted.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", "-l", place], check=True)  # noqa: S607  as above


def fill(ballast: Path) -> None:
    file = os.open(ballast, os.O_CREAT | os.O_WRONLY)
    with contextlib.suppress(OSError):
        while os.write(file, b"x" * 4_096):
            pass
    os.close(file)


async def begin_many(journal: SqliteJournal, count: int) -> None:
    for n in range(count):
        await begun(journal, f"more{n}")


def remount(place: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", place], check=True)  # noqa: S607  mount from the PATH


async def test_a_full_disk_loses_nothing_and_recovers(small_disk: Path) -> None:
    journal = SqliteJournal(small_disk / "journal.db")
    await journal.start()
    tx = await begun(journal)
    ballast = small_disk / "ballast"
    fill(ballast)
    with pytest.raises(JournalUnfit, match="make room"):
        await begin_many(journal, 500)
    assert (await journal.decision(tx)) is not None
    ballast.unlink()
    assert (await journal.decide(Proposal(tx, "commit", 1))).outcome == "commit"
    known = {entry.record.tx for entry in await journal.entries()}
    await journal.close()
    again = SqliteJournal(small_disk / "journal.db")
    await again.start()
    assert {entry.record.tx for entry in await again.entries()} == known
    await again.close()


async def test_a_read_only_disk_is_explained(small_disk: Path) -> None:
    journal = SqliteJournal(small_disk / "journal.db")
    await journal.start()
    tx = await begun(journal)
    await journal.close()
    remount(small_disk, "ro")
    with pytest.raises(JournalUnfit, match="make the file and its folder writable"):
        await SqliteJournal(small_disk / "journal.db").start()
    remount(small_disk, "rw")
    await journal.start()
    assert (await journal.decide(Proposal(tx, "commit", 1))).outcome == "commit"
    await journal.close()


async def test_many_journals_on_one_file(tmp_path: Path) -> None:
    """Starting at once creates one journal, not several."""
    journals = [SqliteJournal(tmp_path / "journal.db") for _ in range(6)]
    await asyncio.gather(*(journal.start() for journal in journals))
    assert len({journal.id for journal in journals}) == 1
    for journal in journals:
        await journal.close()


async def test_a_row_is_found_without_a_thread_and_by_one_when_that_is_not_possible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = SqliteParticipantLog(tmp_path / "participants.db")
    await log.start()
    row = row_of("j-1", "voted")
    await log.write(row)
    with monkeypatch.context() as patched:
        patched.setattr(log, "_ask", _nobody_is_asked)
        assert await log.find("hotel", "j-1") == row
        assert await log.find("hotel", "j-2") is None
    with log._at_once_turn:  # another event loop is reading
        assert await log.find("hotel", "j-1") == row
    await log.close()
    with pytest.raises(JournalUnreachable):
        await log.find("hotel", "j-1")


async def _nobody_is_asked(statements: object) -> None:
    raise AssertionError(f"a thread was asked: {statements}")
