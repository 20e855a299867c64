"""What the drivers of one bus share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from tutti.bus.port import Reader, Start, StreamInfo, Transport
from tutti.model.subjects import Layout
from tutti.runtime.admission import Item
from tutti.runtime.catalogue import Catalogue
from tutti.runtime.clock import Clock
from tutti.runtime.dead import DeadLetters
from tutti.runtime.execution import Failure
from tutti.runtime.metrics import Metrics
from tutti.runtime.publisher import Publisher


class ReadableLog(Protocol):
    """Of a transport, what a feed reads with; or what stands for it and shows the log in another order."""

    async def stream_info(self, name: str) -> StreamInfo | None: ...
    async def reader(self, stream: str, subjects: Sequence[str], start: Start) -> Reader: ...


# Sees every call of a handler: its subscriber and name, with which events, which attempt, why it failed (or nothing).
Witness = Callable[[str, str, list[Any], int, str], None]


class Context(msgspec.Struct, frozen=True):
    transport: Transport
    layout: Layout
    clock: Clock
    metrics: Metrics
    catalogue: Catalogue
    publisher: Publisher
    dead: DeadLetters
    bus: Any  # the Bus itself, for deliveries
    instance: str  # this process's name among the instances of a subscriber
    failed: Callable[[asyncio.Task[None]], None]  # a task of ours ended with an exception that nobody awaits
    report: Callable[[str], None]  # something is wrong that health must show
    alone: bool = (
        False  # no other process can be on this bus: every partition is ours, and there is nobody to lease from
    )
    witness: Witness | None = None
    trusted: str = ""  # the journal's public key, where configuration says it

    def tell_witness(self, subscriber: str, name: str, items: Sequence[Item], failure: Failure | None) -> None:
        if self.witness is not None and items:
            reason = failure.reason if failure is not None else ""
            self.witness(subscriber, name, [item.event for item in items], items[0].delivery.attempt, reason)
