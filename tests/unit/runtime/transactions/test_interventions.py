from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

import tutti
from tests.unit.runtime.transactions.operated import EVENT, Invitation, Meeting, Site, bus_of, site_in
from tests.unit.runtime.transactions.scripted_member import ScriptedMember
from tests.unit.runtime.transactions.staged import until
from tutti.errors import DeclarationError, TransactionAborted, TransactionError, UnknownTransaction
from tutti.journal import Proposal
from tutti.model.messages import Decide
from tutti.model.transaction import Outcome, member_hash
from tutti.resources.memory import MemoryResource, MemoryStore
from tutti.runtime.bus import Bus
from tutti.runtime.transactions import interventions
from tutti.runtime.transactions.channel import Channel, signed
from tutti.runtime.transactions.interventions import Operator
from tutti.runtime.transactions.keys import SigningKey
from tutti.runtime.transactions.own import own_branch


@pytest_asyncio.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with site_in(tmp_path) as site:
        yield site


@pytest_asyncio.fixture
async def bus(tmp_path: Path, site: Site) -> AsyncIterator[Bus]:
    async with bus_of(tmp_path) as bus:
        yield bus


def operator(site: Site, bus: Bus | None = None, *resources: Any) -> Operator:
    return Operator(site.books, by="ada", bus=bus, resources=resources)


# Aborting


async def test_an_abort_ends_a_transaction_whose_manager_lives(bus: Bus, site: Site) -> None:
    member = ScriptedMember(bus.context, "Meeting")
    await member.start()
    async with bus.transaction(Meeting("x"), census=tutti.Census(at_most=1)) as tx:
        await tx.publish(Invitation("FW26"))
        done = await operator(site, bus).abort(tx.id, "it hangs")
        assert (done.already, done.told) == (False, True)
        with pytest.raises(TransactionAborted, match=r"an operator \(ada\): it hangs"):
            await tx.commit(wait="ended")
    assert member.outcomes == ["abort"]
    again = await operator(site, bus).abort(tx.id, "twice")
    assert again.already
    assert "it hangs" in again.reason
    await member.close()
    coordinator = await bus.coordinator()
    coordinator.relay()
    await until_announced(site, tx.id)


async def until_announced(site: Site, tx: str) -> None:
    async with asyncio.timeout(20):
        while await site.journal.entries(unannounced=True) or await site.journal.unsent():
            await asyncio.sleep(0.01)
    dossier = await site.journal.show(tx)
    assert dossier is not None
    [queued] = dossier.statuses
    assert queued.status.status == "aborted"


async def test_a_decision_that_the_journal_does_not_know_changes_nothing(bus: Bus, site: Site) -> None:
    """Nor does one that somebody else signed."""
    member = ScriptedMember(bus.context, "Meeting")
    await member.start()
    channel = Channel(bus.context.transport, bus.context.clock, lambda: site.key.public)
    async with bus.transaction(Meeting("x"), census=tutti.Census(at_most=1)) as tx:
        await tx.publish(Invitation("FW26"))
        subject = bus.context.layout.manager(tx.id)
        channel.emit(subject, signed(Decide(tx.id, 1, "abort"), site.key, manager=True))
        channel.emit(subject, signed(Decide(tx.id, 1, "abort"), SigningKey.fresh(), manager=True))
        await tx.commit(wait="ended")
    assert member.outcomes == ["commit"]
    await member.close()


async def test_without_a_server_the_row_stands_all_the_same(site: Site) -> None:
    tx = await site.begun()
    done = await operator(site).abort(tx, "")
    assert not done.told
    assert "no server" in done.why
    decision: Any = await site.journal.decision(tx)
    assert (decision.outcome, decision.reason) == ("abort", "an operator (ada)")


async def test_without_the_key_nobody_is_told(bus: Bus, site: Site) -> None:
    await bus.coordinator()
    tx = await site.begun()
    site.key = SigningKey.fresh()
    done = await operator(site, bus).abort(tx, "")
    assert not done.told
    assert "key" in done.why


async def test_what_is_committed_stays(site: Site) -> None:
    tx = await site.begun()
    await site.journal.decide(Proposal(tx, "commit", 1))
    with pytest.raises(TransactionError, match="is committed"):
        await operator(site).abort(tx, "")


async def test_what_nobody_knows_cannot_be_aborted(site: Site) -> None:
    with pytest.raises(UnknownTransaction, match="does not know"):
        await operator(site).abort(f"{site.journal.id}-r1-99", "")
    with pytest.raises(DeclarationError, match="is decided by the journal other"):
        await operator(site).abort("other-r1-1", "")


