"""`tutti up` and `tutti run`: what stays until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Iterator

import msgspec
from rich.console import RenderableType
from rich.text import Text

from tutti.bus.embedded import Embedded
from tutti.cli.loading import load_all, load_resources
from tutti.cli.logs import start_logging
from tutti.cli.monitoring import Answer, Monitor, Page
from tutti.cli.options import AtServers, Session
from tutti.limits import STOP_GRACE_SECONDS
from tutti.runtime.bus import Bus
from tutti.runtime.service import Service
from tutti.runtime.subscriber import Subscriber

log = logging.getLogger("tutti.run")


class ServerUp(msgspec.Struct, frozen=True):
    ready: bool
    url: str  # without the credentials, which are for the folder's owner alone
    folder: str
    version: str
    pid: int
    journal: str  # its id: this process manages transactions that are decided there
    key: str  # its public key, for `tutti.connect(trusted=…)` elsewhere

    def __rich__(self) -> RenderableType:
        return Text.assemble(
            ("tutti is up", "bold green"),
            f"\n  folder   {self.folder}\n  url      {self.url}\n  server   nats-server {self.version}, pid {self.pid}"
            f'\n  journal  {self.journal}: transactions of publishers with manager="service" are managed here'
            f"\n  programs that name this folder share it; Ctrl-C ends it when the last of them has left",
        )


class ManagerUp(msgspec.Struct, frozen=True):
    """Without a server of its own."""

    ready: bool
    urls: tuple[str, ...]
    journal: str
    key: str

    def __rich__(self) -> RenderableType:
        return Text.assemble(
            ("tutti is up", "bold green"),
            f"\n  servers  {', '.join(map(public_url, self.urls))}"
            f'\n  journal  {self.journal}: transactions of publishers with manager="service" are managed here',
        )


class ServiceUp(msgspec.Struct, frozen=True):
    ready: bool
    subscribers: dict[str, list[str]]  # name: its handlers
    server: str
    pid: int
    metrics_port: int | None = None

    def __rich__(self) -> RenderableType:
        text = Text()
        for name, handlers in self.subscribers.items():
            text.append_text(Text.assemble((name, "bold"), f" serves {', '.join(handlers)}\n"))
        text.append(f"at {self.server or 'a bus of its own'}; Ctrl-C ends")
        if self.metrics_port is not None:
            text.append(f"; http://127.0.0.1:{self.metrics_port}/metrics and /health")
        return text


class Stopped(msgspec.Struct, frozen=True):
    """The end of a service. Not `finished`: a handler was still at work when its time was over."""

    finished: bool

    def __rich__(self) -> RenderableType:
        if self.finished:
            return "stopped: everything that ran was finished"
        return "stopped: a handler did not end in time and was left alone; its event will be handled again"


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    places: tuple[str, ...]
    name: str = ""
    grace: float = STOP_GRACE_SECONDS
    metrics_port: int | None = None
    log: str = "text"
    log_level: str = "info"


async def keep_up(session: Session, *, journal: str | None, resources: tuple[str, ...]) -> int | None:
    """An embedded server, unless servers run already; and in any case a manager for publishers that have none."""
    known = load_resources(resources)
    where = session.target
    with stop_signals() as stop:
        if isinstance(where, AtServers):
            async with session.bus(name="tutti-up", journal=journal, resources=known) as bus:
                coordinator = await bus.host()
                session.output.show(
                    ManagerUp(ready=True, urls=where.urls, journal=coordinator.journal.id, key=coordinator.key.public)
                )
                await stop.wait()
            return None
        async with (
            await Embedded.acquire(where.folder, keep=True) as server,
            session.bus(name="tutti-up", journal=journal, resources=known) as bus,
        ):
            coordinator = await bus.host()
            up = ServerUp(
                ready=True,
                url=public_url(server.url),
                folder=str(server.folder),
                version=server.version,
                pid=server.pid,
                journal=coordinator.journal.id,
                key=coordinator.key.public,
            )
            session.output.show(up)
            await stop.wait()
    return None


def public_url(url: str) -> str:
    """Without user and password."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"


async def serve(session: Session, settings: RunSettings) -> int | None:
    start_logging(settings.log, settings.log_level)
    subscribers = load_all(settings.places)
    with stop_signals() as stop:
        finished = await _serve_until(stop, session, settings, subscribers)
    session.output.show(Stopped(finished))
    return None if finished else 1


async def _serve_until(
    stop: asyncio.Event, session: Session, settings: RunSettings, subscribers: list[Subscriber]
) -> bool:
    bus = session.bus(name=settings.name)
    await bus.open()
    try:
        async with contextlib.AsyncExitStack() as stack:
            port = None
            if settings.metrics_port is not None:
                port = (await stack.enter_async_context(Monitor(settings.metrics_port, _pages(bus)))).port
            services = [await bus.start(subscriber) for subscriber in subscribers]
            names = {subscriber.name: list(subscriber.subscriptions) for subscriber in subscribers}
            server = bus.context.transport.status().server
            session.output.show(
                ServiceUp(ready=True, subscribers=names, server=server, pid=os.getpid(), metrics_port=port)
            )
            await stop.wait()
            return await _stop(bus, services, settings.grace)
    finally:
        await bus.close(grace=settings.grace)


async def _stop(bus: Bus, services: list[Service], grace: float) -> bool:
    log.info("stopping: finishing what runs, at most %g seconds", grace)
    return all(await asyncio.gather(*(bus.stop(service, grace=grace) for service in services)))


def _pages(bus: Bus) -> dict[str, Page]:
    def metrics() -> Answer:
        return Answer(200, bus.metrics.text().encode(), "text/plain; version=0.0.4; charset=utf-8")

    def health() -> Answer:
        found = bus.health()
        return Answer(200 if found.state == "ok" else 503, msgspec.json.encode(found) + b"\n", "application/json")

    return {"/metrics": metrics, "/health": health}


@contextlib.contextmanager
def stop_signals() -> Iterator[asyncio.Event]:
    """Set by the first SIGINT or SIGTERM. The second ends the process at once: somebody really means it."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def received(number: signal.Signals) -> None:
        if stop.is_set():
            end_now(128 + number)
        stop.set()

    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, received, number)
    try:
        yield stop
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def end_now(code: int) -> None:
    """End without waiting for anything or anybody; what is written is written, leases run out by themselves."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)
