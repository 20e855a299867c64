from __future__ import annotations

from tutti.control.participation.receipt import Receipt
from tutti.model.transaction import Consumed

A1, A2, A3 = (Consumed("manager", "A", number, number) for number in (1, 2, 3))


def test_a_number_is_new_once() -> None:
    receipt = Receipt([A1])
    assert not receipt.is_new(A1)
    assert receipt.is_new(A2)
    receipt.take(A2, deferred=False)
    assert not receipt.is_new(A2)


def test_one_is_handled_at_a_time_in_order_of_arrival() -> None:
    receipt = Receipt()
    receipt.take(A2, deferred=False)
    receipt.take(A1, deferred=False)
    assert receipt.next() is None, "nothing was released"
    receipt.release(work_ended=False)
    assert receipt.next() == A2
    assert receipt.next() is None
    assert not receipt.finish(A1)
    assert receipt.finish(A2)
    assert receipt.next() == A1
    assert not receipt.idle
    assert receipt.finish(A1)
    assert receipt.idle


def test_deferred_ones_wait_for_the_end_of_the_work() -> None:
    receipt = Receipt()
    receipt.take(A1, deferred=True)
    receipt.take(A2, deferred=False)
    receipt.release(work_ended=False)
    assert (receipt.next(), receipt.holds) == (A2, True)
    receipt.finish(A2)
    receipt.release(work_ended=True)
    assert (receipt.next(), receipt.holds) == (A1, False)


def test_what_is_missing_is_named_by_number() -> None:
    receipt = Receipt([A2])
    counts = {"manager": {"A": 3, "B": 1}, "h1": {"A": 1}}
    assert list(receipt.missing(counts, ["A"])) == [("h1", "A", (1,)), ("manager", "A", (1, 3))]


def test_surplus_is_what_was_not_counted() -> None:
    receipt = Receipt([A3])
    assert receipt.surplus({"manager": {"A": 2}}, ["A"])
    assert not receipt.surplus({"manager": {"A": 3}}, ["A"])
    assert not receipt.surplus({}, ["B"])


def test_counts() -> None:
    assert Receipt([A1, A3]).counts() == {"manager": {"A": 2}}
