from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.unit.runtime.transactions.operated import EVENT, Site, site_in
from tutti.journal import Heuristic, Proposal
from tutti.model.messages import Ended
from tutti.model.transaction import Outcome, member_hash
from tutti.runtime.transactions.survey import Situation, survey


@pytest_asyncio.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with site_in(tmp_path) as site:
        yield site


async def only(site: Site) -> Situation:
    [found] = await survey(site.books)
    return found


async def test_an_undecided_transaction_waits_for_its_publisher(site: Site) -> None:
    tx = await site.begun(group="venues", scope="public")
    found = await only(site)
    assert (found.tx, found.type, found.state, found.waits_for) == (tx, "Meeting", "active", ("its publisher",))
    assert (found.members, found.ended, found.group, found.scope) == (2, 0, "venues", "public")
    assert found.manager_lives
    assert found.left is not None
    assert 50 < found.left <= 60


async def test_who_has_no_manager_is_an_orphan(site: Site) -> None:
    await site.begun(manager_lives=False)
    found = await only(site)
    assert found.state == "orphaned"
    assert "shares the journal" in found.waits_for[0]


async def test_past_its_deadline_it_is_overdue(site: Site) -> None:
    await site.begun(deadline=await site.journal.now() - 5)
    assert (await only(site)).state == "overdue"


async def test_a_yes_without_its_process_is_in_doubt(site: Site) -> None:
    tx = await site.begun()
    await site.log.beat("rooms-0", seconds=60)
    await site.voted(tx)
    assert (await only(site)).state == "active", "it voted a moment ago, and lives"
    await site.log.release("rooms-0")
    found = await only(site)
    [part] = found.parts
    assert found.state == "in doubt"
    assert (part.subscriber, part.state, part.lives, part.resources) == ("rooms", "in doubt", False, ("calendar 1",))


@pytest.mark.parametrize(
    ("outcome", "open_state", "closed_state"), [("commit", "committing", "committed"), ("abort", "aborting", "aborted")]
)
async def test_a_decided_one_waits_for_those_who_have_not_ended(
    site: Site, outcome: Outcome, open_state: str, closed_state: str
) -> None:
    tx = await site.begun()
    await site.voted(tx)
    await site.journal.decide(Proposal(tx, outcome, 1, reason="why"))
    await site.journal.ended([Ended(tx, member_hash(tx, "p2"), outcome)])
    found = await only(site)
    assert (found.state, found.outcome, found.reason, found.ended) == (open_state, outcome, "why", 1)
    assert found.waits_for == ("rooms (nobody acts for it)",)
    await site.closed(tx, "committed" if outcome == "commit" else "aborted")
    await site.journal.ended([Ended(tx, member_hash(tx, "p1"), outcome)])
    await site.journal.finish(tx, 1)
    assert await survey(site.books) == []
    [over] = await survey(site.books, every=True)
    assert (over.state, over.waits_for) == (closed_state, ())


async def test_members_are_called_by_their_names_where_they_are_known(site: Site) -> None:
    tx = await site.begun()
    await site.journal.decide(Proposal(tx, "commit", 1))
    [found] = await survey(site.books, names={"p2": "tickets"})
    assert found.waits_for == (f"member {member_hash(tx, 'p1')[:8]}", "tickets")


async def test_the_publishers_own_databases_are_waited_for_at_last(site: Site) -> None:
    tx = await site.begun(members=(), vital=(), keys=(), resources=("books",))
    await site.journal.decide(Proposal(tx, "commit", 1))
    assert (await only(site)).waits_for == ("the publisher's books",)


async def test_compensation_is_shown_until_it_is_done(site: Site) -> None:
    tx = await site.begun()
    await site.voted(tx)
    await site.journal.decide(Proposal(tx, "abort", 1))
    await site.journal.ended([Ended(tx, member_hash(tx, "p1"), "abort", "compensating")])
    found = await only(site)
    assert (found.state, found.ended) == ("compensating", 0)
    assert "rooms (compensating)" in found.waits_for
    await site.log.park("rooms", tx, EVENT, "no answer")
    found = await only(site)
    assert found.parts[0].parked == 1
    assert "rooms (compensation parked)" in found.waits_for


async def test_what_was_done_by_hand_is_shown_though_it_is_over(site: Site) -> None:
    tx = await site.begun()
    await site.journal.decide(Proposal(tx, "commit", 1))
    await site.journal.finish(tx, 1)
    assert await survey(site.books) == []
    await site.journal.record_heuristic(Heuristic(tx, member_hash(tx, "p1"), "abort"))
    found = await only(site)
    assert (found.state, found.heuristics) == ("committed", (member_hash(tx, "p1"),))
    await site.voted(tx)
    await site.log.resolve("rooms", tx, "abort")
    assert (await only(site)).heuristics == ("rooms",), "one branch, one name"


async def test_a_host_without_the_journal_tells_what_its_participants_know(site: Site) -> None:
    await site.voted("elsewhere-r1-1")
    found = await only(site)
    assert (found.tx, found.type, found.state, found.age) == ("elsewhere-r1-1", "Meeting", "in doubt", None)
    assert found.waits_for == ("the journal, which is not here",)
    await site.log.resolve("rooms", "elsewhere-r1-1", "commit")
    assert (await only(site)).parts[0].heuristic == "commit"
    await site.closed("elsewhere-r1-1", "committed")
    found = await only(site)
    assert (found.state, found.heuristics) == ("committed", ("rooms",))
    await site.log.withdraw("rooms", "elsewhere-r1-1")
    assert await survey(site.books) == []
