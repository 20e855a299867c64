from __future__ import annotations

import pytest

from tutti.errors import ResourceUnreachable
from tutti.runtime.transactions.insisting import insist


async def test_it_is_tried_until_it_is_done(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("tutti.runtime.transactions.insisting.FINISH_RETRY_SECONDS", 0.001)
    left = [ResourceUnreachable("no way"), ResourceUnreachable("no way")]

    async def work() -> None:
        if left:
            raise left.pop()

    await insist(work, "j-r-1: calendar")
    assert caplog.messages == ["j-r-1: calendar: not yet: no way"] * 2


async def test_a_bug_is_not_tried_again() -> None:
    async def work() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await insist(work, "j-r-1: calendar")
