"""What every contract stands on: the servers that a test connects to, and the fixtures that give them."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from typing import ClassVar

import pytest

from tutti.bus.port import StreamSpec, Transport
from tutti.model.subjects import Layout
from tutti.testing.contracts.words import soon

TransportFactory = Callable[[], Awaitable[Transport]]


class Bus:
    """The servers that a test connects to, and the names it uses there."""

    def __init__(self, connect: TransportFactory, layout: Layout) -> None:
        self.connect = connect
        self.layout = layout

    def event(self, name: str) -> str:
        return self.layout.event_subjects("log").removesuffix(">") + name

    def wire(self, name: str) -> str:
        return f"{self.layout.namespace}.control.{name}"

    def log_spec(
        self, *, max_bytes: int = -1, max_message_bytes: int = -1, duplicate_window: float = 120.0
    ) -> StreamSpec:
        return StreamSpec(
            self.layout.event_stream("log"),
            (self.layout.event_subjects("log"),),
            max_bytes=max_bytes,
            max_message_bytes=max_message_bytes,
            duplicate_window=duplicate_window,
        )

    async def log(self, transport: Transport) -> str:
        return (await soon(transport.ensure_stream(self.log_spec()))).name

    async def state(self, transport: Transport) -> str:
        spec = StreamSpec(self.layout.state_stream, (self.layout.state_subjects,), last_per_subject=True)
        return (await soon(transport.ensure_stream(spec))).name

    async def queues(self, transport: Transport) -> str:
        spec = StreamSpec(self.layout.queue_stream, (self.layout.queue_subjects,), queue=True)
        return (await soon(transport.ensure_stream(spec))).name


@pytest.mark.asyncio
class Contract:
    silence: ClassVar[float] = 0.5  # seconds after which the factory's transports offer an unsettled message again

    @pytest.fixture
    def layout(self) -> Layout:
        return Layout(f"contract-{uuid.uuid4().hex[:12]}")

    @pytest.fixture
    def transport_factory(self, layout: Layout) -> TransportFactory:
        raise NotImplementedError("override the fixture transport_factory: it gives started transports of `layout`")

    @pytest.fixture
    def bus(self, transport_factory: TransportFactory, layout: Layout) -> Bus:
        return Bus(transport_factory, layout)
