"""`tutti queues`: what waits to be taken."""

from __future__ import annotations

import time
from typing import Final

import msgspec
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from tutti.cli.options import Session
from tutti.runtime.bus import Bus

LOOK_MAX_COUNT: Final = 200  # messages that are looked at


class QueueState(msgspec.Struct, frozen=True):
    """What waits in a queue. `at_least`: there is more in the queues than was looked at."""

    name: str
    messages: int
    oldest_at: float  # seconds since the epoch, by the server's clock
    at_least: bool = False

    @property
    def waiting(self) -> str:
        return f"{self.messages} or more" if self.at_least else str(self.messages)


class QueueList(msgspec.Struct, frozen=True):
    queues: list[QueueState]
    now: float

    def __rich__(self) -> RenderableType:
        if not self.queues:
            return "nothing waits in any queue"
        table = Table("queue", "waiting", "oldest", box=None, pad_edge=False)
        for queue in self.queues:
            table.add_row(Text(queue.name), queue.waiting, age(self.now - queue.oldest_at))
        return table


async def waiting(bus: Bus) -> list[QueueState]:
    """The oldest messages of the queues. They are fetched one by one: reading the stream would be taking from it."""
    layout = bus.context.layout
    info = await bus.context.transport.stream_info(layout.queue_stream)
    if info is None or not info.messages:
        return []
    found: dict[str, QueueState] = {}
    last = min(info.last, info.first + LOOK_MAX_COUNT - 1)
    for sequence in range(info.first, last + 1):
        record = await bus.context.transport.fetch(layout.queue_stream, sequence)
        if record is None:
            continue
        name = record.subject.removeprefix(f"{layout.namespace}.queue.").split(".")[0]
        known = found.get(name, QueueState(name, 0, record.stored_at, at_least=last < info.last))
        found[name] = msgspec.structs.replace(known, messages=known.messages + 1)
    return list(found.values())


def age(seconds: float) -> str:
    """`45 s`, `12 min`, `5 h`, `3 days`: whole units, rounded down."""
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


async def show_queues(session: Session) -> None:
    async with session.bus(create=False) as bus:
        session.output.show(QueueList(sorted(await waiting(bus), key=lambda queue: queue.name), time.time()))
