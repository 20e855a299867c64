"""Who is in a standing group now? Read from the bus's state, kept for a moment, judged by heartbeats."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from tutti.errors import GroupUnfit
from tutti.limits import GROUP_KEPT_SECONDS, MEMBER_LOST_SECONDS
from tutti.model.enrolment import Enrolment, decode_enrolment, group_prefix

if TYPE_CHECKING:
    from tutti.runtime.transactions.coordinator import Coordinator


class Roster(msgspec.Struct, frozen=True):
    """The members of a group, as they were a moment ago."""

    members: tuple[Enrolment, ...]
    read_at: float


class Groups:
    """The standing groups that this process begins transactions with."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._known: dict[str, Roster] = {}

    async def members(self, group: str, type_name: str) -> tuple[Enrolment, ...]:
        """All that enrolled for this type of transaction. `GroupUnfit` if one of those that are vital is not alive:
        that is known before the work begins."""
        members, fresh = await self._enrolled(group, type_name, keep=True)
        while dead := [m.subscriber for m in members if m.vital and not self._lives(m)]:
            if fresh and not self._just_began():
                raise GroupUnfit(
                    f"of the group {group!r}, {', '.join(dead)} cannot be heard",
                    hint=f"start it again, or take it out of the group: `tutti group rm {group} {dead[0]}`",
                )
            if fresh:
                await asyncio.sleep(0.05)
            members, fresh = await self._enrolled(group, type_name, keep=False)  # another instance may act by now
        return members

    def changed(self, group: str) -> None:
        """Somebody who joins it, leaves it, or acts for another says so."""
        self._known.pop(group, None)

    async def _enrolled(self, group: str, type_name: str, *, keep: bool) -> tuple[tuple[Enrolment, ...], bool]:
        """The members, and whether they were read just now."""
        now = self._coordinator.clock.monotonic()
        roster = self._known.get(group)
        fresh = roster is None or not keep or now - roster.read_at > GROUP_KEPT_SECONDS
        if roster is None or fresh:
            roster = self._known[group] = Roster(await self._read(group), now)
        members = tuple(member for member in roster.members if member.type == type_name)
        if not members:
            raise GroupUnfit(
                f"nobody is enrolled in the group {group!r} for {type_name}",
                hint=f"start a subscriber that declares `subscriber.enrol({group!r}, …)`",
            )
        return members, fresh

    async def _read(self, group: str) -> tuple[Enrolment, ...]:
        entries = await self._coordinator.context.transport.state_list(group_prefix(group))
        return tuple(decode_enrolment(entry.key, entry.value) for entry in entries if entry.value)

    def _just_began(self) -> bool:
        """A process that has just begun to listen gives them the time of a few heartbeats to be heard."""
        return self._coordinator.clock.monotonic() < self._coordinator.listening_since + MEMBER_LOST_SECONDS

    def _lives(self, member: Enrolment) -> bool:
        heard = self._coordinator.heard(member.instance)
        return heard is not None and self._coordinator.clock.monotonic() - heard <= MEMBER_LOST_SECONDS
