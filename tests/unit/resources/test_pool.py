from __future__ import annotations

import asyncio

import pytest

from tutti.resources.pool import Pool


class Server:
    def __init__(self) -> None:
        self.connected = 0
        self.closed: list[int] = []
        self.down = False

    async def connect(self) -> int:
        if self.down:
            raise ConnectionRefusedError
        self.connected += 1
        return self.connected

    async def disconnect(self, connection: int) -> None:
        self.closed.append(connection)

    def pool(self, *, size: int = 2, spare: int = 1, wait: float = 0.02) -> Pool[int]:
        return Pool(self.connect, self.disconnect, size=size, spare=spare, wait=wait)


async def test_the_last_that_came_back_is_lent_first() -> None:
    server = Server()
    pool = server.pool()
    one, two = await pool.acquire(urgent=False), await pool.acquire(urgent=False)
    await pool.release(one)
    await pool.release(two)
    assert await pool.acquire(urgent=False) == two
    assert server.connected == 2


async def test_who_is_urgent_has_more() -> None:
    server = Server()
    pool = server.pool()
    for _ in range(2):
        await pool.acquire(urgent=False)
    with pytest.raises(TimeoutError):
        await pool.acquire(urgent=False)
    spare = await pool.acquire(urgent=True)
    with pytest.raises(TimeoutError):
        await pool.acquire(urgent=True)
    await pool.release(spare)
    with pytest.raises(TimeoutError):  # the spare place is not for work
        await pool.acquire(urgent=False)


async def test_who_waits_gets_what_comes_back() -> None:
    server = Server()
    pool = server.pool(size=1, wait=5)
    first = await pool.acquire(urgent=False)
    waiting = [asyncio.create_task(pool.acquire(urgent=False)) for _ in range(2)]
    await asyncio.sleep(0)
    await pool.release(first)
    done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    assert [task.result() for task in done] == [first]
    await pool.discard(first)
    results = await asyncio.gather(*waiting)
    assert sorted(results) == [1, 2]


async def test_a_connection_that_fails_takes_no_place() -> None:
    server = Server()
    pool = server.pool(size=1, spare=0)
    server.down = True
    for _ in range(3):
        with pytest.raises(ConnectionRefusedError):
            await pool.acquire(urgent=False)
    server.down = False
    assert await pool.acquire(urgent=False) == 1


async def test_the_dead_take_the_idle_with_them() -> None:
    server = Server()
    pool = server.pool(size=3)
    lent = [await pool.acquire(urgent=False) for _ in range(3)]
    for each in lent[:2]:
        await pool.release(each)
    await pool.discard(lent[2], others_too=True)
    assert sorted(server.closed) == [1, 2, 3]
    assert await pool.acquire(urgent=False) == 4


async def test_what_is_spare_is_not_kept() -> None:
    server = Server()
    pool = server.pool(size=1)
    lent = [await pool.acquire(urgent=True) for _ in range(2)]
    for each in lent:
        await pool.release(each)
    assert server.closed == [2]
    await pool.close()
    assert server.closed == [2, 1]


async def test_who_is_cancelled_keeps_no_place() -> None:
    """However many others are being woken at that moment."""
    server = Server()
    pool = server.pool(size=2, spare=0, wait=5)
    lent = [await pool.acquire(urgent=False) for _ in range(2)]
    waiting = [asyncio.create_task(pool.acquire(urgent=False)) for _ in range(3)]
    await asyncio.sleep(0)
    back = [asyncio.create_task(pool.release(each)) for each in lent]
    await asyncio.sleep(0)
    for task in (*back, *waiting):
        task.cancel()
    outcomes = await asyncio.gather(*back, *waiting, return_exceptions=True)
    for kept in outcomes[2:]:
        if isinstance(kept, int):
            await pool.release(kept)
    async with asyncio.timeout(1):
        assert len({await pool.acquire(urgent=False) for _ in range(2)}) == 2


async def test_a_connection_that_cannot_be_closed_takes_no_place() -> None:
    server = Server()
    pool = server.pool(size=1, spare=0)

    async def refuse(_: int) -> None:
        raise ConnectionResetError

    server.disconnect = refuse  # type: ignore[assignment]  # this server closes badly
    pool = server.pool(size=1, spare=0)
    with pytest.raises(ConnectionResetError):
        await pool.discard(await pool.acquire(urgent=False))
    assert await pool.acquire(urgent=False) == 2