@pytest.mark.parametrize("outcome", ["commit", "abort"])
async def test_where_a_last_resource_decides_it_is_asked(site: Site, outcome: Outcome) -> None:
    tx = await site.begun()
    ledger = MemoryResource("ledger", MemoryStore())
    work = await ledger.begin(own_branch(tx, "ledger"))
    if outcome == "commit":
        assert await work.commit_last() == "commit"
    await site.journal.delegate(tx, 1, "ledger")
    with pytest.raises(TransactionError, match="being decided by ledger"):
        await operator(site).abort(tx, "")
    if outcome == "commit":
        with pytest.raises(TransactionError, match="is committed"):
            await operator(site, None, ledger).abort(tx, "")
    else:
        await operator(site, None, ledger).abort(tx, "")
        assert await work.commit_last() == "abort", "it came too late"


# Resolving


@pytest.mark.parametrize("outcome", ["commit", "abort"])
async def test_a_branch_that_nobody_acts_for_is_finished_from_here(site: Site, outcome: Outcome) -> None:
    tx = await site.begun()
    await site.voted(tx)
    [branch] = await operator(site, None, site.calendar).resolve(tx, outcome)
    assert (branch.place, branch.done) == ("rooms", True)
    assert not site.store.prepared
    assert site.store.data == ({tx: "rooms"} if outcome == "commit" else {})
    [heuristic] = await site.journal.heuristics()
    assert (heuristic.place, heuristic.taken, heuristic.by) == (member_hash(tx, "p1"), outcome, "ada")
    found = await site.log.find("rooms", tx)
    assert found is not None
    assert found.heuristic == outcome
    assert found.instance not in await site.log.living(), "whoever starts next takes the row over"
    [again] = await operator(site).resolve(tx, outcome)
    assert (again.done, again.how) == (True, "it was finished before")
    with pytest.raises(TransactionError, match=f"was resolved to {outcome} before, by ada"):
        await operator(site).resolve(tx, "abort" if outcome == "commit" else "commit")


async def test_a_database_that_is_not_named_is_asked_for_and_the_word_waits(site: Site) -> None:
    tx = await site.begun()
    await site.voted(tx)
    [branch] = await operator(site).resolve(tx, "abort")
    assert not branch.done
    assert "calendar is not reached from here: name it with --resources, or start rooms" in branch.how
    assert len(site.store.prepared) == 1
    [word] = await site.log.resolutions()
    assert (word.outcome, word.carried_out_at) == ("abort", 0.0)
    [branch] = await operator(site, None, site.calendar).resolve(tx, "abort")
    assert branch.done


async def test_what_is_compensated_needs_its_code(site: Site) -> None:
    tx = await site.begun()
    await site.log.write(site.row(tx, alone=True, resources=()))
    [branch] = await operator(site).resolve(tx, "abort")
    assert not branch.done
    assert "compensators" in branch.how
    other = await site.begun()
    await site.log.write(site.row(other, alone=True, resources=()))
    [branch] = await operator(site).resolve(other, "commit")
    assert branch.done


async def test_whoever_lives_is_given_a_moment(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interventions, "OPERATOR_WAIT_SECONDS", 0.05)
    tx = await site.begun()
    await site.voted(tx)
    await site.log.beat("rooms-0", seconds=60)
    [branch] = await operator(site, None, site.calendar).resolve(tx, "abort")
    assert not branch.done
    assert "rooms-0 has not answered" in branch.how
    assert len(site.store.prepared) == 1, "it is that one's"
    await site.log.carried_out("rooms", tx)
    [branch] = await operator(site).resolve(tx, "abort")
    assert branch.done


async def test_who_has_learnt_the_decision_meanwhile_needs_no_word(site: Site) -> None:
    tx = await site.begun()
    await site.voted(tx)
    await site.log.beat("rooms-0", seconds=60)
    resolving = asyncio.create_task(operator(site).resolve(tx, "commit"))
    while not await site.log.resolutions():
        await asyncio.sleep(0.01)
    await site.closed(tx, "committed")
    [branch] = await resolving
    assert branch.how == "rooms had learnt the decision: committed"


async def test_nobody_resolves_against_a_decision(site: Site) -> None:
    tx = await site.begun()
    await site.voted(tx)
    await site.journal.decide(Proposal(tx, "commit", 1))
    with pytest.raises(TransactionError, match="for rooms that is commit") as raised:
        await operator(site, None, site.calendar).resolve(tx, "abort")
    assert f"tutti tx resolve {tx} commit" in raised.value.hint
    [branch] = await operator(site, None, site.calendar).resolve(tx, "commit")
    assert branch.done
    assert await site.journal.heuristics() == (), "it is what was decided"


