from __future__ import annotations

import pytest

from tests.unit.cli.conftest import MemorySession
from tests.unit.cli.operated import site
from tests.unit.runtime.transactions.operated import EVENT, Site
from tutti.cli.output import ConsoleOutput
from tutti.cli.timelines import TransactionDetails, advice, show_transaction
from tutti.errors import UnknownTransaction
from tutti.journal import Proposal
from tutti.runtime.transactions.history import History
from tutti.runtime.transactions.survey import Part, Situation, State

__all__ = ["site"]


async def test_a_transaction_is_told(session: MemorySession, site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    tx = await site.begun(resources=("books",))
    await site.voted(tx)
    await site.log.resolve("rooms", tx, "abort", "ada")
    await site.log.carried_out("rooms", tx, "commit")
    await site.log.park("rooms", tx, EVENT, "no answer")
    await site.journal.decide(Proposal(tx, "commit", 1, reason="all agreed"))
    await show_transaction(session, "", tx)
    [shown] = session.answers.shown
    ConsoleOutput().show(shown)
    said = capsys.readouterr().out
    for words in (
        "committing",
        "decided    commit: all agreed",
        "publisher  enlisted books",
        "member     rooms: has not reported its end",
        "(not vital)",
        "here       rooms (resolved: abort, not running)",
        "exception  rooms was finished by hand as abort; decided was commit",
        "journal  registered for 2 members of a census",
        "rooms    resolved to abort by ada",
        "→ mend by hand what was finished otherwise",
    ):
        assert words in said
    assert shown.as_json()["hint"].startswith("mend")


async def test_an_id_that_nobody_knows_is_an_error(session: MemorySession, site: Site) -> None:
    with pytest.raises(UnknownTransaction, match="is not known"):
        await show_transaction(session, "", f"{site.journal.id}-r1-9")


SILENT = (Part("rooms", "h", "in doubt", "rooms-0", lives=False),)
RESOLVED = (Part("rooms", "h", "resolved", "rooms-0", lives=False, heuristic="abort"),)
PARKED = (Part("rooms", "h", "in doubt", "rooms-0", lives=True, parked=1),)


@pytest.mark.parametrize(
    ("situation", "said"),
    [
        (Situation("j-1", "M", "in doubt", parts=SILENT), "which asks for the decision; if its journal is gone"),
        (Situation("j-1", "M", "in doubt", age=1.0, parts=SILENT), "tutti tx abort j-1"),
        (Situation("j-1", "M", "committing", age=1.0, outcome="commit", parts=SILENT), "tx resolve j-1 commit"),
        (Situation("j-1", "M", "aborting", age=1.0, outcome="abort", parts=SILENT), "tx resolve j-1 rollback"),
        (Situation("j-1", "M", "aborting", age=1.0, outcome="abort", parts=RESOLVED), "start rooms, which reports"),
        (Situation("j-1", "M", "compensating", age=1.0, parts=PARKED), "tutti tx retry j-1"),
        (Situation("j-1", "M", "committed", age=1.0, heuristics=("rooms",)), "tutti tx forget j-1"),
    ],
)
def test_advice(situation: Situation, said: str) -> None:
    assert said in advice(History(situation, ()))


@pytest.mark.parametrize(
    ("state", "said"), [("orphaned", "tutti up"), ("overdue", "tx abort"), ("active", "nothing, or"), ("committed", "")]
)
def test_advice_by_state(state: State, said: str) -> None:
    given = advice(History(Situation("j-1", "M", state, age=1.0), ()))
    assert said in given if said else not given


def test_days_are_shown_where_there_are_several(capsys: pytest.CaptureFixture[str]) -> None:
    from tutti.runtime.transactions.history import Moment  # noqa: PLC0415  only here

    situation = Situation("j-1", "M", "active", age=1.0, left=-10.0, manager="m1", manager_lives=True)
    moments = (Moment(0.0, "journal", "one"), Moment(86_400.5, "rooms", "two"))
    ConsoleOutput().show(TransactionDetails(History(situation, moments, events=1)))
    said = capsys.readouterr().out
    assert "1970-01-01 00:00:00.000  journal  one" in said
    assert "1970-01-02 00:00:00.500  rooms    two" in said
    assert "the deadline was 10 s ago" in said
    assert "1 event in the log" in said
    assert "manager    m1, alive" in said
