"""A publisher's numbers when the log's answer is late, lost, or no: whatever is published again leaves no hole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Annotated

import pytest

import tutti
from tutti.bus.memory import MemoryCluster, MemoryTransport
from tutti.bus.port import FromEarliest, Stored, Transport
from tutti.errors import OutcomeUnknown, Refused
from tutti.model.subjects import Layout
from tutti.runtime import publisher
from tutti.runtime.bus import Bus


class Step(tutti.Event):
    name: str


class Routed(tutti.Event):
    symbol: Annotated[str, tutti.routing]


class Unreliable(MemoryTransport):
    """Does with the appends of an event what `fate` says of its id, one word for each try."""

    fate: dict[str, list[str]]
    held: list[asyncio.Future[Stored]]
    default = "stored"

    def append(
        self, subject: str, headers: Mapping[str, str], data: bytes, *, timeout: float, expected_last: int | None = None
    ) -> asyncio.Future[Stored]:
        fates = self.fate.get(headers.get("ce-id", ""), [])
        fate = fates.pop(0) if fates else self.default
        if fate in {"stored", "answer lost"}:
            stored = super().append(subject, headers, data, timeout=timeout, expected_last=expected_last)
            if fate == "stored":
                return stored
        if fate == "sent twice":
            super().append(subject, headers, data, timeout=timeout)
            return super().append(subject, headers, data, timeout=timeout)
        failed: asyncio.Future[Stored] = asyncio.get_running_loop().create_future()
        if fate == "held":
            self.held.append(failed)
            return failed
        failed.set_exception(Refused("no") if fate == "refused" else OutcomeUnknown("perhaps"))
        return failed


@pytest.fixture
async def bus() -> AsyncIterator[Bus]:
    async def open_transport(layout: Layout) -> Transport:
        transport = Unreliable(layout, cluster=MemoryCluster())
        transport.fate, transport.held = {}, []
        await transport.start()
        return transport

    async with Bus(open_transport, alone=True) as opened:
        await opened.advertise(Step)
        yield opened


async def numbers(bus: Bus) -> list[tuple[str, int]]:
    """Id and number of everything in the log."""
    info = await bus.context.transport.stream_info(bus.context.layout.event_stream("events"))
    assert info is not None
    reader = await bus.context.transport.reader(info.name, (), FromEarliest())
    records = await reader.batch(100, wait=1)
    await reader.close()
    return [(record.headers["ce-id"], int(record.headers["ce-sequence"])) for record in records]


@pytest.mark.parametrize(
    "fates",
    [
        ["answer lost"],
        ["lost"],
        ["lost", "answer lost"],
        ["answer lost", "lost", "refused"],
        ["lost", "refused", "refused"],
        ["refused"],
        ["sent twice"],
        ["answer lost", "sent twice"],
    ],
)
async def test_an_event_published_until_it_is_acknowledged_leaves_no_hole(bus: Bus, fates: list[str]) -> None:
    transport = bus.context.transport
    assert isinstance(transport, Unreliable)
    transport.fate = {"b": list(fates)}
    await bus.publish(Step("a"), id="a")
    while True:
        try:
            await bus.publish(Step("b"), id="b")
            break
        except (Refused, OutcomeUnknown):
            continue
    await bus.publish(Step("c"), id="c")
    assert await numbers(bus) == [("a", 1), ("b", 2), ("c", 3)]


async def test_an_event_published_twice_takes_no_number(bus: Bus) -> None:
    for name in ("a", "a", "b", "a", "c"):
        await bus.publish(Step(name), id=name)
    assert await numbers(bus) == [("a", 1), ("b", 2), ("c", 3)]


async def test_an_event_in_doubt_that_is_given_up_leaves_a_hole_to_be_seen(bus: Bus) -> None:
    transport = bus.context.transport
    assert isinstance(transport, Unreliable)
    transport.fate = {"a": ["lost"]}
    with pytest.raises(OutcomeUnknown):
        await bus.publish(Step("a"), id="a")
    await bus.publish(Step("b"), id="b")
    assert await numbers(bus) == [("b", 2)]


@pytest.mark.parametrize("many", [False, True])
async def test_who_is_cancelled_leaves_no_number_behind(bus: Bus, many: bool) -> None:
    transport = bus.context.transport
    assert isinstance(transport, Unreliable)
    transport.default = "held"
    publishing = asyncio.ensure_future(bus.publish_many(map(Step, "abc")) if many else bus.publish(Step("a")))
    while len(transport.held) < (3 if many else 1):
        await asyncio.sleep(0)
    publishing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await publishing
    transport.default = "stored"
    for held in transport.held:
        held.set_exception(Refused("no"))
    await asyncio.sleep(0)
    await bus.publish(Step("d"), id="d")
    assert await numbers(bus) == [("d", 1)]
    assert bus.metrics.total("tutti_publish_failures_total") == len(transport.held)


async def test_numbers_of_before_the_numbering_began_anew_are_none_of_now(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher, "PUBLISHER_SUBJECTS_MAX_COUNT", 2)
    transport = bus.context.transport
    assert isinstance(transport, Unreliable)
    await bus.advertise(Routed)
    transport.fate = {"late": ["held"], "doubt": ["held"]}
    late = asyncio.ensure_future(bus.publish(Routed("x"), id="late"))
    doubt = asyncio.ensure_future(bus.publish(Routed("x"), id="doubt"))
    await asyncio.sleep(0)
    await bus.publish(Routed("y"), id="a")
    await bus.publish(Routed("z"), id="b")  # the third subject
    transport.held[1].set_exception(OutcomeUnknown("perhaps"))
    transport.held[0].set_exception(Refused("no"))
    for outcome, error in ((late, Refused), (doubt, OutcomeUnknown)):
        with pytest.raises(error, match="Routed"):
            await outcome
    await bus.publish(Routed("x"), id="doubt")
    assert await numbers(bus) == [("a", 1), ("b", 1), ("doubt", 1)]