async def test_for_who_was_left_out_the_decision_is_abort(site: Site) -> None:
    tx = await site.begun()
    await site.voted(tx)
    await site.journal.decide(Proposal(tx, "commit", 1, excluded=(member_hash(tx, "p1"),)))
    with pytest.raises(TransactionError, match="for rooms that is abort"):
        await operator(site).resolve(tx, "commit")


async def test_what_is_not_in_doubt_is_not_resolved(site: Site) -> None:
    tx = await site.begun()
    with pytest.raises(TransactionError, match="no participant with a log here has voted"):
        await operator(site).resolve(tx, "commit")
    await site.log.write(site.row(tx, "working"))
    with pytest.raises(TransactionError, match=r"nothing is in doubt .*rooms: working"):
        await operator(site).resolve(tx, "commit")
    with pytest.raises(TransactionError, match="no participant of hotel"):
        await operator(site).resolve(tx, "commit", "hotel")


async def test_the_publishers_own_branches_are_resolved_once_its_manager_is_gone(site: Site) -> None:
    tx = await site.begun(resources=("calendar",))
    await site.prepare("publisher", tx)
    with pytest.raises(TransactionError, match="lives"):
        await operator(site, None, site.calendar).resolve(tx, "abort")
    await site.journal.release("m1")
    [branch] = await operator(site, None, site.calendar).resolve(tx, "abort")
    assert (branch.place, branch.done) == ("publisher/calendar", True)
    assert not site.store.prepared
    assert [one.place for one in await site.journal.heuristics()] == ["publisher/calendar"]


# Forgetting, and trying again


async def test_what_was_done_by_hand_is_forgotten_once_the_decision_is_known(site: Site) -> None:
    tx = await site.begun()
    await site.voted(tx)
    await operator(site, None, site.calendar).resolve(tx, "abort")
    with pytest.raises(TransactionError, match="does not know the decision") as raised:
        await operator(site).forget(tx)
    assert "--force" in raised.value.hint
    await site.journal.decide(Proposal(tx, "abort", 1))
    assert await operator(site).forget(tx) == ["rooms"]
    assert await site.log.open_rows() == (), "its instance need not ask any more"
    assert await site.log.resolutions() == ()
    assert await site.journal.heuristics() == ()
    with pytest.raises(TransactionError, match="nothing was finished by hand"):
        await operator(site).forget(tx)


async def test_with_force_nobody_asks_for_the_decision_any_more(site: Site) -> None:
    await site.voted("gone-r1-1")
    await operator(site, None, site.calendar).resolve("gone-r1-1", "commit")
    assert await operator(site).forget("gone-r1-1", force=True) == ["rooms"]
    found = await site.log.find("rooms", "gone-r1-1")
    assert found is not None
    assert found.record.state == "committed"
    assert await site.log.open_rows() == ()


async def test_a_word_that_nobody_has_carried_out_is_taken_back(site: Site) -> None:
    tx = await site.begun()
    await site.voted(tx)
    await operator(site).resolve(tx, "abort")
    assert await operator(site).forget(tx) == ["rooms"]
    assert [row.record.state for row in await site.log.open_rows()] == ["voted"]


async def test_parked_compensations_are_released(site: Site) -> None:
    tx = await site.begun()
    await site.log.park("rooms", tx, EVENT, "no answer")
    with pytest.raises(TransactionError, match="no compensation of hotel waits"):
        await operator(site).retry(tx, "hotel")
    assert await operator(site).retry(tx) == ["rooms"]
    assert await site.log.parked() == ()


async def test_a_subscriber_that_runs_carries_out_the_word(bus: Bus, site: Site) -> None:
    """From the vote to the decision that contradicts it."""
    rooms = tutti.Subscriber("rooms", resources=[site.calendar])

    @rooms.join(Meeting)
    async def always(invite: tutti.Invite[Meeting]) -> bool:
        return True

    @rooms.on(Invitation)
    async def book(event: Invitation, tx: tutti.Branch) -> None:
        (await tx.enlist(site.calendar)).put(event.room, tx.id)

    async with bus.serve(rooms):
        async with bus.transaction(Meeting("x"), census=tutti.Census(at_most=1)) as tx:
            await tx.publish(Invitation("FW26"), last=True)
            await until(lambda: site.store.prepared)
            async with asyncio.timeout(20):
                while not await site.log.open_rows():
                    await asyncio.sleep(0.01)
            [branch] = await operator(site).resolve(tx.id, "abort")
            assert (branch.done, site.store.data) == (True, {})
            await tx.commit(wait="ended")
        async with asyncio.timeout(20):
            while [(word.outcome, word.decided) for word in await site.log.resolutions()] != [("abort", "commit")]:
                await asyncio.sleep(0.01)
            while len(await site.journal.heuristics()) != 1:
                await asyncio.sleep(0.01)
