"""What managers and members say to each other: one closed, versioned union.

manager → candidates  Invite                       candidates → manager  Join
manager → members     Begin, Dismiss, Close,       members → manager     Vote, Tally, Done, Ended
                      Prepare, Decide
member → peers, then the journal's recovery subject: Inquiry        answers: Relay (verbatim), Standing

Every message travels in an `Envelope`: the encoded body, and a signature over exactly these bytes, so it can be passed
on without its sender. What the manager says is signed with the journal's key; a Join with the fresh key that it
carries, and everything that this member says later with the same. The driver verifies and says who signed
(`Received.signer`); the machines decide what that is worth.

`epoch` is the manager's; `round` counts the closings of a transaction from 1. A vote belongs to its epoch and round: a
vote never changes, but a round that turned out to be still open is followed by another one.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final, Literal

import msgspec

from tutti.errors import InvalidMessage
from tutti.model.decoding import UNDECODABLE
from tutti.model.transaction import WHOLE, Counts, Outcome, Scope

WIRE_VERSION: Final = 1
WIRE_OLDEST: Final = 1  # two neighbouring versions understand each other
MANAGER: Final = "manager"  # `Received.signer` for the journal's key
NOBODY: Final = ""  # `Received.signer` where there is no signature, or a wrong one


class _Message(msgspec.Struct, frozen=True, tag_field="kind", tag=str.lower, omit_defaults=True):
    tx: str


# From the manager


class Invite(_Message, frozen=True):
    """A transaction of this type is about to begin: who takes part? `events` are the types that it may publish."""

    type: str
    data: Any
    within: float  # seconds in which joins count
    scope: Scope = "private"
    events: tuple[str, ...] = ()
    deadline: float = 0.0


class Begin(_Message, frozen=True):
    """The census is over. Who is not in `members` (hashes) behaves as if it had never joined. `keys`: the key of a
    private transaction, wrapped for each member (by hash)."""

    epoch: int
    members: tuple[str, ...]
    deadline: float
    keys: dict[str, bytes] = {}


class Dismiss(_Message, frozen=True):
    """The census failed, or the publisher gave up before it was over: there is no such transaction."""

    reason: str


class Close(_Message, frozen=True):
    """Say what you sent and received, now and whenever it changes, once you are idle. `work_ended`: handle what was
    deferred first. It takes back every earlier round: no commit will rest on votes of those."""

    epoch: int
    round: int
    work_ended: bool = False


class Prepare(_Message, frozen=True):
    """Vote. `counts` are final: everything that was ever published in the transaction."""

    epoch: int
    round: int
    counts: Counts
    deadline: float
    work_ended: bool = False
    group: str = ""


class Decide(_Message, frozen=True):
    """The row stands. For members in `excluded` the outcome is abort, whatever it is for the others."""

    epoch: int
    outcome: Outcome
    branch: str = WHOLE
    reason: str = ""
    excluded: tuple[str, ...] = ()

    def outcome_for(self, member: str) -> Outcome:
        return "abort" if member in self.excluded else self.outcome


# From members


class Join(_Message, frozen=True):
    """I take part. `key` is fresh and signs this; `wrap` is the key with which payloads are wrapped for me; `name` is
    an identity, if I want to give one; `instance` sends heartbeats for me."""

    pseudonym: str
    key: str
    offer: Any = None
    name: str = ""
    instance: str = ""
    wrap: str = ""


class Tally(_Message, frozen=True):
    """I am idle, and so much I sent and received in the transaction. The one with the highest `turn` counts. `handles`:
    the event types that I get. `deferred`: I hold events that are handled only after the work has ended."""

    epoch: int
    round: int
    member: str
    turn: int
    sent: dict[str, int]
    received: Counts
    handles: tuple[str, ...]
    deferred: bool = False


class Vote(_Message, frozen=True):
    """`no` needs no prepare and holds for every round; `open` is no vote yet: I published, or have deferred reactions,
    or got more than the counts say."""

    epoch: int
    round: int
    member: str
    value: Literal["yes", "no", "open"]
    reason: str = ""
    deferred: bool = False  # with `open`


class Done(_Message, frozen=True):
    """A child of the transaction has finished."""

    epoch: int
    member: str
    child: str


class Ended(_Message, frozen=True):
    """My branch is finished. Drivers collect these and send many, of many transactions, in one packet. `compensating`
    is only news: the end is still to come. `heuristic`: an operator had finished it the other way."""

    member: str
    outcome: Outcome
    state: Literal["ended", "compensating", "heuristic"] = "ended"


# In doubt

DoubtState = Literal["joined", "working", "voted"]


class Inquiry(_Message, frozen=True):
    """I have not heard of the begin (joined), the prepare (working), the decision (voted). Answer to `inbox`."""

    member: str
    state: DoubtState
    inbox: str


class Relay(_Message, frozen=True):
    """What the manager signed, verbatim: encoded envelopes. The driver opens each and hands on what it finds, as if it
    had come from the manager; what is not signed by the manager it throws away. `member`: who passes it on, as it says
    itself; it stands in logs, and nothing is decided by it."""

    envelopes: tuple[bytes, ...]
    member: str = ""


class Standing(_Message, frozen=True):
    """The journal's recovery has no decision to tell. `undecided`: its manager lives, ask again. `unknown`: the journal
    does not know this transaction (any more); that says nothing about its outcome."""

    answer: Literal["undecided", "unknown"]


ManagerMessage = Invite | Begin | Dismiss | Close | Prepare | Decide | Standing
MemberMessage = Join | Tally | Vote | Done | Ended
Message = ManagerMessage | MemberMessage | Inquiry | Relay


# On the wire


class Envelope(msgspec.Struct, frozen=True, omit_defaults=True):
    """`body` is the encoded message; `signature` is over it; `signer` is a public key, or MANAGER."""

    body: bytes
    signer: str = NOBODY
    signature: bytes = b""
    version: int = WIRE_VERSION


_encoder: Final = msgspec.msgpack.Encoder()
_messages: Final[msgspec.msgpack.Decoder[Message]] = msgspec.msgpack.Decoder(Message)
_envelopes: Final = msgspec.msgpack.Decoder(Envelope)


def encode(message: Message | Envelope) -> bytes:
    return _encoder.encode(message)


def decode_envelope(packet: bytes) -> Envelope:
    """Raises `InvalidMessage` for anything that is not an envelope of a version that we understand."""
    try:
        envelope = _envelopes.decode(packet)
    except UNDECODABLE as error:
        raise InvalidMessage(f"this is no protocol message: {error}", hint="who else uses this subject?") from error
    if not WIRE_OLDEST <= envelope.version <= WIRE_VERSION + 1:
        raise InvalidMessage(
            f"a protocol message of version {envelope.version} arrived; this is version {WIRE_VERSION}",
            hint="upgrade the older side: only neighbouring versions work together",
        )
    return envelope


def decode(body: bytes) -> Message:
    """Raises `InvalidMessage` for anything that is not a message. Unknown fields come from a newer version."""
    try:
        return _messages.decode(body)
    except UNDECODABLE as error:
        raise InvalidMessage(f"this is no protocol message: {error}", hint="who else uses this subject?") from error


# To and from the machines


class Received(msgspec.Struct, frozen=True):
    """An input: a message, and who signed it (MANAGER, a public key, or NOBODY), as the driver verified. `verbatim` is
    the encoded envelope, kept where it may have to be passed on; `relayed_by` is the peer that passed it on to us, by
    its own word."""

    message: Message
    signer: str
    now: float
    verbatim: bytes = b""
    relayed_by: str = ""


class To(StrEnum):
    CANDIDATES = "candidates"  # whoever listens for invitations of the transaction's type
    MEMBERS = "members"  # everybody in the transaction, the manager included; for a group, its subject
    MANAGER = "manager"  # a subject derived from journal and tx
    RECOVERY = "recovery"  # of the journal: whoever shares it answers
    INBOX = "inbox"  # of the one who asked


class Send(msgspec.Struct, frozen=True):
    """An effect: sign and send, and do not wait. Loss is allowed for in the machines. `inbox` with To.INBOX."""

    message: Message
    to: To
    inbox: str = ""


class Ticked(msgspec.Struct, frozen=True):
    """An input: time has passed."""

    now: float


class WakeAt(msgspec.Struct, frozen=True):
    """An effect: say `Ticked` at this time. Replaces the one before it; `None`: no more need."""

    time: float | None
