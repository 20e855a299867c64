"""What every journal promises, as tests: whoever writes one runs them against it.

    class TestMyJournal(JournalContract):
        @pytest.fixture
        async def place(self) -> AsyncIterator[JournalPlace]:
            async with my_place() as place:     # a new, empty journal
                yield place

A place opens the same journal as often as it is asked to, and lets its clock go on.
"""

# ruff: noqa: S101  -- this module is tests, shipped

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tutti.errors import (
    AlreadyClaimed,
    AlreadyRegistered,
    DeclarationError,
    Delegated,
    Fenced,
    InvariantViolated,
    JournalUnfit,
    JournalUnreachable,
    LeaseHeld,
    UnknownTransaction,
)
from tutti.journal import Heuristic, Proposal, Sent, Undecided, Unknown
from tutti.limits import STATUS_EVENTS_MAX_BYTES
from tutti.model.messages import Ended
from tutti.model.status import InlineEvents, ManifestReference, Span, TransactionStatus, named, spans_of
from tutti.model.transaction import Decision, TransactionRecord
from tutti.testing.contracts.journal_words import LEASE, JournalKit, JournalPlace, outcomes_of, status_of

__all__ = ["DecisionContract", "JournalContract", "JournalPlace", "KeepingContract", "LeaseContract", "StatusContract"]


class _Contract:
    @pytest.fixture
    async def kit(self, place: JournalPlace) -> JournalKit:
        return JournalKit(place, await place.open())


