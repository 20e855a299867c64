"""Commands without servers: a session whose buses share one cluster in memory, and an output that remembers."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from tutti.bus.memory import MemoryCluster, MemoryTransport
from tutti.bus.port import Transport
from tutti.cli.options import Common, Session
from tutti.cli.output import Problem, Shown
from tutti.model.subjects import Layout
from tutti.runtime.bus import Bus


class Remembered:
    """An output that keeps what it is given."""

    def __init__(self) -> None:
        self.shown: list[Any] = []
        self.notes: list[str] = []
        self.problems: list[Problem] = []

    def show(self, value: Shown) -> None:
        self.shown.append(value)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def screen(self) -> AbstractContextManager[None]:
        return nullcontext()

    def fail(self, problem: Problem) -> None:
        self.problems.append(problem)


class MemorySession(Session):
    """Every bus of this session is on the same cluster."""

    def __init__(self) -> None:
        self.answers = Remembered()
        self.cluster = MemoryCluster()
        super().__init__(Common(url="nats://127.0.0.1:1"), self.answers)

    def bus(self, *, name: str = "", **_: Any) -> Bus:
        async def opened(layout: Layout) -> Transport:
            transport = MemoryTransport(layout, cluster=self.cluster)
            await transport.start()
            return transport

        return Bus(opened, name=name, alone=True)


@pytest.fixture
def session() -> MemorySession:
    return MemorySession()
