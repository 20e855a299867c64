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
        clock = self._coordinator.clock
        roster = self._known.get(group)
        if roster is None or clock.monotonic() - roster.read_at > GROUP_KEPT_SECONDS:
            roster = self._known[group] = Roster(await self._read(group), clock.monotonic())
        members = tuple(member for member in roster.members if member.type == type_name)
        if not members:
            raise GroupUnfit(
                f"nobody is enrolled in the group {group!r} for {type_name}",
                hint=f"start a subscriber that declares `subscriber.enrol({group!r}, …)`",
            )
        await self._require_life(group, members)
        return members

    async def _read(self, group: str) -> tuple[Enrolment, ...]:
        entries = await self._coordinator.context.transport.state_list(group_prefix(group))
        return tuple(decode_enrolment(entry.key, entry.value) for entry in entries if entry.value)

    async def _require_life(self, group: str, members: tuple[Enrolment, ...]) -> None:
        """A process that has just begun to listen gives them the time of a few heartbeats to be heard."""
        clock = self._coordinator.clock
        until = self._coordinator.listening_since + MEMBER_LOST_SECONDS
        while dead := [m.subscriber for m in members if m.vital and not self._lives(m)]:
            if clock.monotonic() >= until:
                self._known.pop(group, None)
                raise GroupUnfit(
                    f"of the group {group!r}, {', '.join(dead)} cannot be heard",
                    hint=f"start it again, or take it out of the group: `tutti group rm {group} {dead[0]}`",
                )
            await asyncio.sleep(0.05)

    def _lives(self, member: Enrolment) -> bool:
        heard = self._coordinator.heard(member.instance)
        return bool(heard) and self._coordinator.clock.monotonic() - heard <= MEMBER_LOST_SECONDS