class DecisionContract(_Contract):
    """register, decide, decision, claims, branches, delegation."""

    async def test_the_id_is_a_token_and_stays(self, kit: JournalKit) -> None:
        again = await kit.place.open()
        assert again.id == kit.journal.id
        assert again.id.isalnum()

    async def test_no_row_means_undecided(self, kit: JournalKit) -> None:
        tx = await kit.begun(manager="m7")
        answer = await kit.journal.decision(tx)
        assert isinstance(answer, Undecided)
        assert (answer.manager, answer.epoch, answer.lapsed) == ("m7", 1, False)

    async def test_what_was_never_registered_is_unknown_not_aborted(self, kit: JournalKit) -> None:
        tx = kit.new_tx()
        assert await kit.journal.decision(tx) == Unknown(tx)
        with pytest.raises(UnknownTransaction):
            await kit.journal.decide(Proposal(tx, "abort", 1))
        assert await kit.journal.decision(tx) == Unknown(tx)
        assert await kit.journal.show(tx) is None

    async def test_another_journals_transaction_is_refused(self, kit: JournalKit) -> None:
        for call in (kit.journal.decision("other-1"), kit.journal.decide(Proposal("other-1", "abort", 1))):
            with pytest.raises(DeclarationError, match="belongs to the journal other"):
                await call

    async def test_the_first_decision_stands(self, kit: JournalKit) -> None:
        tx = await kit.begun(members=("a", "b"), vital=("a",))
        other = await kit.place.open()
        first = await kit.journal.decide(Proposal(tx, "commit", 1, reason="all yes", excluded=("b",)))
        assert first == Decision(tx, "commit", 1, reason="all yes", excluded=("b",))
        assert await other.decide(Proposal(tx, "abort", 1, reason="too late")) == first
        assert await other.decision(tx) == await kit.journal.decision(tx) == first

    async def test_racers_agree(self, kit: JournalKit) -> None:
        journals = [kit.journal, await kit.place.open(), await kit.place.open()]
        for _ in range(10):
            tx = await kit.begun()
            proposals: list[Proposal] = [Proposal(tx, "commit", 1), Proposal(tx, "abort", 1)] * 3
            decisions = await asyncio.gather(*(journals[n % 3].decide(one) for n, one in enumerate(proposals)))
            assert len({decision.outcome for decision in decisions}) == 1
            assert await kit.journal.decision(tx) == decisions[0]

    async def test_registering_again_is_harmless_and_another_is_refused(self, kit: JournalKit) -> None:
        record = TransactionRecord(kit.new_tx(), "Meeting", 1.0, "m1", 1, ("a",), ("a",), ("key",), ("r1", "r2"))
        await kit.journal.register(record)
        await kit.journal.register(record)
        with pytest.raises(AlreadyRegistered):
            await kit.journal.register(TransactionRecord(record.tx, "Party", 1.0, "m1", 1))
        dossier = await kit.journal.show(record.tx)
        assert dossier is not None
        assert dossier.entry.record == record

    async def test_resources_are_kept_in_order_once(self, kit: JournalKit) -> None:
        tx = await kit.begun(resources=("first",))
        for name in ("second", "first", "third", "second"):
            await kit.journal.enlist(tx, 1, name)
        dossier = await kit.journal.show(tx)
        assert dossier is not None
        assert dossier.entry.record.resources == ("first", "second", "third")

    async def test_a_claim_is_committed_once(self, kit: JournalKit) -> None:
        first, second = await kit.begun(), await kit.begun()
        await kit.journal.decide(Proposal(first, "commit", 1, claims=("query/7",)))
        proposal = Proposal(
            second, "commit", 1, claims=("free", "query/7"), status=status_of(second, "commit", Span("e", ((1, 1),)))
        )
        with pytest.raises(AlreadyClaimed) as caught:
            await kit.journal.decide(proposal)
        assert (caught.value.key, caught.value.tx) == ("query/7", first)
        assert isinstance(await kit.journal.decision(second), Undecided), "nothing of the refused proposal stands"
        assert await kit.journal.unsent() == ()
        third = await kit.begun()
        await kit.journal.decide(Proposal(third, "commit", 1, claims=("free",)))
        assert (await kit.journal.decide(Proposal(second, "abort", 1))).outcome == "abort"
        repeated = await kit.journal.decide(Proposal(first, "commit", 1, claims=("query/7",)))
        assert repeated.outcome == "commit", "asking again after a lost answer is no conflict with oneself"

    async def test_of_racers_for_a_claim_one_commits(self, kit: JournalKit) -> None:
        journals = [kit.journal, await kit.place.open()]
        transactions = [await kit.begun() for _ in range(8)]
        found = await outcomes_of(
            *(journals[n % 2].decide(Proposal(tx, "commit", 1, claims=("q/1",))) for n, tx in enumerate(transactions))
        )
        assert sum(isinstance(one, Decision) for one in found) == 1
        assert sum(isinstance(one, AlreadyClaimed) for one in found) == 7

    async def test_branches_are_decided_apart_and_the_whole_covers_the_rest(self, kit: JournalKit) -> None:
        tx = await kit.begun()
        await kit.journal.decide(Proposal(tx, "commit", 1, branch="hotel"))
        assert isinstance(await kit.journal.decision(tx), Undecided)
        assert isinstance(await kit.journal.decision(tx, "flight"), Undecided)
        await kit.journal.decide(Proposal(tx, "abort", 1))
        found = [await kit.journal.decision(tx, branch) for branch in ("hotel", "flight", "*")]
        assert [one.outcome for one in found if isinstance(one, Decision)] == ["commit", "abort", "abort"]
        assert (await kit.journal.decide(Proposal(tx, "commit", 1, branch="flight"))).outcome == "abort"

    async def test_a_delegated_outcome_is_only_recorded(self, kit: JournalKit) -> None:
        tx = await kit.begun()
        assert await kit.journal.delegate(tx, 1, "ledger") is None
        assert await kit.journal.delegate(tx, 1, "ledger") is None
        with pytest.raises(Delegated):
            await kit.journal.delegate(tx, 1, "stock")
        with pytest.raises(Delegated) as caught:
            await kit.journal.decide(Proposal(tx, "abort", 1, reason="deadline"))
        assert caught.value.resource == "ledger"
        answer = await kit.journal.decision(tx)
        assert isinstance(answer, Undecided)
        assert answer.delegated_to == "ledger"
        assert (await kit.journal.decide(Proposal(tx, "commit", 1, read_from="ledger"))).outcome == "commit"

    async def test_what_is_decided_is_not_delegated(self, kit: JournalKit) -> None:
        tx = await kit.begun()
        standing = await kit.journal.decide(Proposal(tx, "abort", 1))
        assert await kit.journal.delegate(tx, 1, "ledger") == standing

    async def test_a_refusal_harms_nobody_else(self, kit: JournalKit) -> None:
        """Written in one group or not: everybody gets the own answer."""
        good = [await kit.begun() for _ in range(20)]
        calls = [kit.journal.decide(Proposal(tx, "commit", 1)) for tx in good]
        calls[5:5] = [kit.journal.decide(Proposal(kit.new_tx(), "commit", 1)) for _ in range(3)]
        found = await outcomes_of(*calls)
        assert [type(one) for one in found[5:8]] == [UnknownTransaction] * 3
        assert [one.tx for one in found if isinstance(one, Decision)] == good

    async def test_a_journal_that_is_closed_says_so(self, kit: JournalKit) -> None:
        other = await kit.place.open()
        await other.close()
        with pytest.raises(JournalUnreachable):
            await other.now()
        await other.start()
        assert await other.now() > 0


