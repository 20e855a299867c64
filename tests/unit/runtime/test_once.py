"""Opened once, by whoever asks first; again after a failure; closed only if it was opened."""

from __future__ import annotations

import asyncio

import pytest

from tutti.errors import TuttiError
from tutti.runtime.once import Once


class Door:
    opened = 0
    closed = 0

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures

    async def open(self) -> Door:
        await asyncio.sleep(0)
        self.opened += 1
        if self.opened <= self.failures:
            raise TuttiError("it is stuck")
        return self

    async def close(self) -> None:
        self.closed += 1


async def test_of_many_that_ask_one_opens() -> None:
    door = Door()
    once = Once(door.open)
    assert set(await asyncio.gather(once.get(), once.get(), once.get())) == {door}
    assert once.opened is door
    await once.close()
    await once.close()
    assert (door.opened, door.closed) == (1, 1)


async def test_looking_does_not_open() -> None:
    assert Once(Door().open).opened is None


async def test_what_was_never_opened_is_not_closed() -> None:
    door = Door()
    await Once(door.open).close()
    assert (door.opened, door.closed) == (0, 0)


async def test_a_failure_is_tried_again() -> None:
    door = Door(failures=1)
    once = Once(door.open)
    with pytest.raises(TuttiError):
        await once.get()
    assert await once.get() is door


async def test_who_gives_up_does_not_close_it_for_the_others() -> None:
    door = Door()
    once = Once(door.open)
    first = asyncio.ensure_future(once.get())
    second = asyncio.ensure_future(once.get())
    await asyncio.sleep(0)
    first.cancel()
    assert await second is door


async def test_a_failure_is_no_trouble_at_the_end() -> None:
    once = Once(Door(failures=9).open)
    with pytest.raises(TuttiError):
        await once.get()
    await once.close()
