from __future__ import annotations

import pytest

from tutti.control.participation.unknown import answer_unknown
from tutti.model.messages import Begin, Close, Decide, Dismiss, Ended, Invite, ManagerMessage, Prepare, Send, To, Vote

TX = "j1-a"


@pytest.mark.parametrize(
    ("message", "number"),
    [(Prepare(TX, 4, 2, {}, 9.0), 2), (Close(TX, 4, 3), 3), (Begin(TX, 4, ("h1",), 9.0), 0)],
)
def test_prepare_for_an_unknown_transaction_is_answered_no(message: ManagerMessage, number: int) -> None:
    no = Vote(TX, 4, number, "h1", "no", "the transaction is not known here")
    assert answer_unknown(message, "h1") == Send(no, To.MANAGER)


def test_of_a_decided_one_nothing_is_left_to_end() -> None:
    assert answer_unknown(Decide(TX, 4, "commit"), "h1") == Send(Ended(TX, "h1", "commit"), To.MANAGER)
    assert answer_unknown(Decide(TX, 4, "commit", excluded=("h1",)), "h1") == Send(Ended(TX, "h1", "abort"), To.MANAGER)


@pytest.mark.parametrize("message", [Dismiss(TX, "x"), Invite(TX, "M", None, 1.0), Begin(TX, 4, ("h2",), 9.0)])
def test_nothing_else_is_answered(message: ManagerMessage) -> None:
    assert answer_unknown(message, "h1") is None
