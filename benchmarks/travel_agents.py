"""The subscribers of the transaction benchmark, as processes of their own.

`python -m benchmarks.travel_agents DATA NAME URL` takes part with a database, by census and in the group;
`… DATA --idle N` is N members that do nothing but vote. It writes "ready", and ends when its input does; with
`--account` it first writes what it did, and when.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import tutti
from benchmarks.journeys import CONCURRENCY, GROUP, INSERT, Booking, Journey
from tutti.resources import BranchId, Resource
from tutti.resources.postgres import PostgresOptions
from tutti.resources.postgres.asyncpg import AsyncpgResource
from tutti.runtime.transactions.branch import Branch


class Account(logging.Handler):
    """The steps of each transaction, as Tutti logs them, with the time of a clock that all processes share."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.steps: list[tuple[float, str, str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        said: dict[str, Any] = record.__dict__
        if "step" in said:
            self.steps.append((time.perf_counter(), said["tx"], said["role"], said["step"]))

    @classmethod
    def opened(cls) -> Account:
        account, log = cls(), logging.getLogger("tutti.transactions")
        log.setLevel(logging.INFO)
        log.propagate = False
        log.addHandler(account)
        return account

    def close(self) -> None:
        log = logging.getLogger("tutti.transactions")
        log.setLevel(logging.NOTSET)
        log.propagate = True
        log.removeHandler(self)
        super().close()


class Agents:
    """Processes of subscribers, started together. `end` gives what they accounted for."""

    def __init__(self, commands: Sequence[Sequence[str]]) -> None:
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.travel_agents", *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for command in commands
        ]

    def wait(self) -> None:
        for process in self._processes:
            assert process.stdout is not None  # noqa: S101  for the type checker: it is a pipe
            if process.stdout.readline().strip() != "ready":
                raise RuntimeError("a subscriber's process did not start")

    def end(self) -> list[tuple[float, str, str, str]]:
        steps: list[tuple[float, str, str, str]] = []
        for process in self._processes:
            said, _ = process.communicate()
            steps += [tuple(step) for step in json.loads(said)] if said.strip() else []
        return steps


def agent(name: str, resource: Resource[Any]) -> tutti.Subscriber:
    agent = tutti.Subscriber(name, resources=[resource])
    agent.enrol(GROUP, Journey)

    @agent.join(Journey)
    async def always(invite: tutti.Invite[Journey]) -> bool:  # noqa: ARG001  the signature of a callback
        return True

    @agent.on(Booking)
    async def book(event: Booking, tx: Branch) -> None:
        connection = await tx.enlist(resource)
        await connection.execute(INSERT, event.number, event.traveller)

    return agent


def idle(number: int, group: str) -> tutti.Subscriber:
    idle = tutti.Subscriber(f"{group}-{number}")
    idle.enrol(group, Journey)

    @idle.join(Journey)
    async def always(invite: tutti.Invite[Journey]) -> bool:  # noqa: ARG001  the signature of a callback
        return True

    @idle.on(Booking)
    async def nothing(event: Booking, tx: Branch) -> None: ...

    return idle


async def serve(data: str, subscribers: Sequence[tutti.Subscriber]) -> None:
    async with tutti.connect(data=data, name=subscribers[0].name) as bus, bus.serve(*subscribers):
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)


async def warm(resource: AsyncpgResource) -> None:
    """As many connections as there will be branches at once."""
    await resource.start()
    branches = [BranchId("warm", f"up-{number}", resource.name) for number in range(CONCURRENCY)]
    works = await asyncio.gather(*(resource.begin(branch) for branch in branches))
    await asyncio.gather(*(work.rollback() for work in works))


async def run(arguments: argparse.Namespace) -> None:
    if arguments.idle:
        group = f"idle-{arguments.idle}"
        await serve(arguments.data, [idle(number, group) for number in range(arguments.idle)])
        return
    resource = AsyncpgResource(arguments.name, arguments.url, PostgresOptions(connections=CONCURRENCY))
    await warm(resource)
    try:
        await serve(arguments.data, [agent(arguments.name, resource)])
    finally:
        await resource.close()


def main() -> int:
    parser = argparse.ArgumentParser(description="a subscriber of the transaction benchmark")
    parser.add_argument("data")
    parser.add_argument("name", nargs="?", default="")
    parser.add_argument("url", nargs="?", default="")
    parser.add_argument("--idle", type=int, default=0)
    parser.add_argument("--account", action="store_true")
    arguments = parser.parse_args()
    account = Account.opened() if arguments.account else None
    asyncio.run(run(arguments))
    if account is not None:
        print(json.dumps(account.steps))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
