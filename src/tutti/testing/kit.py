"""A bus for users' tests: in memory, with a clock of its own, and a word for "all is done".

    async def test_trades_are_booked(tutti_bus):
        async with tutti_bus.serve(desk):
            await tutti_bus.advertise(TradeDone)
            await tutti_bus.publish(TradeDone("IBM", Decimal("128.50")))
            await tutti_bus.settle()
        assert tutti_bus.handled(trade) == [TradeDone("IBM", Decimal("128.50"))]

Nothing sleeps: pauses between attempts and waits for batches pass at once, because `settle` moves the clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from tutti.bus.memory import MemoryCluster, MemoryTransport
from tutti.bus.port import Transport
from tutti.model.subjects import Layout
from tutti.runtime.bus import Bus
from tutti.runtime.dead import DeadLetter
from tutti.runtime.queues import Message
from tutti.runtime.subscriber import Handler
from tutti.runtime.transactions.opening import CoordinatorOpener
from tutti.testing.clock import ManualClock

SETTLE_SECONDS = 10.0  # of real time, for handlers that really take time
_STUCK_LOOKS: Final = 100  # a transaction that stands still for so many milliseconds waits for the clock


class Call(msgspec.Struct, frozen=True):
    """One call of a handler, or of a compensator: with which events, which attempt, and why it failed (empty: it
    returned)."""

    subscriber: str
    subscription: str
    events: list[Any]
    attempt: int
    failure: str = ""


class BusKit(Bus):
    """The bus that the `tutti_bus` fixture gives: all that a bus can do; `settle`, `calls`, `handled`, `letters`."""

    def __init__(self, *, name: str = "test", namespace: str = "tutti") -> None:
        self.clock = ManualClock()
        self.cluster = MemoryCluster(clock=self.clock)
        self.calls: list[Call] = []
        super().__init__(
            self._open,
            name=name,
            namespace=namespace,
            clock=self.clock,
            alone=True,
            witness=self._remember,
            open_coordinator=CoordinatorOpener(None, Path(), ()),
        )

    async def settle(self) -> None:
        """Wait until every published event was handled or dead-lettered by every subscriber served here, and every
        transaction has ended, or is still being worked on in its block."""
        async with asyncio.timeout(SETTLE_SECONDS) as limit:
            quiet = stuck = 0
            while quiet < 3:  # a handler may have published: look again after everybody had a turn
                await _turns()
                if self._busy():
                    await asyncio.sleep(0.001)  # a handler takes real time
                    quiet = 0
                elif stuck < _STUCK_LOOKS and self._transacting():
                    await asyncio.sleep(0.001)  # the journal does: its database is a real one
                    quiet, stuck = 0, stuck + 1
                elif (
                    not self._transacting() and all(service.idle() for service in self.services) and self.cluster.idle()
                ):
                    quiet += 1
                elif self.clock.due is not None:
                    self.clock.advance(max(0.0, self.clock.due - self.clock.monotonic()))
                    quiet = stuck = 0
        assert not limit.expired()  # noqa: S101 a test kit asserts

    async def receive(self, queue: str, *types: type, wait: float | None = None) -> Message | None:
        """As `Bus.receive`; a wait passes at once if nothing comes."""
        receiving = asyncio.ensure_future(super().receive(queue, *types, wait=wait))
        while not receiving.done():
            await _turns()
            if wait is not None and not receiving.done() and self.clock.due is not None and not self._busy():
                self.clock.advance(max(0.0, self.clock.due - self.clock.monotonic()))
            await asyncio.sleep(0.001)
        return receiving.result()

    def handled(self, handler: Handler[..., Any] | Callable[..., Any] | str) -> list[Any]:
        """The events for which this handler, or this compensator, returned, in that order."""
        name = handler.subscription.name if isinstance(handler, Handler) else getattr(handler, "__name__", handler)
        return [event for call in self.calls if call.subscription == name and not call.failure for event in call.events]

    async def letters(self) -> list[DeadLetter]:
        """The dead letters, oldest first."""
        return [letter async for letter in self.dead.each()]

    def _busy(self) -> bool:
        return any(service.at_work for service in self.services)

    def _idle(self) -> bool:
        return not self._transacting() and all(service.idle() for service in self.services) and self.cluster.idle()

    def _transacting(self) -> bool:
        coordinator = self._coordinator.opened
        managing = coordinator is not None and not coordinator.idle
        members = (service.participants for service in self.services)
        return managing or any(member is not None and not member.idle for member in members)

    async def _open(self, layout: Layout) -> Transport:
        transport = MemoryTransport(layout, cluster=self.cluster)
        await transport.start()
        return transport

    def _remember(self, subscriber: str, subscription: str, events: list[Any], attempt: int, failure: str) -> None:
        self.calls.append(Call(subscriber, subscription, events, attempt, failure))


async def _turns() -> None:
    """Let everything that can run, run."""
    for _ in range(25):
        await asyncio.sleep(0)
