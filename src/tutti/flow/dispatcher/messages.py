"""What the dispatcher is told, and what it asks for."""

from __future__ import annotations

import msgspec

# Inputs


class Arrived(msgspec.Struct, frozen=True, gc=False):
    """An event for this subscription. `attempts`: how often it failed before, here or at an earlier owner."""

    sequence: int
    partition: int
    lane: str
    priority: int
    expires_at: float | None
    attempts: int
    now: float


class Skipped(msgspec.Struct, frozen=True, gc=False):
    """Nothing to do for this sequence, or for any up to it that did not arrive: no match, or a duplicate."""

    sequence: int
    partition: int


class Returned(msgspec.Struct, frozen=True, gc=False):
    """The handler returned. `sequences` are those of the `Run`, all of them."""

    sequences: tuple[int, ...]
    now: float


class Failed(msgspec.Struct, frozen=True, gc=False):
    """The handler failed, or was given up. `jitter` in [0, 1) shortens the pause before the next attempt by up to half.
    `final`: no further attempt can help."""

    sequences: tuple[int, ...]
    reason: str
    now: float
    jitter: float
    final: bool = False


class Buried(msgspec.Struct, frozen=True, gc=False):
    """The dead letter of this event is durable."""

    sequence: int


class Ticked(msgspec.Struct, frozen=True, gc=False):
    """Time has passed."""

    now: float


class Revoked(msgspec.Struct, frozen=True, gc=False):
    """The partition is no longer ours. No event of it may arrive until it is ours again."""

    partition: int


class Draining(msgspec.Struct, frozen=True, gc=False):
    """The partition will go to another instance: end what runs, start nothing more of it."""

    partition: int


class Paused(msgspec.Struct, frozen=True, gc=False):
    """Start nothing new."""


class Resumed(msgspec.Struct, frozen=True, gc=False):
    """Go on after `Paused`."""

    now: float


Input = Arrived | Skipped | Returned | Failed | Buried | Ticked | Revoked | Draining | Paused | Resumed


# Effects


class Run(msgspec.Struct, frozen=True, gc=False):
    """Call the handler with these events, in this order; answer with `Returned` or `Failed` and the same sequences. The
    first attempt is 1."""

    sequences: tuple[int, ...]
    attempt: int


class Bury(msgspec.Struct, frozen=True, gc=False):
    """Write a dead letter; answer with `Buried` when it is durable."""

    sequence: int
    reason: str
    attempts: int


class Expire(msgspec.Struct, frozen=True, gc=False):
    """The event was not handled, because its time was over. No answer."""

    sequence: int


class Advance(msgspec.Struct, frozen=True, gc=False):
    """Everything that arrived on the partition, up to and with `position`, is done."""

    partition: int
    position: int


class WakeAt(msgspec.Struct, frozen=True, gc=False):
    """Say `Ticked` at this time. Replaces the one before it."""

    time: float


Effect = Run | Bury | Expire | Advance | WakeAt
