from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.unit.cli.conftest import MemorySession
from tests.unit.cli.operated import site
from tests.unit.runtime.transactions.operated import EVENT, Site
from tutti.cli.output import ConsoleOutput
from tutti.cli.transactions import (
    Change,
    TransactionList,
    changes,
    checked_state,
    said_of,
    show_transactions,
    watch_transactions,
)
from tutti.errors import DeclarationError
from tutti.journal import Proposal
from tutti.runtime.transactions.survey import Part, Situation

__all__ = ["site"]

ONE = Situation("j-r-1", "Meeting", "active", age=5.0, left=55.0, members=2, waits_for=("its publisher",))


async def test_open_ones_are_listed_and_all_on_demand(session: MemorySession, site: Site) -> None:
    first, second = await site.begun(), await site.begun()
    await site.journal.decide(Proposal(second, "abort", 1))
    await site.journal.finish(second, 1)
    await show_transactions(session, "", "", every=False)
    await show_transactions(session, "", "", every=True)
    await show_transactions(session, "", "aborted", every=False)
    await show_transactions(session, "", "orphaned", every=True)
    shown = [[one.tx for one in answer.transactions] for answer in session.answers.shown]
    assert shown == [[first], [first, second], [second], []]


async def test_members_of_groups_have_their_names(session: MemorySession, site: Site) -> None:
    from tutti.model.enrolment import Enrolment, encode_enrolment  # noqa: PLC0415  only here

    tx = await site.begun(group="venues")
    await site.journal.decide(Proposal(tx, "commit", 1))
    async with session.bus() as bus:
        enrolment = Enrolment("venues", "tickets", "Meeting", "p2", "k2", "w2")
        await bus.context.transport.state_put(enrolment.record_key, encode_enrolment(enrolment), expected=0)
    await show_transactions(session, "", "", every=False)
    [one] = session.answers.shown[0].transactions
    assert "tickets" in one.waits_for


def test_a_state_that_does_not_exist_is_refused() -> None:
    assert checked_state("") is None
    assert checked_state("in-doubt") == "in doubt"
    with pytest.raises(DeclarationError, match="no transaction is 'hung'") as raised:
        checked_state("hung")
    assert "orphaned" in raised.value.hint


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (Part("rooms", "h", "in doubt", "rooms-0", lives=False), "rooms (in doubt, not running)"),
        (Part("rooms", "h", "in doubt", "rooms-0", lives=True, parked=2), "rooms (in doubt, 2 compensations parked)"),
        (Part("rooms", "h", "resolved", "rooms-0", lives=True, heuristic="abort"), "rooms (resolved: abort)"),
        (Part("rooms", "h", "committed", "rooms-0", lives=False), "rooms (committed)"),
    ],
)
def test_participants_in_a_few_words(part: Part, said: str) -> None:
    assert said_of(part) == said


def test_a_list_is_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    ConsoleOutput().show(TransactionList([], "data"))
    ConsoleOutput().show(TransactionList([], "data", every=True))
    far = Situation("k-r-1", "Meeting", "in doubt", waits_for=("the journal",), heuristics=("rooms",))
    ConsoleOutput().show(TransactionList([ONE, far], "data"))
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == ["no open transactions in data", "no transactions in data"]
    assert said[2].split() == ["id", "type", "state", "age", "ended", "here", "waits", "for"]
    assert said[3].split() == ["j-r-1", "Meeting", "active", "5", "s", "0/2", "its", "publisher"]
    assert "by hand: rooms; the journal" in said[4]


def test_changes_are_told_and_time_is_none() -> None:
    later = Situation("j-r-1", "Meeting", "active", age=6.0, left=54.0, members=2, waits_for=("its publisher",))
    decided = Situation("j-r-1", "Meeting", "committing", age=7.0, members=2)
    over = Situation("j-r-1", "Meeting", "committed", age=8.0, members=2)
    assert changes({}, [ONE], {}) == [Change("appeared", ONE)]
    assert changes({ONE.tx: ONE}, [later], {}) == []
    assert changes({ONE.tx: ONE}, [decided], {}) == [Change("changed", decided)]
    assert changes({ONE.tx: decided}, [], {ONE.tx: over}) == [Change("over", over)]
    assert changes({ONE.tx: decided}, [], {}) == [Change("over", decided)], "nobody remembers it"


async def test_watching_tells_each_change(session: MemorySession, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tutti.cli.transactions.WATCH_SECONDS", 0.01)
    watching = asyncio.create_task(watch_transactions(session, ""))
    shown: list[Any] = session.answers.shown

    async def until(count: int) -> Any:
        async with asyncio.timeout(20):
            while len(shown) < count:
                await asyncio.sleep(0.01)
        return shown[-1]

    tx = await site.begun()
    assert (await until(1)).change == "appeared"
    await site.journal.decide(Proposal(tx, "abort", 1))
    assert (await until(2)).transaction.state == "aborting"
    await site.log.write(site.row(tx))
    await until(3)
    await site.log.park("rooms", tx, EVENT, "no answer")
    assert (await until(4)).transaction.state == "compensating"
    await site.log.unpark("rooms", tx, EVENT)
    await until(5)
    await site.closed(tx, "aborted")
    await until(6)
    await site.journal.finish(tx, 1)
    last = await until(7)
    assert (last.change, last.transaction.state) == ("over", "aborted")
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching


def test_a_change_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    ConsoleOutput().show(Change("appeared", ONE))
    ConsoleOutput().show(Change("over", ONE))
    first, last = capsys.readouterr().out.splitlines()
    assert first == "j-r-1 Meeting active  waits for its publisher"
    assert last == "j-r-1 Meeting active (over)"
