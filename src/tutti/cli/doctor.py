"""`tutti doctor`: what is there, whether it is well, and what to do if it is not.

Facts are collected first; what they mean is decided by the `about_…` functions, which look at nothing else.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, assert_never

import msgspec
from rich.console import RenderableType
from rich.text import Text

from tutti.bus.embedded import ServerState, ailment_of, inspect
from tutti.bus.embedded.binary import FLOOR, at_or_above_floor
from tutti.bus.port import Status, StreamInfo
from tutti.cli.findings import Finding, Level
from tutti.cli.options import AtServers, InFolder, Session
from tutti.cli.output import counted, times
from tutti.cli.queues import QueueState, age, waiting
from tutti.cli.records import SpoiltRecord, all_records, decoded, missing_streams, spoilt
from tutti.cli.subscriptions import SubscriberState, SubscriptionState, survey
from tutti.cli.unfinished import transaction_findings
from tutti.errors import TuttiError
from tutti.runtime.bus import Bus
from tutti.runtime.catalogue import Stream
from tutti.runtime.publisher import REPLAY_PREFIX

STUCK_SECONDS: Final = 60.0  # a served subscription that has events to read and moved no position for so long
QUEUE_WAIT_SECONDS: Final = 60.0  # a message that waits for so long has no taker
FULL_RATIO: Final = 0.8  # of a stream's limit: time to think of it
_MARKS: Final[dict[Level, tuple[str, str]]] = {
    "ok": ("✓", "green"),
    "warning": ("!", "yellow"),
    "problem": ("✗", "bold red"),
}


class Diagnosis(msgspec.Struct, frozen=True):
    findings: list[Finding]

    @property
    def healthy(self) -> bool:
        return all(finding.level != "problem" for finding in self.findings)

    def as_json(self) -> dict[str, object]:
        return {"healthy": self.healthy, "findings": self.findings}

    def __rich__(self) -> RenderableType:
        text = Text()
        for finding in self.findings:
            mark, style = _MARKS[finding.level]
            text.append_text(Text.assemble((mark, style), " ", (f"{finding.area:<14}", "bold"), finding.what, "\n"))
            if finding.todo:
                text.append(f"                → {finding.todo}\n")
        counts = [sum(f.level == level for f in self.findings) for level in _MARKS]
        return text.append(f"{counts[0]} well, {counted(counts[1], 'warning')}, {counted(counts[2], 'problem')}")


async def examine(session: Session, journal: str = "", resources: Sequence[str] = ()) -> int:
    findings: list[Finding] = []
    match session.target:
        case AtServers():
            findings += await _look(session, journal, resources, server_options={"durable": False})
        case InFolder(folder):
            state = await asyncio.to_thread(_inspected, folder)
            findings += about_folder(folder, state)
            if state is not None and state.running:
                findings += about_health(await asyncio.to_thread(ailment_of, folder))
            if state is not None:
                findings += await _look(session, journal, resources, server_options={})
            else:
                findings += await transaction_findings(session, None, journal, resources)
        case unknown:
            assert_never(unknown)
    diagnosis = Diagnosis(findings)
    session.output.show(diagnosis)
    return 0 if diagnosis.healthy else 1


def _inspected(folder: Path) -> ServerState | None:
    return inspect(folder) if folder.exists() else None


async def _look(
    session: Session, journal: str, resources: Sequence[str], *, server_options: dict[str, object]
) -> list[Finding]:
    try:
        bus = session.bus(**server_options)  # type: ignore[arg-type]  # options of tutti.NatsOptions by name
        await bus.open()
    except TuttiError as error:
        found = Finding("problem", "server", error.what, error.hint)
        return [found, *await transaction_findings(session, None, journal, resources)]
    try:
        return [*await _facts(bus), *await transaction_findings(session, bus, journal, resources)]
    except TuttiError as error:
        return [Finding("problem", "server", f"it stopped answering: {error.what}", error.hint)]
    finally:
        await bus.close()


async def _facts(bus: Bus) -> list[Finding]:
    context = bus.context
    transport = context.transport
    there = await transport.stream_names()
    names = [name for name in there if name.startswith(f"{context.layout.namespace}-")]
    infos = [info for name in names if (info := await transport.stream_info(name)) is not None]
    records = await all_records(bus)
    kept = decoded(records, Stream)
    settings = {context.layout.event_stream(key.removeprefix("stream.")): stream for key, stream in kept.items()}
    dead = next((info.messages for info in infos if info.name == context.layout.dead_stream), 0)
    queues = await waiting(bus)
    subscribers = await survey(bus)
    now = time.time()
    return [
        *about_server(transport.status()),
        *about_streams(infos, settings),
        *about_missing_streams(missing_streams(records, there, context.layout)),
        *about_records(spoilt(records)),
        *about_subscribers(subscribers, now),
        *about_letters(dead),
        *about_queues(queues, now),
    ]


# What the facts mean


def about_folder(folder: Path, state: ServerState | None) -> Iterator[Finding]:
    if state is None:
        yield Finding(
            "warning", "folder", f"{folder} never had a server", "`tutti up` starts one; or name another with --data"
        )
        return
    for note in state.notes:
        yield Finding("warning", "folder", note)
    users = counted(len(state.users), "user") + (
        ", kept by `tutti up`" if any(user.keep for user in state.users) else ""
    )
    match state.state:
        case "running" if not state.users:
            yield Finding("ok", "folder", f"{folder}: the server has no users any more and is ending")
        case "running":
            yield Finding("ok", "folder", f"{folder}: nats-server {state.version} is running, pid {state.pid}, {users}")
        case "sick":
            yield Finding(
                "problem",
                "folder",
                f"{folder}: nothing is stored: {state.reason}",
                "make room on the disk: then the server is started anew by itself; what is stored is kept",
            )
        case "stopped":
            yield Finding("ok", "folder", f"{folder}: the server was stopped ({state.reason or 'nobody used it'})")
        case "starting":
            yield Finding("ok", "folder", f"{folder}: the server is starting")
        case "restarting":
            yield Finding(
                "warning", "folder", f"{folder}: the server is restarting: {state.reason}", f"see {state.log}"
            )
        case "orphaned":
            yield Finding(
                "warning",
                "folder",
                f"{folder}: {state.reason}; pid {state.pid} is an orphan",
                "the next user replaces it",
            )
        case "failed":
            yield Finding("problem", "folder", f"{folder}: the server failed: {state.reason}", f"see {state.log}")
        case unknown:
            assert_never(unknown)
    if state.restarts:
        yield Finding("warning", "folder", f"the server was restarted {times(state.restarts)}", f"see {state.log}")


def about_server(status: Status) -> Iterator[Finding]:
    if not status.connected:
        yield Finding("problem", "server", f"not connected: {status.detail}", "is it running, and is the URL right?")
        return
    if not status.version:
        yield Finding("ok", "server", "a bus in memory: nothing outlives this process")
        return
    if at_or_above_floor(status.version):
        yield Finding("ok", "server", f"nats-server {status.version} at {status.server}")
    else:
        yield Finding(
            "problem", "server", f"nats-server {status.version} at {status.server} is too old", f"upgrade to {FLOOR}"
        )
    match status.synced:
        case True:
            yield Finding("ok", "durability", "every acknowledged event is on the disk")
        case False:
            yield Finding(
                "problem",
                "durability",
                "the server acknowledges what is not on its disk yet",
                "set `jetstream { sync_interval: always }` on every server",
            )
        case None:
            yield Finding(
                "warning",
                "durability",
                "whether the server syncs is not known",
                "give --monitor-url http://host:8222, or say --synced if you know it",
            )


def about_streams(infos: Sequence[StreamInfo], settings: Mapping[str, Stream]) -> Iterator[Finding]:
    for info in sorted(infos, key=lambda info: info.name):
        wanted = settings.get(info.name, Stream())
        copies = f"{info.replicas} copies, " if info.replicas > 1 else ""
        held = f"{counted(info.messages, 'message')}, {size(info.bytes)}"
        said = f"{info.name}: {held}, {copies}leader {info.leader or 'unknown'}"
        if limits := _limits(wanted):
            said += f"; {limits}"
        full = info.bytes / wanted.full_at_bytes if wanted.full_at_bytes else 0.0
        if full >= 1:
            yield Finding("problem", "stream", said, "it is full and refuses events: raise full_at_bytes, or purge")
        elif full >= FULL_RATIO:
            yield Finding("warning", "stream", said, f"{full:.0%} full: raise full_at_bytes, or keep less")
        elif info.replicas < wanted.replicas:
            yield Finding("warning", "stream", said, f"{wanted.replicas} copies are wanted: are all servers there?")
        else:
            yield Finding("ok", "stream", said)


def _limits(settings: Stream) -> str:
    words = [
        f"kept {settings.max_age:g} s" if settings.max_age is not None else "",
        f"up to {size(settings.max_bytes)}" if settings.max_bytes is not None else "",
        f"full at {size(settings.full_at_bytes)}" if settings.full_at_bytes is not None else "",
    ]
    return ", ".join(word for word in words if word)


def about_missing_streams(missing: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    for name, why in missing.items():
        yield Finding(
            "problem",
            "stream",
            f"{name} does not exist, but {', '.join(why)}",
            "restore it from a backup, or advertise its types again, which makes it anew: its events are gone then",
        )


def about_records(records: Sequence[SpoiltRecord]) -> Iterator[Finding]:
    for record in records:
        name = record.key.split(".")[1] if "." in record.key else ""
        match record.kind:
            case "type":
                todo = f"`tutti doctor --forget {record.key}`; then its publisher advertises it again"
            case "stream":
                todo = f"`tutti doctor --forget {record.key}`; then declare its settings again: connect(streams=…)"
            case _:
                todo = (
                    f"start {name}: it writes the record anew, and may read events again; or, if it is not needed,"
                    f" `tutti subscribers drop {name}`"
                )
        yield Finding("problem", "record", f"{record.key} cannot be read: {record.why}", todo)


def about_health(ailment: str) -> Iterator[Finding]:
    if ailment:
        yield Finding(
            "problem",
            "durability",
            f"nothing is stored: {ailment}",
            "make room on the disk: then the server is started anew by itself",
        )


def about_subscribers(subscribers: Sequence[SubscriberState], now: float) -> Iterator[Finding]:
    for subscriber in subscribers:
        for subscription in subscriber.subscriptions:
            yield _about_subscription(subscriber, subscription, now)
        if subscriber.silent_owners and subscriber.instances:
            yield Finding(
                "warning",
                "lease",
                f"{subscriber.name}: partitions of {', '.join(subscriber.silent_owners)}, which says nothing any more",
                "the others take them within seconds; look again",
            )
        elif subscriber.silent_owners:
            yield Finding(
                "warning",
                "lease",
                f"{subscriber.name}: {', '.join(subscriber.silent_owners)} ended without handing back its partitions",
                "nothing: the next instance takes them over",
            )


def _about_subscription(subscriber: SubscriberState, subscription: SubscriptionState, now: float) -> Finding:
    name = f"{subscriber.name}.{subscription.name}"
    said = f"{name} ({subscription.type}): at {subscription.position}, {subscription.lag} behind"
    if subscription.retries:
        sequence, attempts = min(subscription.retries.items())
        said += f"; event {sequence} failed {times(attempts)} and holds back those behind it"
    if not subscriber.instances:
        held = f"start it with `tutti run`, or `tutti subscribers drop {subscriber.name}` if it will not come back"
        return Finding("warning", "subscriber", f"{said}; nobody serves it, and retention waits for it", held)
    if subscription.lag and subscription.moved_at and now - subscription.moved_at > STUCK_SECONDS:
        return Finding(
            "problem",
            "subscriber",
            f"{said}; stuck for {now - subscription.moved_at:.0f} s",
            "a handler hangs or keeps failing: see the logs of " + ", ".join(subscriber.instances),
        )
    level: Level = "warning" if subscription.retries else "ok"
    return Finding(level, "subscriber", f"{said}, served by {len(subscriber.instances)}")


def about_letters(count: int) -> Iterator[Finding]:
    if count:
        said = f"{count} {'waits' if count == 1 else 'wait'} for a decision"
        yield Finding("warning", "dead letters", said, "`tutti dead ls`, then replay or drop")
    else:
        yield Finding("ok", "dead letters", "none")


def about_queues(queues: Sequence[QueueState], now: float) -> Iterator[Finding]:
    for queue in queues:
        waits = now - queue.oldest_at
        said = f"{queue.name}: {queue.waiting} {'waits' if queue.waiting == '1' else 'wait'}"
        if waits > QUEUE_WAIT_SECONDS:
            yield Finding("warning", "queue", f"{said}, the oldest for {age(waits)}", _taker(queue.name))
        else:
            yield Finding("ok", "queue", said)


def _taker(queue: str) -> str:
    if queue.startswith(REPLAY_PREFIX):
        return f"replayed letters: start the subscriber {queue.removeprefix(REPLAY_PREFIX)} with `tutti run`"
    return f'nobody takes from it: serve a handler with queue="{queue}", or receive from it; see `tutti queues ls`'


def size(count: int) -> str:
    amount = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"
