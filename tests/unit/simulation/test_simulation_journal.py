"""The journal: nobody is answered before the sync, the first row stands, older epochs are refused."""

from __future__ import annotations

from functools import partial

from tests.unit.simulation.quiet import Listener, ground, network, run
from tutti.limits import JOURNAL_LEASE_SECONDS
from tutti.model.transaction import Decision, TransactionRecord
from tutti.simulation.facts import Ordered
from tutti.simulation.faults import JOURNAL, Faults, Partition
from tutti.simulation.ground import Ground
from tutti.simulation.journal import Answer, Failed, Fenced, Journal, Row
from tutti.simulation.network import Network

TX = "j1-1"
RECORD = TransactionRecord(TX, "Meeting", 60.0, "p0#1", 1)
ABORT = Decision(TX, "abort", 1)


def made(faults: Faults | None = None) -> tuple[Ground, Journal, Listener, Network]:
    world = ground(faults)
    net, (p0,) = network(world, "p0")
    world.see("p0", Ordered(TX, (), 0))
    return world, Journal(world, net), p0, net


def test_the_first_row_stands_and_everybody_hears_it() -> None:
    _, journal, _, _ = made()
    assert journal.register(RECORD) is None
    assert journal.decide(ABORT) == ABORT
    assert journal.decide(Decision(TX, "abort", 1, reason="later")) == ABORT
    assert journal.decision(TX) == (True, ABORT)
    assert journal.decision("j1-2") == (False, None)


def test_a_successor_fences_its_predecessor() -> None:
    world, journal, _, _ = made()
    journal.register(RECORD)
    assert isinstance(journal.take_over(TX, 1, "k0#1"), Failed), "the lease is held"
    assert journal.orphans("k0#1") == ()
    run(world, JOURNAL_LEASE_SECONDS + 1.0)
    assert journal.orphans("k0#1") == ((TX, 1),)
    row = journal.take_over(TX, 1, "k0#1")
    assert isinstance(row, Row)
    assert (row.record.manager, row.record.epoch) == ("k0#1", 2)
    assert isinstance(journal.take_over(TX, 1, "k1#1"), Fenced)
    assert isinstance(journal.decide(ABORT), Fenced)
    assert isinstance(journal.enlist(TX, 1, "own"), Fenced)
    assert isinstance(journal.finish(TX, 1), Fenced)


def test_a_write_is_answered_after_the_sync() -> None:
    world, journal, p0, _ = made()
    answers: list[Answer] = []
    journal.write(p0, lambda: journal.register(RECORD), answers.append)
    assert journal.rows == {}
    run(world)
    assert answers == [None]
    assert TX in journal.rows


def test_what_was_not_answered_may_stand_or_not_after_a_crash() -> None:
    stands = []
    for number in range(20):
        world, journal, p0, _ = made()
        world.rng.seed(number)
        answers: list[Answer] = []
        journal.write(p0, partial(journal.register, RECORD), answers.append)
        while not journal._tail:
            world.agenda.step(1.0)
        journal.crash(0.1)
        run(world)
        assert answers == [Failed("it crashed")]
        stands.append(TX in journal.rows)
    assert set(stands) == {True, False}


def test_an_answer_is_lost_and_the_row_stands() -> None:
    world, journal, p0, _ = made(Faults(answer_lost=1.0))
    answers: list[Answer] = []
    journal.write(p0, lambda: journal.register(RECORD), answers.append)
    run(world)
    assert answers == [Failed("no answer")]
    assert TX in journal.rows


def test_who_is_cut_off_does_not_reach_it() -> None:
    world, journal, p0, net = made()
    net.cut(Partition(0.0, 9.0, (JOURNAL,)))
    answers: list[Answer] = []
    journal.write(p0, lambda: journal.register(RECORD), answers.append)
    journal.read(p0, lambda: journal.decision(TX), answers.append)
    run(world)
    assert [type(answer) for answer in answers] == [Failed, Failed]
