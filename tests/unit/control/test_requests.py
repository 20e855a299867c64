"""Who waits for an answer, and until when."""

from __future__ import annotations

from tutti.control.transaction.messages import Answer, Committed
from tutti.control.transaction.requests import Requests


def test_everybody_is_answered_once() -> None:
    requests = Requests()
    requests.wait(1, 5.0)
    requests.wait(2, None)
    assert requests
    assert requests.answer_all(Committed()) == [Answer(1, Committed()), Answer(2, Committed())]
    assert not requests
    assert requests.answer_all(Committed()) == []


def test_a_commit_is_given_up_when_its_time_is_up() -> None:
    requests = Requests()
    requests.wait(1, 5.0)
    requests.wait(2, 7.0)
    assert requests.give_up(4.9) == []
    assert requests.give_up(5.0) == [1]
    assert requests.give_up(9.0) == [2], "the other still waits"
    assert not requests.for_commit


def test_the_alarm_is_set_for_the_first() -> None:
    requests = Requests()
    requests.wait(1, 7.0)
    requests.wait(2, 5.0)
    requests.wait(3, None)
    assert (requests.wake_at, requests.for_commit) == (5.0, True)


def test_an_abort_waits_as_long_as_it_takes_and_wants_no_commit() -> None:
    requests = Requests()
    requests.wait(1, None)
    assert not requests.for_commit
    assert requests.give_up(1e9) == []
    assert requests