class LeaseContract(_Contract):
    """renew, release, take_over, and the fence."""

    async def test_a_living_manager_is_not_succeeded(self, kit: JournalKit) -> None:
        tx = await kit.begun(manager="m1", lease=60.0)
        with pytest.raises(LeaseHeld) as caught:
            await kit.journal.take_over(tx, expected=1, manager="m2")
        assert caught.value.manager == "m1"
        assert 0 < caught.value.seconds <= 60

    async def test_after_the_lease_one_of_the_racers_succeeds(self, kit: JournalKit) -> None:
        journals = [kit.journal, await kit.place.open(), await kit.place.open()]
        tx = await kit.begun(lease=LEASE)
        await kit.place.pass_time(LEASE)
        found = await outcomes_of(*(journals[n % 3].take_over(tx, expected=1, manager=f"heir{n}") for n in range(9)))
        assert sum(one == 2 for one in found) == 1
        assert sum(isinstance(one, Fenced) for one in found) == 8
        answer = await kit.journal.decision(tx)
        assert isinstance(answer, Undecided)
        assert (answer.manager, answer.epoch) == (f"heir{found.index(2)}", 2)

    async def test_a_renewed_lease_lives_on_and_is_never_shortened(self, kit: JournalKit) -> None:
        tx = await kit.begun(manager="m1", lease=LEASE)
        until = await kit.journal.renew("m1", seconds=60.0)
        assert await kit.journal.renew("m1", seconds=0.001) == until
        await kit.place.pass_time(LEASE)
        with pytest.raises(LeaseHeld):
            await kit.journal.take_over(tx, expected=1, manager="m2")

    async def test_a_released_lease_is_over(self, kit: JournalKit) -> None:
        tx = await kit.begun(manager="m1", lease=60.0)
        await kit.journal.release("m1")
        assert await kit.journal.take_over(tx, expected=1, manager="m2") == 2

    async def test_an_heir_is_not_succeeded_while_it_lives(self, kit: JournalKit) -> None:
        tx = await kit.begun(lease=LEASE)
        await kit.taken_over(tx, manager="heir")
        with pytest.raises(LeaseHeld) as caught:
            await kit.journal.take_over(tx, expected=2, manager="m3")
        assert caught.value.manager == "heir"

    async def test_taking_over_again_answers_the_same(self, kit: JournalKit) -> None:
        tx = await kit.begun(lease=LEASE)
        assert await kit.taken_over(tx) == 2
        assert await kit.journal.take_over(tx, expected=1, manager="m2") == 2

    async def test_the_old_manager_is_fenced_everywhere(self, kit: JournalKit) -> None:
        tx = await kit.begun(lease=LEASE)
        await kit.taken_over(tx)
        journal = kit.journal
        calls = (
            journal.decide(Proposal(tx, "commit", 1)),
            journal.enlist(tx, 1, "r"),
            journal.delegate(tx, 1, "r"),
            journal.queue_status(TransactionStatus(tx, "work_ended"), 1),
            journal.finish(tx, 1),
        )
        for call in calls:
            with pytest.raises(Fenced) as caught:
                await call
            assert caught.value.epoch == 2
        assert isinstance(await journal.decision(tx), Undecided)
        assert (await journal.decide(Proposal(tx, "abort", 2))).outcome == "abort"
        with pytest.raises(Fenced):
            await journal.decide(Proposal(tx, "commit", 1))
        assert (await journal.decide(Proposal(tx, "commit", 2))).outcome == "abort"

    async def test_deciding_and_taking_over_at_once(self, kit: JournalKit) -> None:
        """Either the old manager's decision stands and its heir finds it, or it is fenced and the heir's stands."""
        other = await kit.place.open()
        for _ in range(10):
            tx = await kit.begun(manager="m1", lease=60.0)
            await kit.journal.release("m1")
            decided, epoch = await outcomes_of(
                kit.journal.decide(Proposal(tx, "commit", 1)), other.take_over(tx, expected=1, manager="m2")
            )
            assert epoch == 2
            final = await other.decide(Proposal(tx, "abort", 2))
            assert final.outcome == ("commit" if isinstance(decided, Decision) else "abort")
            assert isinstance(decided, Decision | Fenced)

    async def test_an_epoch_that_the_journal_never_gave_is_refused(self, kit: JournalKit) -> None:
        tx = await kit.begun()
        with pytest.raises(JournalUnfit, match="went back"):
            await kit.journal.decide(Proposal(tx, "commit", 2))


