"""A connection as its user has it: what is taken from it while it lives dies with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tutti.errors import OutcomeNotYours
from tutti.resources.postgres import lent
from tutti.resources.postgres.lent import Lent


class Wire:
    """Stands for a driver's connection."""

    timeout = 5

    def __init__(self) -> None:
        self.sent: list[str] = []

    @property
    def myself(self) -> Wire:
        return self

    def send(self, text: str) -> None:
        self.sent.append(text)

    async def send_soon(self, text: str) -> None:
        self.send(text)


class LentWire(Lent):
    __slots__ = ()


def lending() -> tuple[Any, Wire]:
    wire = Wire()
    return LentWire(wire), wire


async def test_while_it_lives_it_is_what_it_stands_for() -> None:
    mine, wire = lending()
    assert isinstance(mine, Wire)
    mine.send("a")
    await mine.send_soon("b")
    mine.timeout = 7
    assert (wire.sent, wire.timeout) == (["a", "b"], 7)
    del mine.timeout
    assert wire.timeout == 5


def test_it_does_not_give_away_what_is_behind_it() -> None:
    mine, wire = lending()
    assert mine.myself is mine
    assert mine.send.__self__ is mine
    assert lent.behind(mine) is wire


@pytest.mark.parametrize(
    "use",
    [
        lambda mine: mine.send("late"),
        lambda mine: mine.timeout,
        lambda mine: setattr(mine, "timeout", 7),
        lambda mine: delattr(mine, "timeout"),
    ],
)
def test_every_use_is_refused_after_its_end(use: Callable[[Any], object]) -> None:
    mine, wire = lending()
    lent.end(mine)
    with pytest.raises(OutcomeNotYours, match="the work has ended"):
        use(mine)
    assert (wire.sent, wire.timeout) == ([], 5)


async def test_what_was_taken_before_its_end_is_refused_too() -> None:
    mine, wire = lending()
    method, begun = mine.send, mine.send_soon("late")
    lent.end(mine)
    method_of_another = LentWire(wire).send
    with pytest.raises(OutcomeNotYours, match="the work has ended"):
        method("late")
    with pytest.raises(OutcomeNotYours, match="the work has ended"):
        await begun
    method_of_another("in time")
    assert wire.sent == ["in time"]
