"""Protocol messages on the wire: signed when they leave, verified when they come.

Several messages may travel in one packet, as an array of envelopes (`ended` of many transactions). A packet that cannot
be read, or is signed wrongly, is counted and passed over: the machines live with loss.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from tutti.bus.port import Listener, Record, Transport
from tutti.errors import InvalidMessage
from tutti.model.decoding import UNDECODABLE
from tutti.model.messages import (
    MANAGER,
    NOBODY,
    Envelope,
    Inquiry,
    Join,
    Message,
    Received,
    Relay,
    decode,
    decode_envelope,
    encode,
)
from tutti.model.subjects import is_inbox
from tutti.runtime.clock import Clock
from tutti.runtime.context import Context
from tutti.runtime.transactions.keys import SigningKey, is_signed

log = logging.getLogger("tutti.transactions")

UNNAMED: Final = "unnamed"  # a peer that does not say who it is

_packets: msgspec.msgpack.Decoder[list[bytes]] = msgspec.msgpack.Decoder(list[bytes])
_encode = msgspec.msgpack.Encoder().encode


def signed(message: Message, key: SigningKey | None, *, manager: bool = False) -> bytes:
    """The encoded envelope. Without a key it is signed by nobody: inquiries, relays."""
    body = encode(message)
    if key is None:
        return encode(Envelope(body))
    return encode(Envelope(body, MANAGER if manager else key.public, key.sign(body)))


def pack(envelopes: Iterable[bytes]) -> bytes:
    return _encode(list(envelopes))


def passed_over(error: Exception, record: Record, context: Context) -> None:
    """What came trips us: a bug of ours, that a stranger may have found. Whoever listens goes on."""
    log.error("what came on %s is passed over", record.subject, exc_info=error)
    context.report(f"what came on {record.subject} is passed over: {type(error).__name__}: {error}")


class Channel:
    """`trusted`: the public key of the journal, which speaks for managers."""

    def __init__(self, transport: Transport, clock: Clock, trusted: Callable[[], str]) -> None:
        self._transport = transport
        self._clock = clock
        self._trusted = trusted
        self.unreadable = 0

    def emit(self, subject: str, *envelopes: bytes, reply: str = "") -> None:
        self._transport.emit(subject, {}, pack(envelopes), reply=reply)

    async def listen(self, subject: str, *, group: str = "") -> Listener:
        return await self._transport.listen(subject, group=group)

    def inbox(self) -> str:
        return self._transport.inbox()

    def open(self, packet: bytes) -> list[Received]:
        """The messages of a packet, each with who signed it. What peers relay is taken out of its wrapping."""
        try:
            envelopes = _packets.decode(packet)
        except UNDECODABLE as error:
            self._pass_over(error)
            return []
        found: list[Received] = []
        for envelope in envelopes:
            found += self._opened(envelope)
        return found

    def opened(self, encoded: bytes) -> Received | None:
        """One envelope that came by another way, in the headers of an event."""
        found = self._opened(encoded)
        return found[0] if len(found) == 1 else None

    def _opened(self, encoded: bytes) -> list[Received]:
        try:
            envelope = decode_envelope(encoded)
            message = decode(envelope.body)
        except InvalidMessage as error:
            self._pass_over(error)
            return []
        if isinstance(message, Relay):
            # One level: what the manager signed is no relay, and only that is passed on.
            inner = [given for relayed in message.envelopes for given in self._relayed(relayed, message.member)]
            return [given for given in inner if given.signer == MANAGER and given.message.tx == message.tx]
        if isinstance(message, Inquiry) and not is_inbox(message.inbox):
            self._pass_over(InvalidMessage(f"{message.tx}: {message.inbox!r} is no inbox to answer to"))
            return []
        return [Received(message, self._signer(envelope, message), self._clock.wall(), encoded)]

    def _relayed(self, encoded: bytes, member: str) -> list[Received]:
        try:
            envelope = decode_envelope(encoded)
            message = decode(envelope.body)
        except InvalidMessage as error:
            self._pass_over(error)
            return []
        signer = self._signer(envelope, message)
        return [Received(message, signer, self._clock.wall(), encoded, member or UNNAMED)]

    def _signer(self, envelope: Envelope, message: Message) -> str:
        if not envelope.signature:
            return NOBODY
        if envelope.signer == MANAGER:
            return MANAGER if is_signed(envelope.body, envelope.signature, self._trusted()) else NOBODY
        key = message.key if isinstance(message, Join) else envelope.signer
        return key if is_signed(envelope.body, envelope.signature, key) else NOBODY

    def _pass_over(self, error: Exception) -> None:
        self.unreadable += 1
        log.debug("a packet on a control subject was passed over: %s", error)
