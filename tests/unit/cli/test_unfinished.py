from __future__ import annotations

import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from tests.unit.cli.conftest import MemorySession
from tests.unit.cli.operated import site
from tests.unit.runtime.transactions.operated import EVENT, Site
from tutti.cli import unfinished
from tutti.cli.findings import Finding
from tutti.cli.unfinished import Orphan, about_orphans, transaction_findings
from tutti.journal import Heuristic, Proposal
from tutti.model.transaction import member_hash
from tutti.resources import BranchId, InDoubt
from tutti.runtime.transactions import reaping
from tutti.runtime.transactions.trust import Trust

__all__ = ["site"]


async def found(session: MemorySession) -> list[tuple[str, str]]:
    return [(one.level, one.area) for one in await transaction_findings(session, None, "", ())]


async def test_where_no_transaction_ever_was_nothing_is_said(
    session: MemorySession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TUTTI_JOURNAL", str(tmp_path))
    assert await transaction_findings(session, None, "", ()) == []
    [named] = await transaction_findings(session, None, str(tmp_path), ())
    assert (named.level, named.area) == ("problem", "journal")


async def test_a_quiet_journal_is_well(session: MemorySession, site: Site) -> None:
    await site.begun()
    [only] = await transaction_findings(session, None, "", ())
    assert only.level == "ok"
    assert f"{site.journal.id} in {site.folder}: 1 open transaction" in only.what


async def test_what_an_operator_must_know(session: MemorySession, site: Site) -> None:
    orphaned, doubtful = await site.begun(manager_lives=False), await site.begun()
    await site.begun(deadline=await site.journal.now() - 5)
    await site.voted(doubtful)
    await site.log.park("rooms", doubtful, EVENT, "no answer")
    problems = [one for one in await transaction_findings(session, None, "", ()) if one.level == "problem"]
    assert sorted(one.area for one in problems) == ["compensation", "in doubt", "manager", "transaction"]
    said = {one.area: f"{one.what} → {one.todo}" for one in problems}
    assert f"left 1 open transaction: {orphaned}" in said["manager"]
    assert f"tutti tx retry {doubtful}" in said["compensation"]
    assert "start rooms" in said["in doubt"]
    assert "5 s past its deadline" in said["transaction"]


async def test_what_was_done_by_hand_is_a_warning_and_against_the_decision_a_problem(
    session: MemorySession, site: Site
) -> None:
    tx = await site.begun()
    await site.journal.record_heuristic(Heuristic(tx, member_hash(tx, "p1"), "abort"))
    assert ("warning", "by hand") in await found(session)
    assert ("problem", "by hand") not in await found(session)
    await site.journal.decide(Proposal(tx, "commit", 1))
    assert ("problem", "by hand") in await found(session)


async def test_a_decision_that_nobody_announces(
    session: MemorySession, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    tx = await site.begun()
    await site.journal.decide(Proposal(tx, "commit", 1))
    assert ("warning", "status") not in await found(session), "it may be under way"
    monkeypatch.setattr(unfinished, "ANNOUNCE_SECONDS", -1.0)
    assert ("warning", "status") in await found(session)


async def test_journals_for_which_nobody_answers(
    session: MemorySession, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reaping, "RECOVERY_ANSWER_SECONDS", 0.05)
    await site.voted("gone-r1-1")
    async with session.bus() as bus:
        await Trust(bus.context.transport).declare("other", "key")
        findings = await transaction_findings(session, bus, "", ())
    silent = {one.level: one for one in findings if "answers for" in one.what or "cannot be reached" in one.what}
    assert "nobody answers for other" in silent["warning"].what
    assert "gone cannot be reached, and 1 transaction here" in silent["problem"].what
    assert "tutti tx resolve" in silent["problem"].todo


async def test_orphaned_branches_are_found_in_databases_that_are_named(
    session: MemorySession, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("orphaned_in")
    module.calendar = site.calendar  # type: ignore[attr-defined]  # it is what `module:name` means
    monkeypatch.setitem(sys.modules, "orphaned_in", module)
    monkeypatch.setattr(unfinished, "PREPARED_SECONDS", -1.0)
    aborted, committed, known = await site.begun(), await site.begun(), await site.begun()
    await site.voted(known)
    for tx in (aborted, committed, f"{site.journal.id}-r9-9", "elsewhere-r9-9"):
        await site.prepare("rooms", tx)
    await site.journal.decide(Proposal(aborted, "abort", 1))
    await site.journal.decide(Proposal(committed, "commit", 1))
    findings = await transaction_findings(session, None, "", ["orphaned_in:calendar"])
    branches = [one for one in findings if one.area == "branch"]
    assert sum("has aborted" in one.what for one in branches) == 1
    assert sum("has committed" in one.what for one in branches) == 1
    assert sum("nobody knows its transaction" in one.what for one in branches) == 2
    assert not any(known in one.what for one in branches), "it has its own finding: in doubt"
    wrong = await transaction_findings(session, None, "", ["orphaned_in:no"])
    assert any(one.area == "resource" and "orphaned_in" in one.what for one in wrong)


def test_a_branch_that_is_not_decided_is_a_warning() -> None:
    doubt = InDoubt(BranchId("publisher", "j-r-1", "books-1"), time.time() - 30)
    [said] = about_orphans([Orphan("books", doubt, "undecided")], time.time())
    assert said == Finding(
        "warning",
        "branch",
        "books: publisher:j-r-1:books-1 is prepared for 30 s, and its transaction is not decided",
        "`tutti tx show j-r-1`",
    )
