"""What the two sides of a manager say to each other when the publisher is in another process.

The publisher asks with `Ask`, once for each transaction; some service answers with `Taken`, or `Declined`. From then on
they talk (`control/conversation.py`): the publisher says inputs of the machine, the manager its effects, wrapped where
something must go along. Everything is signed: by the publisher with the key that its `Ask` carried, by the manager with
the journal's.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from tutti.control.conversation import Packet
from tutti.control.transaction import messages as told
from tutti.errors import InvalidMessage
from tutti.model.decoding import UNDECODABLE
from tutti.model.transaction import CensusRule, Outcome, Scope


class CensusTerms(msgspec.Struct, frozen=True):
    """The part of a census rule that can travel: what is Python code runs where the manager is, or not at all."""

    at_least: int = 1
    at_most: int | None = None
    within: float = 5.0
    named: frozenset[str] = frozenset()

    def rule(self) -> CensusRule:
        return CensusRule(self.at_least, self.at_most, self.within, self.named)


class Intent(msgspec.Struct, frozen=True):
    """The transaction that a publisher wants. `seconds` are those until its deadline."""

    type: str
    seconds: float
    data: Any = None
    scope: Scope = "private"
    events: tuple[str, ...] = ()
    census: CensusTerms | None = None
    group: str = ""
    minimum: int = 0


# Before they talk


class Ask(msgspec.Struct, frozen=True, tag_field="kind", tag=True):
    """Who manages this? `ask` is the same each time the question is repeated. `key` signs for the publisher, `wrap` is
    for the payload key; both are fresh."""

    ask: str
    intent: Intent
    key: str
    wrap: str
    inbox: str


class Taken(msgspec.Struct, frozen=True, tag_field="kind", tag=True):
    """I do. `payload` is the key of a private transaction, wrapped for the publisher; `keys` the same for the members
    of a group, by hash: each event takes them along."""

    ask: str
    tx: str
    epoch: int
    deadline: float
    payload: bytes = b""
    keys: dict[str, bytes] = {}


class Declined(msgspec.Struct, frozen=True, tag_field="kind", tag=True):
    """Nobody can. `error` is the name of the exception that the publisher would have got."""

    ask: str
    error: str
    what: str
    hint: str = ""


# While they talk: what the manager says that is no effect of its machine


class Enlisting(msgspec.Struct, frozen=True, tag_field="kind", tag=True):
    """The journal knows that the publisher uses this resource; or, with an error, it does not."""

    resource: str
    error: str = ""


class Carried(msgspec.Struct, frozen=True, tag_field="kind", tag=True):
    """`told.Publish`, and the prepare that goes with it, signed."""

    publish: told.Publish
    prepare: bytes = b""


class Stands(msgspec.Struct, frozen=True, tag_field="kind", tag=True):
    """Whether the work is still open, and what is decided, and why."""

    open: bool
    outcome: Outcome | None = None
    reason: str = ""


class Over(msgspec.Struct, frozen=True, tag_field="kind", tag=True):
    """Every branch has ended; or (None) this manager has nothing more to do with it."""

    outcome: Outcome | None = None


Question = Ask | Taken | Declined
FromPublisher = (
    told.Started
    | told.Publishing
    | told.Stored
    | told.NotStored
    | told.Enlisted
    | told.CommitRequested
    | told.AbortRequested
    | told.OwnPrepared
    | told.OwnPrepareFailed
    | told.OwnFinished
)
FromManager = (
    told.Opened
    | told.CensusFailed
    | told.PrepareOwn
    | told.FinishOwn
    | told.Answer
    | Enlisting
    | Carried
    | Stands
    | Over
)

_encoder: Final = msgspec.msgpack.Encoder()
_questions: Final[msgspec.msgpack.Decoder[Question]] = msgspec.msgpack.Decoder(Question)
_packets: Final[msgspec.msgpack.Decoder[Packet]] = msgspec.msgpack.Decoder(Packet)
_from_publisher: Final[msgspec.msgpack.Decoder[FromPublisher]] = msgspec.msgpack.Decoder(FromPublisher)
_from_manager: Final[msgspec.msgpack.Decoder[FromManager]] = msgspec.msgpack.Decoder(FromManager)


def encode(value: Question | Packet | FromPublisher | FromManager) -> bytes:
    return _encoder.encode(value)


D = TypeVar("D")


def question(body: bytes) -> Question:
    """`InvalidMessage` for anything else, here and below."""
    return _decoded(_questions, body)


def packet(body: bytes) -> Packet:
    return _decoded(_packets, body)


def from_publisher(item: bytes) -> FromPublisher:
    return _decoded(_from_publisher, item)


def from_manager(item: bytes) -> FromManager:
    return _decoded(_from_manager, item)


def _decoded(decoder: msgspec.msgpack.Decoder[D], body: bytes) -> D:
    try:
        return decoder.decode(body)
    except UNDECODABLE as error:
        raise InvalidMessage(
            f"this is no word between a publisher and its manager: {error}", hint="who else uses this subject?"
        ) from error
