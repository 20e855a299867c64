"""How the events of a subscription are handled: how often, how fast, how many at once. Checked when it is declared."""

from __future__ import annotations

import math
from typing import TypeGuard

import msgspec

from tutti.errors import DeclarationError
from tutti.model.event import PRIORITY_MOST


def _check_count(name: str, value: object) -> None:
    if type(value) is not int or value < 1:
        raise DeclarationError(f"{name} is {value!r}", hint="give a whole number of 1 or more")


def _check_seconds(name: str, value: object, *, above_zero: bool = False) -> None:
    if not _is_number(value) or value < 0 or (above_zero and value == 0):
        least = "above 0" if above_zero else "0 or more"
        raise DeclarationError(f"{name} is {value!r}", hint=f"give seconds, {least}")


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


class Backoff(msgspec.Struct, frozen=True):
    """The pause after the nth failure is `first * factor ** (n - 1)` seconds, never above `most`, less some jitter."""

    first: float = 0.1
    factor: float = 2.0
    most: float = 30.0

    def __post_init__(self) -> None:
        _check_seconds("backoff.first", self.first)
        _check_seconds("backoff.most", self.most)
        if not _is_number(self.factor) or self.factor < 1:
            raise DeclarationError(f"backoff.factor is {self.factor!r}", hint="give 1 or more: pauses must not shrink")
        if self.most < self.first:
            raise DeclarationError(
                f"backoff.most ({self.most} s) is below backoff.first ({self.first} s)",
                hint="raise most, or lower first",
            )


class Batch(msgspec.Struct, frozen=True):
    """A handler that takes a list gets at most `most` events, after waiting at most `wait` seconds for them."""

    most: int
    wait: float = 1.0

    def __post_init__(self) -> None:
        _check_count("batch.most", self.most)
        _check_seconds("batch.wait", self.wait)


class Policy(msgspec.Struct, frozen=True):
    """One subscription's policy.

    `attempts`         how often an event is tried before it is dead-lettered
    `lifetime`         seconds after its publication; an older event is not handled (its own lifetime may be shorter)
    `priority`         0 to 9: where subscriptions of one subscriber compete, the higher goes first
    `concurrency`      how many handlers run at once; the order per publisher or key is kept all the same
    `in_flight`        how many events may wait in this instance; beyond that nothing is read (back-pressure)
    `handler_timeout`  seconds after which a handler counts as hanging, and its attempt as failed; None: never
    """

    attempts: int = 5
    backoff: Backoff = Backoff()
    lifetime: float | None = None
    priority: int = 0
    concurrency: int = 1
    in_flight: int = 1000
    handler_timeout: float | None = 30.0
    batch: Batch | None = None

    def __post_init__(self) -> None:
        _check_count("attempts", self.attempts)
        _check_count("concurrency", self.concurrency)
        _check_count("in_flight", self.in_flight)
        if type(self.priority) is not int or not 0 <= self.priority <= PRIORITY_MOST:
            raise DeclarationError(
                f"priority is {self.priority!r}", hint=f"give a whole number from 0 to {PRIORITY_MOST}"
            )
        if self.lifetime is not None:
            _check_seconds("lifetime", self.lifetime, above_zero=True)
        if self.handler_timeout is not None:
            _check_seconds("handler_timeout", self.handler_timeout, above_zero=True)
        self._check_room()

    def _check_room(self) -> None:
        """What waits in the instance must be able to feed every handler."""
        wanted = self.concurrency * (self.batch.most if self.batch is not None else 1)
        if self.in_flight < wanted:
            raise DeclarationError(
                f"in_flight is {self.in_flight}, but concurrency and batch.most ask for {wanted} events at once",
                hint=f"set in_flight to {wanted} or more, or lower the others",
            )
