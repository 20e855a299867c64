"""What is published and who handles it, and the marks that each process leaves for the checker.

Every mark is one line, written by one `os.write` to a file that only its process appends to: SIGKILL tears at most the
last line, and a torn line has no line end. Times are `time.monotonic`, which the processes of one machine share.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import msgspec

import tutti
from tutti.model.policy import Policy
from tutti.model.subjects import partition_of

STREAM: Final = "ticks"
REGIONS: Final = ("alps", "baltic", "caspian", "danube")
ACCOUNTS_COUNT: Final = 16


class Tick(tutti.Event, stream=STREAM):
    """`number` counts the events of a publisher from 1; the rest follows from it."""

    region: Annotated[str, tutti.routing]
    account: str
    publisher: str
    number: int

    @classmethod
    def numbered(cls, publisher: str, number: int) -> Tick:
        return cls(REGIONS[number % 3 + number % 2], account_of(number), publisher, number)


def account_of(number: int) -> str:
    return f"a{number * 7 % ACCOUNTS_COUNT}"


class PublisherPlan(msgspec.Struct, frozen=True):
    """`window` events are published at once and waited for together; `timeout` is the patience with each."""

    name: str
    share: float  # of all events
    window: int
    timeout: float  # seconds

    @property
    def partition(self) -> int:
        return partition_of(self.name)


# Two that pipeline and wait out an outage, one that goes step by step and soon gives up and tries again.
PUBLISHERS: Final = (
    PublisherPlan("north", 0.4, window=200, timeout=10.0),
    PublisherPlan("south", 0.4, window=50, timeout=10.0),
    PublisherPlan("west", 0.2, window=1, timeout=0.1),
)


class SubscriberPlan(msgspec.Struct, frozen=True):
    """`keyed`: order is per publisher and account, and accounts are handled side by side."""

    name: str
    instances: int = 1
    keyed: bool = False


SUBSCRIBERS: Final = (
    SubscriberPlan("plain"),
    SubscriberPlan("shared", instances=2),
    SubscriberPlan("keyed", keyed=True),
)


class Acknowledged(msgspec.Struct, frozen=True, array_like=True):
    """The bus said that the event is stored, at `sequence`. `tries` above 1: it was refused or in doubt before."""

    publisher: str
    number: int
    sequence: int
    duplicate: bool
    tries: int
    time: float


class Handling(msgspec.Struct, frozen=True, array_like=True):
    """A handler was called. `run` names the process: subscriber, instance, and how often it was started before."""

    subscriber: str
    run: str
    publisher: str
    number: int
    sequence: int
    attempt: int
    time: float


class Counters(msgspec.Struct, frozen=True):
    """What a subscriber's process says when it ends in peace."""

    run: str
    missing: int
    dead: int
    failures: int
    health: str
    broken: list[str]


class Marks:
    """A file of lines."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def add(self, *values: object) -> None:
        os.write(self._descriptor, b"".join(msgspec.json.encode(value) + b"\n" for value in values))


class NewLines:
    """The lines that were added to the files of a folder since the last look."""

    def __init__(self, folder: Path, pattern: str) -> None:
        self._folder = folder
        self._pattern = pattern
        self._offsets: dict[Path, int] = {}

    def __iter__(self) -> Iterator[bytes]:
        for path in sorted(self._folder.glob(self._pattern)):
            with path.open("rb") as file:
                file.seek(self._offsets.get(path, 0))
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._offsets[path] = self._offsets.get(path, 0) + len(whole)
            yield from whole.splitlines()


class Complaints(logging.Handler):
    """Warnings and errors of a process, as marks."""

    def __init__(self, path: Path) -> None:
        super().__init__(logging.WARNING)
        self._marks = Marks(path)

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record) if record.exc_info else record.getMessage()
        self._marks.add((record.levelname, record.name, round(time.monotonic(), 3), text))


def subscriber(plan: SubscriberPlan, run: str, marks: Marks) -> tutti.Subscriber:
    """The subscriber that `plan` describes, with a handler that only leaves its mark."""
    concurrency = 8 if plan.keyed else 1
    declared = tutti.Subscriber(plan.name, policy=Policy(concurrency=concurrency, in_flight=500))

    @declared.on(Tick, where="number > 0", key="account" if plan.keyed else None, start="earliest")
    async def tick(event: Tick, delivery: tutti.Delivery) -> None:
        if plan.keyed:
            await asyncio.sleep(0.001 * (event.number % 4))  # so that accounts do overtake each other
        marks.add(
            Handling(
                plan.name, run, event.publisher, event.number, delivery.sequence, delivery.attempt, time.monotonic()
            )
        )

    return declared


@contextlib.contextmanager
def complaints_to(path: Path) -> Iterator[None]:
    handler = Complaints(path)
    logger = logging.getLogger("tutti")
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