class StatusContract(_Contract):
    """The outbox."""

    async def test_a_status_waits_until_it_is_marked(self, kit: JournalKit) -> None:
        tx = await kit.begun()
        events = named(spans_of({"events-a": [3, 4, 5, 9], "events-b": [1]}))
        status = TransactionStatus(tx, "committed", events)
        await kit.journal.decide(Proposal(tx, "commit", 1, status=status))
        other = await kit.place.open()
        [queued] = await other.unsent()
        assert queued.status == status
        assert queued.sequence == 0
        assert await kit.journal.unsent() == (queued,)
        await other.mark_sent([Sent(queued.position, 17)])
        await other.mark_sent([Sent(queued.position, 18)])
        assert await kit.journal.unsent() == ()
        dossier = await kit.journal.show(tx)
        assert dossier is not None
        assert [one.sequence for one in dossier.statuses] == [17]

    async def test_statuses_come_in_the_order_of_queueing(self, kit: JournalKit) -> None:
        first, second = await kit.begun(), await kit.begun()
        wanted = [await kit.journal.queue_status(TransactionStatus(tx, "work_ended"), 1) for tx in (second, first)]
        for tx in (first, second):
            await kit.journal.decide(Proposal(tx, "abort", 1))
            wanted.append(await kit.journal.queue_status(TransactionStatus(tx, "aborted", reason="crash"), 1))
        assert list(await kit.journal.unsent()) == wanted
        assert list(await kit.journal.unsent(after=wanted[1].position)) == wanted[2:]
        assert list(await kit.journal.unsent(limit=1)) == wanted[:1]
        await kit.journal.mark_sent([Sent(wanted[1].position, 5), Sent(wanted[3].position, 6)])
        assert list(await kit.journal.unsent()) == [wanted[0], wanted[2]]

    async def test_queueing_again_queues_nothing(self, kit: JournalKit) -> None:
        tx = await kit.begun()
        first = await kit.journal.queue_status(TransactionStatus(tx, "work_ended", named(spans_of({"e": [1]}))), 1)
        again = await kit.journal.queue_status(TransactionStatus(tx, "work_ended", named(spans_of({"e": [2]}))), 1)
        assert again == first
        later = TransactionStatus(tx, "work_ended", named(spans_of({"e": [2]})), closing=2)
        assert (await kit.journal.queue_status(later, 1)).position > first.position
        assert len(await kit.journal.unsent()) == 2

    async def test_a_status_says_what_was_decided(self, kit: JournalKit) -> None:
        tx = await kit.begun()
        with pytest.raises(InvariantViolated):
            await kit.journal.queue_status(status_of(tx, "commit"), 1)
        with pytest.raises(InvariantViolated):
            await kit.journal.decide(Proposal(tx, "abort", 1, status=status_of(tx, "commit")))
        assert isinstance(await kit.journal.decision(tx), Undecided)
        await kit.journal.decide(Proposal(tx, "abort", 1))
        with pytest.raises(InvariantViolated):
            await kit.journal.queue_status(status_of(tx, "commit"), 1)
        await kit.journal.queue_status(status_of(tx, "abort"), 1)

    async def test_of_two_proposals_only_the_standing_one_has_its_status(self, kit: JournalKit) -> None:
        tx = await kit.begun()
        await kit.journal.decide(Proposal(tx, "commit", 1, status=status_of(tx, "commit")))
        await kit.journal.decide(Proposal(tx, "abort", 1, status=status_of(tx, "abort")))
        assert [one.status.status for one in await kit.journal.unsent()] == ["committed"]

    async def test_many_events_are_named_by_manifests(self, kit: JournalKit) -> None:
        tx = await kit.begun()
        spans = spans_of({"events": range(1, 100_000, 2)})
        with pytest.raises(InvariantViolated, match=f"above {STATUS_EVENTS_MAX_BYTES:,} bytes"):
            await kit.journal.decide(
                Proposal(tx, "commit", 1, status=TransactionStatus(tx, "committed", InlineEvents(spans)))
            )
        events = named(spans, (ManifestReference("events", 100_001), ManifestReference("events", 100_002)))
        await kit.journal.decide(Proposal(tx, "commit", 1, status=TransactionStatus(tx, "committed", events)))
        [queued] = await kit.journal.unsent()
        assert queued.status.events == events


