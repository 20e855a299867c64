"""How do a publisher and a manager in another process say each thing once, and in order?

One machine at each end. The wire may lose, repeat, delay and reorder packets.

1. Items are numbered from 1; an item is delivered when all before it have been, and once.
2. What the other side has not confirmed is repeated, with growing pauses, the oldest first.
3. Each packet confirms what was heard. Something is said at least once in a while, if only that; a packet that is new,
   or known already and repeated, is confirmed at once.
4. When nothing was heard for too long the other side is lost, which is said once. It may be heard again later: then the
   conversation goes on where it was.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, assert_never

import msgspec

from tutti.control.table import Row, Table, follow
from tutti.errors import invariant
from tutti.limits import (
    CONVERSATION_BEAT_SECONDS,
    CONVERSATION_LOST_SECONDS,
    CONVERSATION_PACKET_MAX_COUNT,
    CONVERSATION_REPEAT_MAX_SECONDS,
    CONVERSATION_REPEAT_SECONDS,
)
from tutti.model.messages import Ticked, WakeAt

# Inputs


class Say(msgspec.Struct, frozen=True):
    item: bytes
    now: float


class Heard(msgspec.Struct, frozen=True):
    """A packet of the other side, as it came."""

    packet: Packet
    now: float


class Hung(msgspec.Struct, frozen=True):
    """The conversation is over for this side: nothing more is said or repeated."""


class Packet(msgspec.Struct, frozen=True, omit_defaults=True):
    """`items` are numbered from `first`; all up to `confirmed` have come from the other side."""

    tx: str
    confirmed: int
    first: int = 0
    items: tuple[bytes, ...] = ()


Input = Say | Heard | Ticked | Hung


# Effects


class Emit(msgspec.Struct, frozen=True):
    packet: Packet


class Deliver(msgspec.Struct, frozen=True):
    item: bytes


class Lost(msgspec.Struct, frozen=True):
    """Nothing was heard for too long."""


Effect = Emit | Deliver | Lost | WakeAt


# States


class Stage(StrEnum):
    TALKING = "talking"
    ALONE = "alone"
    OVER = "over"


class Cause(StrEnum):
    HEARD = "heard"
    SILENCE = "silence"
    HUNG = "hung"


class Guard(StrEnum):
    LONG = "nothing was heard for too long"


TRANSITIONS: Final[Table[Stage, Cause, Guard]] = {
    Stage.TALKING: {
        Cause.HEARD: Row(Stage.TALKING),
        Cause.SILENCE: Row(Stage.ALONE, (Guard.LONG,)),
        Cause.HUNG: Row(Stage.OVER),
    },
    Stage.ALONE: {Cause.HEARD: Row(Stage.TALKING), Cause.HUNG: Row(Stage.OVER)},
    Stage.OVER: {},
}


class Conversation:
    """One end. It begins as if something had just been heard."""

    __slots__ = ("_beat_at", "_confirmed", "_heard_at", "_pause", "_repeat_at", "_said", "_tx", "_waiting", "stage")

    def __init__(self, tx: str, now: float) -> None:
        self._tx = tx
        self._waiting: list[bytes] = []  # said, and not confirmed by the other side
        self._said = 0  # the number of the last one
        self._confirmed = 0  # of the other side's: delivered here
        self._heard_at = now
        self._beat_at = now + CONVERSATION_BEAT_SECONDS
        self._repeat_at: float | None = None
        self._pause = CONVERSATION_REPEAT_SECONDS
        self.stage = Stage.TALKING

    def step(self, given: Input) -> list[Effect]:
        if self.stage is Stage.OVER:
            return []
        match given:
            case Say():
                effects = self._say(given)
            case Heard():
                effects = self._hear(given)
            case Ticked():
                effects = self._tick(given.now)
            case Hung():
                self._moves(Cause.HUNG, self._heard_at)
                self._waiting.clear()
                return [WakeAt(None)]
            case _:
                assert_never(given)
        return [*effects, WakeAt(self._next())]

    def _moves(self, cause: Cause, now: float) -> bool:
        after = follow(TRANSITIONS, self.stage, cause, lambda guard: self._holds(guard, now))
        if after is None:
            return False
        self.stage = after
        return True

    def _holds(self, guard: Guard, now: float) -> bool:
        match guard:
            case Guard.LONG:
                return now - self._heard_at >= CONVERSATION_LOST_SECONDS
            case _:
                assert_never(guard)

    def _say(self, given: Say) -> list[Effect]:
        self._said += 1
        self._waiting.append(given.item)
        if self._repeat_at is None:
            self._pause = CONVERSATION_REPEAT_SECONDS
            self._repeat_at = given.now + self._pause
        return [self._packet(self._said, (given.item,), given.now)]

    def _packet(self, first: int, items: tuple[bytes, ...], now: float) -> Emit:
        self._beat_at = now + CONVERSATION_BEAT_SECONDS
        return Emit(Packet(self._tx, self._confirmed, first if items else 0, items))

    def _hear(self, given: Heard) -> list[Effect]:
        packet = given.packet
        if packet.tx != self._tx or packet.confirmed > self._said:
            return []
        self._moves(Cause.HEARD, given.now)
        self._heard_at = max(self._heard_at, given.now)
        self._learn(packet.confirmed, given.now)
        if not packet.items:
            return []
        effects: list[Effect] = []
        for number, item in enumerate(packet.items, packet.first):
            if number == self._confirmed + 1:
                self._confirmed = number
                effects.append(Deliver(item))
        return [self._packet(0, (), given.now), *effects]

    def _learn(self, confirmed: int, now: float) -> None:
        """So much of ours has come."""
        news = confirmed - (self._said - len(self._waiting))
        if news > 0:
            del self._waiting[:news]
            self._pause = CONVERSATION_REPEAT_SECONDS
            self._repeat_at = now + self._pause if self._waiting else None

    def _tick(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        if self._repeat_at is not None and now >= self._repeat_at:
            first = self._said - len(self._waiting) + 1
            effects.append(self._packet(first, tuple(self._waiting[:CONVERSATION_PACKET_MAX_COUNT]), now))
            self._pause = min(2 * self._pause, CONVERSATION_REPEAT_MAX_SECONDS)
            self._repeat_at = now + self._pause
        elif now >= self._beat_at:
            effects.append(self._packet(0, (), now))
        if self._moves(Cause.SILENCE, now):
            effects.append(Lost())
        return effects

    def _next(self) -> float:
        times = [self._beat_at]
        if self._repeat_at is not None:
            times.append(self._repeat_at)
        if self.stage is Stage.TALKING:
            times.append(self._heard_at + CONVERSATION_LOST_SECONDS)
        return min(times)

    def check(self) -> None:
        """Raises `InvariantViolated` if the state contradicts itself. For tests."""
        invariant(len(self._waiting) <= self._said, "more is unconfirmed than was said")
        invariant(
            (self._repeat_at is not None) == bool(self._waiting) or self.stage is Stage.OVER,
            "something is unconfirmed and not repeated, or repeated though it is confirmed",
        )
