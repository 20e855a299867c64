"""`tutti group`: who is enrolled in standing groups, and who is taken out."""

from __future__ import annotations

import asyncio
import contextlib
import time

import msgspec
from rich.console import RenderableType

from tutti.cli.desk import place_of
from tutti.cli.options import Session
from tutti.cli.output import cell, one_line_table
from tutti.cli.queues import age
from tutti.errors import Conflict, DeclarationError, TuttiError
from tutti.limits import GROUP_LISTEN_SECONDS
from tutti.model.enrolment import Enrolment, decode_enrolment, enrolment_key, group_prefix
from tutti.model.subjects import checked_name
from tutti.runtime.bus import Bus
from tutti.runtime.transactions.books import opened


class GroupMember(msgspec.Struct, frozen=True):
    group: str
    subscriber: str
    type: str
    handles: tuple[str, ...]
    vital: bool
    instance: str
    lives: bool
    since: float  # seconds since the epoch


class GroupList(msgspec.Struct, frozen=True):
    members: list[GroupMember]
    now: float

    def __rich__(self) -> RenderableType:
        if not self.members:
            return "nobody is enrolled in a standing group"
        names = ("group", "member", "transactions", "handles", "vital", "enrolled", "acts for it")
        table = one_line_table(*names, cut=("transactions", "handles", "acts for it"))
        for one in self.members:
            cells = (
                one.group,
                one.subscriber,
                one.type,
                ", ".join(one.handles),
                "yes" if one.vital else "no",
                f"{age(self.now - one.since)} ago",
                one.instance if one.lives else "nobody",
            )
            table.add_row(*map(cell, cells))
        return table


class Removed(msgspec.Struct, frozen=True):
    """`forgotten`: its keys, which were in the log of this host, are gone too."""

    group: str
    subscriber: str
    forgotten: bool

    def __rich__(self) -> RenderableType:
        return f"{self.subscriber} is not in the group {self.group} any more; if it is started again, it enrols anew"


async def show_groups(session: Session, group: str) -> None:
    if group:
        checked_name(group, "group")
    async with session.bus(create=False) as bus:
        entries = await bus.context.transport.state_list(group_prefix(group) if group else "group")
        enrolments = [decode_enrolment(entry.key, entry.value) for entry in entries if entry.value]
        heard = await heard_instances(bus) if enrolments else frozenset()
    if group and not enrolments:
        raise TuttiError(f"nobody is enrolled in the group {group!r}", hint="`tutti group ls` lists all groups")
    members = [_member(one, heard) for one in enrolments]
    session.output.show(GroupList(sorted(members, key=lambda one: (one.group, one.subscriber)), time.time()))


def _member(one: Enrolment, heard: frozenset[str]) -> GroupMember:
    lives = one.instance in heard
    return GroupMember(one.group, one.subscriber, one.type, one.handles, one.vital, one.instance, lives, one.since)


async def heard_instances(bus: Bus) -> frozenset[str]:
    """Whose heartbeats are there."""
    found: set[str] = set()
    listener = await bus.context.transport.listen(bus.context.layout.heartbeat("*"))
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GROUP_LISTEN_SECONDS):
                async for record in listener:
                    found.add(record.subject.rpartition(".")[2])
    finally:
        await listener.close()
    return frozenset(found)


async def remove_member(session: Session, group: str, subscriber: str, journal: str, *, force: bool) -> None:
    checked_name(group, "group")
    checked_name(subscriber, "subscriber")
    async with session.bus(create=False) as bus:
        transport, key = bus.context.transport, enrolment_key(group, subscriber)
        entry = await transport.state_get(key)
        if entry is None or not entry.value:
            others = [e.key.rpartition(".")[2] for e in await transport.state_list(group_prefix(group)) if e.value]
            raise TuttiError(
                f"{subscriber} is not in the group {group!r}", hint=f"in it are {', '.join(sorted(others)) or 'none'}"
            )
        instance = _instance(entry.key, entry.value)
        if not force and instance and instance in await heard_instances(bus):
            raise TuttiError(
                f"{instance} acts for {subscriber} in the group {group!r}",
                hint="stop it first; or say --force: then it is no member until it is started again",
            )
        try:
            await transport.state_put(key, b"", expected=entry.revision)
        except Conflict as error:
            raise TuttiError(f"{subscriber} has just enrolled again", hint="stop it first, then try again") from error
    session.output.show(Removed(group, subscriber, await _forget_keys(session, journal, group, subscriber)))


def _instance(key: str, value: bytes) -> str:
    try:
        return decode_enrolment(key, value).instance
    except TuttiError:
        return ""  # spoilt: all the more reason to remove it


async def _forget_keys(session: Session, journal: str, group: str, subscriber: str) -> bool:
    """Its secrets, if they are on this host; elsewhere they are of no use to anybody."""
    with contextlib.suppress(DeclarationError):
        async with opened(place_of(session, journal)) as books:
            return books.log is not None and await books.log.resign(group, subscriber)
    return False
