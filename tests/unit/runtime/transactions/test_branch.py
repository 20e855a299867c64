"""The handle that handlers get as `tx`."""

from __future__ import annotations

from typing import Any

import pytest

from tutti.errors import TransactionClosed
from tutti.resources.memory import MemoryResource
from tutti.runtime.transactions.branch import Branch


class Bench:
    def __init__(self) -> None:
        self.asked: list[object] = []

    async def enlist(self, resource: Any) -> Any:
        self.asked.append(resource)
        return "connection"

    async def publish(self, event: object) -> None:
        self.asked.append(event)

    def set_abort(self, reason: str) -> None:
        self.asked.append(reason)


async def test_it_passes_on_what_a_handler_asks_for_until_the_handler_has_returned() -> None:
    bench, rooms = Bench(), MemoryResource("rooms")
    branch = Branch(bench, tx="j-r-1", type_name="Meeting", scope="private", deadline=5.0)
    assert (branch.id, branch.type, branch.scope, branch.deadline) == ("j-r-1", "Meeting", "private", 5.0)
    assert repr(branch) == "<branch of Meeting j-r-1>"
    assert str(await branch.enlist(rooms)) == "connection"
    await branch.publish("event")
    branch.set_abort("no")
    assert bench.asked == [rooms, "event", "no"]
    branch.close()
    with pytest.raises(TransactionClosed, match=r"tx.enlist\(\) after the handler has returned"):
        await branch.enlist(rooms)
    with pytest.raises(TransactionClosed, match=r"tx\.publish"):
        await branch.publish("event")
    with pytest.raises(TransactionClosed, match=r"tx\.set_abort"):
        branch.set_abort("late")
