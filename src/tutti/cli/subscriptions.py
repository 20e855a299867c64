"""`tutti subscribers`: durable subscriptions, how far they are, and who serves them."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from rich.console import RenderableType

from tutti.bus.port import Entry, StreamInfo
from tutti.cli.options import Session
from tutti.cli.output import cell, counted, one_line_table
from tutti.cli.records import all_records, sound, spoilt
from tutti.errors import Conflict, TuttiError
from tutti.limits import MEMBER_BEAT_SECONDS
from tutti.model.subjects import checked_name
from tutti.runtime.bus import Bus
from tutti.runtime.leases import Lease
from tutti.runtime.positions import Positions, Registration

LISTEN_SECONDS: Final = 2.5 * MEMBER_BEAT_SECONDS  # whoever lives says so twice in that time
STATE_KINDS: Final = ("subscription", "position", "lease")  # what a subscriber leaves in the bus's state


class SubscriptionState(msgspec.Struct, frozen=True, kw_only=True):
    """One handler. `lag` counts what lies behind `position` in its stream, wanted by it or not."""

    name: str
    type: str
    where: str
    stream: str
    position: int  # up to here it has read in every partition
    lag: int
    since: str
    moved_at: float = 0.0  # when a position of the subscriber was last written, by the server's clock
    retries: dict[int, int] = {}  # sequence: failed attempts of events that hold back others now


class SubscriberState(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    instances: list[str]  # those that were heard just now
    partitions: dict[str, list[int]]  # by the instance that holds the lease, heard or not
    subscriptions: list[SubscriptionState]

    @property
    def silent_owners(self) -> list[str]:
        return [owner for owner in self.partitions if owner not in self.instances]


class SubscriberList(msgspec.Struct, frozen=True):
    subscribers: list[SubscriberState]
    verbose: bool = False  # the instances by name

    def as_json(self) -> dict[str, object]:
        return {"subscribers": self.subscribers}

    def __rich__(self) -> RenderableType:
        if not self.subscribers:
            return "no durable subscriptions"
        names = ("subscriber", "handler", "type", "where", "position", "lag", "served by")
        table = one_line_table(*names, cut=("handler", "type", "where", "served by"))
        for subscriber in self.subscribers:
            served = self._served_by(subscriber)
            for subscription in subscriber.subscriptions:
                cells = (
                    subscriber.name,
                    subscription.name,
                    subscription.type,
                    subscription.where,
                    str(subscription.position),
                    str(subscription.lag),
                    served or "nobody",
                )
                table.add_row(*map(cell, cells))
        return table

    def _served_by(self, subscriber: SubscriberState) -> str:
        if not self.verbose:
            return counted(len(subscriber.instances), "instance") if subscriber.instances else ""
        return "; ".join(_owned(name, subscriber.partitions.get(name, [])) for name in subscriber.instances)


def _owned(instance: str, partitions: list[int]) -> str:
    return f"{instance} ({counted(len(partitions), 'partition')})"


class Dropped(msgspec.Struct, frozen=True):
    subscriber: str
    records: int

    def __rich__(self) -> RenderableType:
        return f"{self.subscriber} is forgotten: retention no longer waits for it"


async def survey(bus: Bus) -> list[SubscriberState]:
    """Every durable subscriber. Listens for a second to hear who lives."""
    transport = bus.context.transport
    heard = await _heard(bus)
    found = [sound(await transport.state_list(kind)) for kind in STATE_KINDS]
    registrations = [msgspec.json.decode(entry.value, type=Registration) for entry in found[0]]
    streams = {name: await transport.stream_info(name) for name in {r.stream for r in registrations}}
    return states(registrations, found[1], found[2], streams, heard)


def states(
    registrations: list[Registration],
    positions: Sequence[Entry],
    leases: Sequence[Entry],
    streams: Mapping[str, StreamInfo | None],
    heard: Mapping[str, list[str]],
) -> list[SubscriberState]:
    """What the records say, put together by subscriber."""
    by_name: dict[str, list[SubscriptionState]] = defaultdict(list)
    for registration in registrations:
        own = [entry for entry in positions if _subscriber(entry) == registration.subscriber]
        by_name[registration.subscriber].append(_subscription(registration, own, streams.get(registration.stream)))
    owners: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for entry in leases:
        owner = msgspec.json.decode(entry.value, type=Lease).owner
        if owner:
            owners[_subscriber(entry)][owner].append(int(entry.key.rsplit(".", 1)[1]))
    names = sorted(by_name.keys() | owners.keys())
    return [
        SubscriberState(
            name=name,
            instances=sorted(heard.get(name, [])),
            partitions={owner: sorted(partitions) for owner, partitions in owners[name].items()},
            subscriptions=by_name[name],
        )
        for name in names
    ]


def _subscription(registration: Registration, entries: list[Entry], stream: StreamInfo | None) -> SubscriptionState:
    records = [msgspec.json.decode(entry.value, type=Positions) for entry in entries]
    name = registration.subscription
    at = [record.at[name] for record in records if name in record.at]
    position = min(at) if len(at) >= registration.partitions else min([registration.start, *at])
    position //= registration.scale
    return SubscriptionState(
        name=name,
        type=registration.type,
        where=registration.where,
        stream=registration.stream,
        position=position,
        lag=max(0, stream.last - max(position, stream.first - 1)) if stream is not None else 0,
        since=registration.since,
        moved_at=max((entry.stored_at for entry in entries), default=0.0),
        retries={sequence: n for record in records for sequence, n in record.attempts.get(name, {}).items()},
    )


def _subscriber(entry: Entry) -> str:
    """Keys are `<kind>.<subscriber>.<…>`."""
    return entry.key.split(".")[1]


async def _heard(bus: Bus) -> dict[str, list[str]]:
    """Which instances say that they live, by subscriber."""
    members: dict[str, set[str]] = defaultdict(set)
    listener = await bus.context.transport.listen(f"{bus.context.layout.namespace}.control.member.*")
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LISTEN_SECONDS):
                async for record in listener:
                    said = record.data.decode("utf-8", "replace")
                    known = members[record.subject.rsplit(".", 1)[1]]
                    (known.add if said.startswith("+") else known.discard)(said[1:])
    finally:
        await listener.close()
    return {name: list(known) for name, known in members.items()}


async def show_subscriptions(session: Session, *, verbose: bool = False) -> None:
    async with session.bus(create=False) as bus:
        if spoilt(await all_records(bus)):
            session.output.note("some records cannot be read and are left out: see `tutti doctor`")
        session.output.show(SubscriberList(await survey(bus), verbose))


async def drop(session: Session, name: str, *, force: bool) -> None:
    checked_name(name, "subscriber")
    async with session.bus(create=False) as bus:
        entries = [e for kind in STATE_KINDS for e in await bus.context.transport.state_list(f"{kind}.{name}")]
        if not entries:
            known = sorted({_subscriber(entry) for entry in await bus.context.transport.state_list("subscription")})
            raise TuttiError(f"there is no subscriber {name!r}", hint=f"known are {', '.join(known) or 'none'}")
        if not force and (living := (await _heard(bus)).get(name)):
            raise TuttiError(
                f"{name} is being served by {', '.join(living)}", hint="stop that first, or say --force if it hangs"
            )
        for entry in entries:
            await _forget(bus, entry)
    session.output.show(Dropped(name, len(entries)))


async def _forget(bus: Bus, entry: Entry) -> None:
    current: Entry | None = entry
    while current is not None:
        try:
            await bus.context.transport.state_put(current.key, b"", expected=current.revision)
        except Conflict:  # somebody is still writing it: that is what --force means
            current = await bus.context.transport.state_get(entry.key)
        else:
            return
