"""An event that its subscription gave up on becomes a dead letter, and whoever waits for an answer hears of it."""

from __future__ import annotations

import pytest

from tutti.bus.port import Record
from tutti.flow.dispatcher import Bury
from tutti.model.envelope import Envelope
from tutti.runtime.admission import Item
from tutti.runtime.burial import Burial
from tutti.runtime.dead import DeadLetter
from tutti.runtime.delivery import Delivery
from tutti.testing.kit import BusKit

EVENT = Envelope(id="one", source="/desk/1", type="Trade", data=b"{}")


def item(sequence: int = 7, poison: str = "", traceback: str = "") -> Item:
    delivery = Delivery(Record("s", {"ce-id": "one"}, b"{}", sequence), EVENT, lambda _event, _envelope: None)
    return Item(delivery, "desk", poison=poison, traceback=traceback)


async def buried(bus: BusKit, *items: Item) -> list[DeadLetter]:
    burial = Burial(bus.context, "app", "step", "log")
    for one in items:
        await burial.write(burial.letter(one, Bury(one.delivery.sequence, "ValueError: broken", 3)), one)
    return [letter async for letter in bus.dead.each()]


async def test_the_letter_says_what_was_tried_and_why_it_failed(
    tutti_bus: BusKit, caplog: pytest.LogCaptureFixture
) -> None:
    (letter,) = await buried(tutti_bus, item(traceback="line 1"))
    assert (letter.subscriber, letter.subscription, letter.stream, letter.sequence) == ("app", "step", "log", 7)
    assert (letter.reason, letter.attempts, letter.traceback) == ("ValueError: broken", 3, "line 1")
    assert tutti_bus.metrics.total("tutti_dead_total") == 1
    assert "app.step: one is dead-lettered: ValueError: broken" in caplog.text


async def test_what_was_never_understood_was_never_tried(tutti_bus: BusKit) -> None:
    (letter,) = await buried(tutti_bus, item(poison="no event"))
    assert (letter.reason, letter.attempts) == ("no event", 0)


async def test_a_best_effort_event_stands_in_no_log(tutti_bus: BusKit) -> None:
    (letter,) = await buried(tutti_bus, item(sequence=0))
    assert letter.stream == ""
