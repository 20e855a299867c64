from __future__ import annotations

import pytest

from tests.unit.cli.conftest import MemorySession
from tests.unit.cli.operated import site
from tests.unit.runtime.transactions.operated import EVENT, Site
from tutti.cli.output import ConsoleOutput
from tutti.cli.remedies import (
    AbortedTransaction,
    abort_transaction,
    forget_transaction,
    resolve_transaction,
    retry_transaction,
)
from tutti.errors import DeclarationError
from tutti.runtime.transactions.interventions import Aborted

__all__ = ["site"]


async def test_a_transaction_is_aborted(session: MemorySession, site: Site) -> None:
    tx = await site.begun()
    await abort_transaction(session, tx, "", "it hangs", ())
    [shown] = session.answers.shown
    assert (shown.result.tx, shown.result.already) == (tx, False)
    assert "it hangs" in shown.as_json().reason


async def test_a_branch_is_resolved_shown_and_forgotten(
    session: MemorySession, site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    tx = await site.begun()
    await site.log.write(site.row(tx, resources=()))
    assert await resolve_transaction(session, tx, "rollback", "", subscriber="rooms", resources=()) == 0
    await site.closed(tx, "aborted")
    await forget_transaction(session, tx, "", force=False)
    for shown in session.answers.shown:
        ConsoleOutput().show(shown)
    said = capsys.readouterr().out
    assert "✓ rooms rolled back: finished from here" in said
    assert f"{tx}: what was done by hand is forgotten (rooms)" in said


async def test_what_is_still_to_be_done_is_an_exit_code(session: MemorySession, site: Site) -> None:
    tx = await site.begun()
    await site.log.write(site.row(tx))
    assert await resolve_transaction(session, tx, "commit", "", subscriber="", resources=()) == 1


async def test_an_outcome_that_is_none_is_refused(session: MemorySession) -> None:
    with pytest.raises(DeclarationError, match="cannot be resolved to 'maybe'"):
        await resolve_transaction(session, "j-1", "maybe", "", subscriber="", resources=())


async def test_compensations_are_released(
    session: MemorySession, site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    tx = await site.begun()
    await site.log.park("rooms", tx, EVENT, "no answer")
    await retry_transaction(session, tx, "", "")
    ConsoleOutput().show(session.answers.shown[0])
    assert f"{tx}: rooms compensates again" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("done", "said"),
    [
        (Aborted("j-1", "r", already=False, told=True), "j-1 is aborted; its members and its manager were told"),
        (Aborted("j-1", "r", already=True, told=True), "j-1 was aborted before: r; its members"),
        (Aborted("j-1", "r", already=False, told=False, why="no server"), "nobody was told now: no server"),
    ],
)
def test_aborting_says_who_knows(done: Aborted, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    ConsoleOutput().show(AbortedTransaction(done))
    assert said in capsys.readouterr().out
