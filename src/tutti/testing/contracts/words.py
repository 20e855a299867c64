"""The words that the contracts are written in: put, read, take, heard, soon."""

# ruff: noqa: S101  -- this module is tests, shipped

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from tutti.bus.port import Listener, Reader, Record, Stored, Taken, Transport
from tutti.errors import BusError, Gone

PATIENCE: Final = 10.0  # seconds that anything may take on a busy machine
A_MOMENT: Final = 0.15  # seconds in which something that must not happen would have

_Result = TypeVar("_Result")


def put(
    transport: Transport,
    subject: str,
    data: bytes = b"",
    *,
    message_id: str = "",
    expected_last: int | None = None,
    timeout: float = PATIENCE,
) -> asyncio.Future[Stored]:
    headers = {"Nats-Msg-Id": message_id} if message_id else {}
    return transport.append(subject, headers, data, timeout=timeout, expected_last=expected_last)


async def put_many(transport: Transport, subject: str, count: int, data: bytes = b"x") -> None:
    await soon(asyncio.gather(*(put(transport, subject, data) for _ in range(count))))


async def read(reader: Reader, count: int) -> list[Record]:
    """Exactly so many records, or a failure that shows how far it came."""
    records: list[Record] = []
    deadline = time.monotonic() + PATIENCE
    while len(records) < count:
        records += await soon(reader.batch(count - len(records), wait=1.0))
        assert time.monotonic() < deadline, f"{len(records)} of {count} records came: {records[-3:]}"
    return records


async def read_to_gap(reader: Reader, *, up_to: int) -> tuple[list[int], bool]:
    """The sequences up to `up_to`, or up to the moment that the reader says the next ones are gone."""
    seen: list[int] = []
    while seen[-1:] != [up_to]:
        try:
            batch = await soon(reader.batch(500, wait=PATIENCE))
        except Gone:
            return seen, True
        assert batch, f"nothing came behind {seen[-1:]}, and nobody said that it is gone"
        seen += [record.sequence for record in batch]
    return seen, False


async def take(transport: Transport, queue: str, count: int) -> list[Taken]:
    taken: list[Taken] = []
    deadline = time.monotonic() + PATIENCE
    while len(taken) < count:
        taken += await soon(transport.take(queue, max_messages=count - len(taken), wait=1.0))
        assert time.monotonic() < deadline, f"{len(taken)} of {count} messages came"
    return taken


async def heard(listener: Listener, count: int) -> list[Record]:
    records: list[Record] = []
    if count:
        async with asyncio.timeout(PATIENCE):
            async for record in listener:
                records.append(record)
                if len(records) == count:
                    break
    return records


async def drained(listener: Listener) -> list[Record]:
    return [record async for record in listener]


async def expect_info(transport: Transport, stream: str, *, first: int, last: int, messages: int) -> None:
    info = await transport.stream_info(stream)
    assert info is not None
    assert (info.first, info.last, info.messages) == (first, last, messages)
    assert (info.bytes > 0) == (messages > 0)


async def reach_horizon(reader: Reader, sequence: int) -> None:
    """It may be behind for a while, it is never ahead."""
    deadline = time.monotonic() + PATIENCE
    while (horizon := await soon(reader.horizon())) != sequence:
        assert horizon < sequence
        assert time.monotonic() < deadline, f"the horizon stays at {horizon}, {sequence} was reached"
        await asyncio.sleep(0.02)


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def soon(awaitable: Awaitable[_Result]) -> _Result:
    async with asyncio.timeout(PATIENCE):
        return await awaitable


async def settled_or_error(awaitable: Awaitable[_Result]) -> _Result | BusError:
    try:
        return await awaitable
    except BusError as error:
        return error
