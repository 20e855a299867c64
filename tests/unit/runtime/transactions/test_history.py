from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

import tutti
from tests.unit.runtime.transactions.operated import EVENT, Invitation, Meeting, Site, bus_of, site_in
from tests.unit.runtime.transactions.scripted_member import ScriptedMember
from tutti.errors import UnknownTransaction
from tutti.journal import Heuristic, Proposal
from tutti.model.messages import Ended
from tutti.model.transaction import member_hash
from tutti.runtime.bus import Bus
from tutti.runtime.transactions.history import history


@pytest_asyncio.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with site_in(tmp_path) as site:
        yield site


@pytest_asyncio.fixture
async def bus(tmp_path: Path, site: Site) -> AsyncIterator[Bus]:
    async with bus_of(tmp_path) as bus:
        yield bus


async def test_a_transaction_from_its_begin_to_its_end(bus: Bus, site: Site) -> None:
    member = ScriptedMember(bus.context, "Meeting")
    await member.start()
    async with bus.transaction(Meeting("x"), census=tutti.Census(at_most=1), scope="public") as tx:
        await tx.publish(Invitation("FW25"))
        await tx.publish(Invitation("FW26"))
        await tx.commit(wait="ended")
    await member.close()
    known = await history(site.books, bus, tx.id)
    told = [(moment.who, moment.what) for moment in known.moments]
    assert ("journal", "registered for 1 member of a census") in told
    assert ("publisher", "published Invitation 1 (events 1)") in told
    assert ("journal", "decided commit") in told
    assert [moment.at for moment in known.moments] == sorted(moment.at for moment in known.moments)
    assert (known.events, known.gaps, known.exceptions) == (2, (), ())
    assert any(what.startswith("status committed, 2 events") for _, what in told)


async def test_without_a_server_all_but_the_events_is_told(site: Site) -> None:
    tx = await site.begun(resources=("books",))
    await site.voted(tx)
    known = await history(site.books, None, tx)
    assert known.situation.state == "in doubt"
    assert known.events is None
    assert "no server" in known.gaps[0]
    assert [(member.name, member.vital) for member in known.members] == [
        ("rooms", True),
        (f"member {member_hash(tx, 'p2')[:8]}", False),
    ]
    assert known.record is not None
    assert known.record.resources == ("books",)


async def test_ends_and_what_was_done_by_hand_are_told(site: Site) -> None:
    tx = await site.begun()
    await site.voted(tx)
    await site.log.resolve("rooms", tx, "abort", "ada")
    await site.log.carried_out("rooms", tx, "commit")
    await site.log.park("rooms", tx, EVENT, "no answer")
    await site.journal.record_heuristic(Heuristic(tx, member_hash(tx, "p1"), "abort", "rooms …", "ada"))
    await site.journal.decide(Proposal(tx, "commit", 1, excluded=(member_hash(tx, "p2"),)))
    await site.journal.ended([Ended(tx, member_hash(tx, "p1"), "abort", "heuristic")])
    known = await history(site.books, None, tx)
    assert [member.end for member in known.members] == ["abort, by hand", "left out"]
    assert known.exceptions == ("rooms was finished by hand as abort; decided was commit",)
    told = [f"{moment.who}: {moment.what}" for moment in known.moments]
    assert "rooms: resolved to abort by ada" in told
    assert "rooms: finished so: abort" in told
    assert "rooms: compensation of Invitation given up: no answer" in told
    assert "by hand: abort by ada: rooms …" in told


async def test_a_publishers_branch_that_was_finished_otherwise_is_an_exception(site: Site) -> None:
    tx = await site.begun()
    await site.journal.record_heuristic(Heuristic(tx, "publisher/books", "abort"))
    await site.journal.decide(Proposal(tx, "commit", 1))
    known = await history(site.books, None, tx)
    assert known.exceptions == ("publisher/books was finished by hand as abort; decided was commit",)


async def test_of_what_is_long_over_the_outcome_is_left(site: Site) -> None:
    tx = await site.begun()
    await site.journal.decide(Proposal(tx, "commit", 1))
    await site.journal.finish(tx, 1)
    assert await site.journal.shrink(await site.journal.now() + 1) == 1
    known = await history(site.books, None, tx)
    assert (known.situation.state, known.situation.outcome) == ("committed", "commit")
    assert "long over" in known.gaps[0]


async def test_what_nobody_knows_is_said_so(site: Site) -> None:
    for tx in (f"{site.journal.id}-r1-9", "elsewhere-r1-9"):
        with pytest.raises(UnknownTransaction, match="is not known in"):
            await history(site.books, None, tx)


async def test_participants_are_heard_without_the_journal(site: Site) -> None:
    await site.voted("elsewhere-r1-1")
    known = await history(site.books, None, "elsewhere-r1-1")
    assert known.situation.state == "in doubt"
    assert "its journal, elsewhere, is not here" in known.gaps[0]
