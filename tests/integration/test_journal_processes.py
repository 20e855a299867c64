"""One journal, several processes: they agree, one of them inherits, and what was acknowledged survives SIGKILL."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.journal_processes import journal_at
from tutti.journal import Journal
from tutti.model.transaction import Decision, TransactionRecord
from tutti.resources.embedded_postgres import EmbeddedPostgres

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "journal.db")
    server: EmbeddedPostgres = request.getfixturevalue("postgres")
    return server.create_database(f"processes_{os.getpid()}_{abs(hash(tmp_path)):x}")


@pytest.fixture
async def journal(address: str) -> AsyncIterator[Journal]:
    journal = journal_at(address)
    await journal.start()
    yield journal
    await journal.close()


@contextmanager
def processes(*commands: tuple[str, ...]) -> Iterator[list[subprocess.Popen[str]]]:
    """Started, ready, and sent off together."""
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.integration.journal_processes", *command],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for command in commands
    ]
    try:
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in started:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


def said(process: subprocess.Popen[str]) -> list[list[str]]:
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return [line.split() for line in output.splitlines()]


async def registered(journal: Journal, count: int) -> list[str]:
    transactions = [f"{journal.id}-t{n}" for n in range(count)]
    await asyncio.gather(*(journal.register(TransactionRecord(tx, "T", 1.0, "m", 1)) for tx in transactions))
    return transactions


async def test_processes_that_race_agree(journal: Journal, address: str) -> None:
    transactions = await registered(journal, 100)
    outcomes = ("commit", "abort", "commit")
    with processes(*((address, outcome, *transactions) for outcome in outcomes)) as racing:
        answers = [dict(said(process)) for process in racing]
    assert answers[0] == answers[1] == answers[2]
    for tx in transactions:
        standing = await journal.decision(tx)
        assert isinstance(standing, Decision)
        assert standing.outcome == answers[0][tx]


async def test_each_transaction_has_one_heir(journal: Journal, address: str) -> None:
    transactions = await registered(journal, 60)
    await journal.release("m")
    with processes(*((address, "inherit", f"heir{n}", *transactions) for n in range(3))) as racing:
        heirs = {f"heir{n}": {tx for (tx,) in said(process)} for n, process in enumerate(racing)}
    assert sorted(tx for won in heirs.values() for tx in won) == sorted(transactions)
    for entry in await journal.entries():
        assert entry.record.epoch == 2
        assert entry.record.tx in heirs[entry.record.manager]


async def test_what_was_acknowledged_survives_sigkill(journal: Journal, address: str) -> None:
    """Two writers at full speed on one journal, killed in the middle, three times. Nothing that they were told is
    lost or different, no decision stands without its claim, and the survivors write on."""
    acknowledged: dict[str, str] = {}
    for turn in range(3):
        with processes((address, "pour", f"a{turn}"), (address, "pour", f"b{turn}")) as writers:
            heard = [process.stdout for process in writers if process.stdout is not None]
            for lines in heard:
                acknowledged |= dict(lines.readline().split() for _ in range(100))
            for process in writers:
                process.kill()
            for lines in heard:
                # The last line may be cut in the middle of a word: what was not said was not promised.
                acknowledged |= dict(line.split() for line in lines if line.endswith("\n"))
        await journal.renew("survivor")
    assert len(acknowledged) >= 600
    for tx, outcome in acknowledged.items():
        standing = await journal.decision(tx)
        assert isinstance(standing, Decision), tx
        assert standing.outcome == outcome
    for entry in await journal.entries():
        dossier = await journal.show(entry.record.tx)
        assert dossier is not None
        committed = entry.decision is not None and entry.decision.outcome == "commit"
        assert dossier.claims == ((entry.record.tx,) if committed else ())