class KeepingContract(_Contract):
    """ended, finish, entries, heuristics, shrink, forget."""

    async def test_the_ended_are_kept(self, kit: JournalKit) -> None:
        tx, other = await kit.begun(members=("a", "b")), await kit.begun(members=("c",))
        await kit.journal.ended(
            [Ended(tx, "a", "commit"), Ended(tx, "b", "abort", "compensating"), Ended(other, "c", "commit")]
        )
        await kit.journal.ended([Ended(kit.new_tx(), "a", "commit"), Ended(tx, "b", "abort")])
        await kit.journal.ended([Ended(tx, "b", "abort", "compensating"), Ended(tx, "a", "abort")])
        dossier = await kit.journal.show(tx)
        assert dossier is not None
        assert dossier.ended == (Ended(tx, "a", "commit"), Ended(tx, "b", "abort"))

    async def test_recovery_finds_what_is_open(self, kit: JournalKit) -> None:
        now = await kit.journal.now()
        living = await kit.begun(manager="alive")
        dead = await kit.begun(manager="dead", lease=LEASE)
        overdue = await kit.begun(manager="alive", deadline=now - 1)
        unannounced = await kit.begun(manager="dead", lease=LEASE)
        await kit.journal.decide(Proposal(unannounced, "abort", 1))
        announced = await kit.decided(sent=False, manager="alive")
        await kit.decided(manager="alive", sent=True)
        await kit.place.pass_time(LEASE)

        async def found(**wanted: Any) -> set[str]:
            return {entry.record.tx for entry in await kit.journal.entries(**wanted)}

        assert await found(undecided=True) == {living, dead, overdue}
        assert await found(unfinished=True) == {living, dead, overdue, unannounced, announced}
        assert await found(unfinished=True, lapsed=True) == {dead, unannounced}
        assert await found(undecided=True, overdue=True) == {overdue}
        assert await found(unannounced=True) == {unannounced}
        assert await found(undecided=True, manager="dead") == {dead}

    async def test_entries_come_in_pages(self, kit: JournalKit) -> None:
        transactions = [await kit.begun(resources=(f"r{n}",)) for n in range(5)]
        first = await kit.journal.entries(limit=3)
        rest = await kit.journal.entries(after=first[-1].number, limit=3)
        assert [entry.record.tx for entry in first + rest] == transactions
        assert [entry.record.resources for entry in first + rest] == [(f"r{n}",) for n in range(5)]

    async def test_an_entry_shows_the_present_manager(self, kit: JournalKit) -> None:
        tx = await kit.begun(lease=LEASE)
        await kit.taken_over(tx, manager="heir")
        [entry] = await kit.journal.entries()
        assert (entry.record.manager, entry.record.epoch, entry.decision) == ("heir", 2, None)
        await kit.journal.decide(Proposal(tx, "abort", 2, reason="manager died"))
        [entry] = await kit.journal.entries()
        assert entry.decision == Decision(tx, "abort", 2, reason="manager died")
        assert entry.decided_at >= entry.registered_at

    async def test_only_what_is_decided_finishes(self, kit: JournalKit) -> None:
        tx = await kit.begun()
        with pytest.raises(InvariantViolated):
            await kit.journal.finish(tx, 1)
        await kit.journal.decide(Proposal(tx, "abort", 1))
        await kit.journal.finish(tx, 1)
        await kit.journal.finish(tx, 1)
        assert await kit.journal.entries(unfinished=True) == ()

    async def test_heuristics_are_shown_until_forgotten(self, kit: JournalKit) -> None:
        tx = await kit.decided("commit")
        heuristic = Heuristic(tx, "calendar", "abort", detail="rolled back by hand", by="ada")
        await kit.journal.record_heuristic(heuristic)
        await kit.journal.record_heuristic(Heuristic(tx, "rooms", "hazard"))
        await kit.journal.record_heuristic(Heuristic(tx, "calendar", "mixed"))
        found = await kit.journal.heuristics()
        assert {(one.place, one.taken) for one in found} == {("calendar", "abort"), ("rooms", "hazard")}
        dossier = await kit.journal.show(tx)
        assert dossier is not None
        assert len(dossier.heuristics) == 2
        assert await kit.journal.forget_heuristic(tx, "rooms") == 1
        assert [one.place for one in await kit.journal.heuristics()] == ["calendar"]
        assert await kit.journal.forget_heuristic(tx) == 1
        assert await kit.journal.heuristics() == ()

    async def test_an_end_against_the_decision_is_a_heuristic(self, kit: JournalKit) -> None:
        tx = await kit.decided("commit")
        reports = [Ended(tx, "hotel", "abort", "heuristic"), Ended("j-unknown-1", "hotel", "abort", "heuristic")]
        for _ in range(2):
            await kit.journal.ended(reports)
        [found] = await kit.journal.heuristics()
        assert (found.tx, found.place, found.taken) == (tx, "hotel", "abort")

    async def test_old_outcomes_shrink_and_stay(self, kit: JournalKit) -> None:
        committed, aborted = await kit.decided("commit"), await kit.decided("abort")
        branched = await kit.begun()
        await kit.journal.decide(Proposal(branched, "commit", 1, branch="hotel", claims=("q/1",)))
        await kit.journal.decide(Proposal(branched, "abort", 1))
        await kit.journal.finish(branched, 1)
        assert await kit.journal.shrink(await kit.journal.now() - 60) == 0
        await kit.place.pass_time(0.01)
        assert await kit.journal.shrink(await kit.journal.now()) == 3
        assert await kit.journal.shrink(await kit.journal.now()) == 0
        assert await kit.journal.entries() == ()
        assert await kit.journal.show(committed) is None
        asked = [(committed, "*"), (aborted, "*"), (branched, "hotel"), (branched, "flight")]
        answers = [await kit.journal.decision(tx, branch) for tx, branch in asked]
        assert [one.outcome for one in answers if isinstance(one, Decision)] == ["commit", "abort", "commit", "abort"]
        late = await kit.journal.decide(Proposal(committed, "abort", 1))
        assert late.outcome == "commit", "a late proposal finds what was decided"
        await kit.journal.finish(committed, 1)
        with pytest.raises(AlreadyRegistered):
            await kit.journal.register(TransactionRecord(committed, "Meeting", 1.0, "m1", 1))
        thief = await kit.begun()
        with pytest.raises(AlreadyClaimed):
            await kit.journal.decide(Proposal(thief, "commit", 1, claims=("q/1",)))

    async def test_what_is_still_needed_does_not_shrink(self, kit: JournalKit) -> None:
        unsent = await kit.decided("commit", sent=False)
        await kit.journal.finish(unsent, 1)
        unfinished = await kit.begun()
        await kit.journal.decide(Proposal(unfinished, "abort", 1))
        undecided = await kit.begun()
        await kit.place.pass_time(0.01)
        assert await kit.journal.shrink(await kit.journal.now()) == 0
        await kit.send_all()
        await kit.journal.record_heuristic(Heuristic(unsent, "r", "abort"))
        assert await kit.journal.shrink(await kit.journal.now()) == 0
        await kit.journal.forget_heuristic(unsent)
        assert await kit.journal.shrink(await kit.journal.now()) == 1
        assert {entry.record.tx for entry in await kit.journal.entries()} == {unfinished, undecided}

    async def test_shrinking_ends_no_lease(self, kit: JournalKit) -> None:
        tx = await kit.begun(manager="m1", lease=60.0)
        await kit.journal.renew("idle", seconds=60.0)
        await kit.journal.shrink(await kit.journal.now())
        with pytest.raises(LeaseHeld):
            await kit.journal.take_over(tx, expected=1, manager="m2")

    async def test_what_is_forgotten_is_unknown_not_aborted(self, kit: JournalKit) -> None:
        tx = await kit.decided("commit")
        await kit.place.pass_time(0.01)
        assert await kit.journal.forget(await kit.journal.now()) == 0, "only what has shrunk"
        await kit.journal.shrink(await kit.journal.now())
        assert await kit.journal.forget(await kit.journal.now() - 60) == 0
        assert await kit.journal.forget(await kit.journal.now()) == 1
        assert await kit.journal.decision(tx) == Unknown(tx)
        with pytest.raises(UnknownTransaction):
            await kit.journal.decide(Proposal(tx, "abort", 1))


class JournalContract(DecisionContract, LeaseContract, StatusContract, KeepingContract):
    """All of it. A subclass gives `place`."""
