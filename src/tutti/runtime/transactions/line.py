"""One end of the conversation between a publisher and its manager, on the wire."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from tutti.control import conversation as c
from tutti.control.transaction import sides
from tutti.errors import InvalidMessage
from tutti.model.messages import MANAGER, Envelope, Ticked, WakeAt, decode_envelope, encode
from tutti.runtime.clock import Clock, Timer
from tutti.runtime.transactions.keys import SigningKey, is_signed


class Line:
    """`emit` puts a packet on the wire, `deliver` gets each item of the other side, once and in order; `lost` hears
    that the other side is silent for too long."""

    def __init__(
        self,
        tx: str,
        clock: Clock,
        *,
        emit: Callable[[c.Packet], None],
        deliver: Callable[[bytes], None],
        lost: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._emit, self._deliver, self._lost = emit, deliver, lost
        self._machine = c.Conversation(tx, clock.monotonic())
        self._timer: Timer | None = None
        self._rings_at = 0.0
        self._wake_at: float | None = None
        self._step(Ticked(clock.monotonic()))

    def say(self, value: sides.FromPublisher | sides.FromManager) -> None:
        self._step(c.Say(sides.encode(value), self._clock.monotonic()))

    def hear(self, packet: c.Packet) -> None:
        self._step(c.Heard(packet, self._clock.monotonic()))

    def hang_up(self) -> None:
        self._step(c.Hung())

    def _step(self, given: c.Input) -> None:
        for effect in self._machine.step(given):
            match effect:
                case c.Emit():
                    self._emit(effect.packet)
                case c.Deliver():
                    self._deliver(effect.item)
                case c.Lost():
                    self._lost()
                case WakeAt():
                    self._sleep_until(effect.time)
                case _:
                    assert_never(effect)

    def _sleep_until(self, time: float | None) -> None:
        """A timer that rings too early costs a tick; so it is not set anew each time that something was said."""
        self._wake_at = time
        if time is None or (self._timer is not None and time < self._rings_at):
            if self._timer is not None:
                self._timer.cancel()
            self._timer = None
        if time is not None and self._timer is None:
            self._rings_at = time
            self._timer = self._clock.call_at(time, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self._wake_at is not None:
            self._step(Ticked(self._clock.monotonic()))


def sealed(body: bytes, key: SigningKey, *, manager: bool = False) -> bytes:
    """The body in its envelope, signed."""
    return encode(Envelope(body, MANAGER if manager else key.public, key.sign(body)))


def unsealed(envelope: bytes) -> tuple[bytes, str]:
    """The body, and who is said to have signed it. `InvalidMessage` if that is not true, or nobody did; who MANAGER is
    the caller must know: see `unsealed_by`."""
    given = decode_envelope(envelope)
    if not is_signed(given.body, given.signature, given.signer):
        raise InvalidMessage("a packet between a publisher and its manager is not signed by its sender")
    return given.body, given.signer


def unsealed_by(envelope: bytes, key: str) -> bytes:
    """The body, if whoever holds this key signed it."""
    given = decode_envelope(envelope)
    if not is_signed(given.body, given.signature, key):
        raise InvalidMessage("a packet between a publisher and its manager is not signed by its sender")
    return given.body
