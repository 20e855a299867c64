"""The context attributes of CloudEvents that Tutti uses: their names, and what a value of them may be.

Names are those of the official extensions where one exists. Every name is 1 to 20 lower-case letters and digits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from tutti.errors import InvalidEvent
from tutti.limits import EXTENSION_MAX_CHARACTERS, EXTENSIONS_MAX_COUNT

SPECVERSION: Final = "1.0"

# Core context attributes: they have fields of their own in an envelope.
CORE: Final = frozenset({"specversion", "id", "source", "type", "time", "datacontenttype", "dataschema", "subject"})

# Official extensions
SEQUENCE: Final = (
    "sequence"  # the event's place among those of its publisher on its subject; zero-padded, so text order is order
)
PARTITION_KEY: Final = "partitionkey"  # the text of the type's key; events with the same one keep their order
EXPIRY: Final = "expirytime"  # RFC 3339; at or after it the event is not handled
CORRELATION: Final = "correlationid"  # in a reply: the id of the request that it answers
TRACEPARENT: Final = "traceparent"  # W3C Trace Context: the trace in which the event was published
TRACESTATE: Final = "tracestate"  # W3C Trace Context: vendors' additions to it

# Our own extensions
PRIORITY: Final = "priority"  # higher goes first among the events that wait at a subscriber
REPLY_TO: Final = "replyto"  # the subject on which the sender of a request waits

# The transaction that an event belongs to: see `model/involvement.py`.
TX_ID: Final = "txid"  # the transaction in which the event was published
TX_SEQUENCE: Final = "txsequence"  # its number among the events of this type that its publisher published there
TX_PUBLISHER: Final = "txpublisher"  # who published it: the hash of a member, or `manager` for who began it
TX_EPOCH: Final = "txepoch"  # the manager's, when it was published
TX_GROUP: Final = "txgroup"  # the standing group whose members take part, if there was no census
TX_DEADLINE: Final = "txdeadline"  # when the transaction aborts at the latest, by the journal's clock
TX_SCOPE: Final = "txscope"  # public, or private to the members of the transaction
TX_CONTACT: Final = "txcontact"  # the subject of the transaction's manager
TX_ATTEMPTS: Final = "txattempts"  # how often a handler is tried before its member votes to abort; once if not said
TX_PARENT: Final = "txparent"  # the transaction that encloses this one

# Reserved for later use: refused if a user sets one, ignored if an event brings one.
TIME_ACCURACY: Final = "timeaccuracy"  # how far `time` may be off, in seconds
HEARTBEAT: Final = "heartbeat"  # seconds after which silence of this publisher means that it is gone

RESERVED: Final = frozenset(
    {TIME_ACCURACY, HEARTBEAT, TX_ID, TX_SEQUENCE, TX_PUBLISHER, TX_EPOCH, TX_GROUP}
    | {TX_DEADLINE, TX_SCOPE, TX_CONTACT, TX_PARENT, TX_ATTEMPTS}
)
_TUTTIS_OWN: Final = frozenset(
    {SEQUENCE, PARTITION_KEY, EXPIRY, PRIORITY, REPLY_TO}
)  # set by Tutti from what the call says

_EXTENSION_NAME: Final = re.compile(r"[a-z0-9]{1,20}").fullmatch
# Control characters, unpaired surrogates and noncharacters: no CloudEvents string may hold one.
_FORBIDDEN: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef"
    + "".join(f"{chr(plane + 0xFFFE)}{chr(plane + 0xFFFF)}" for plane in range(0, 0x110000, 0x10000))
    + "]"
).search
_TIMESTAMP: Final = re.compile(  # RFC 3339
    r"[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
    r"[Tt](?:[01][0-9]|2[0-3]):[0-5][0-9]:(?:[0-5][0-9]|60)(?:\.[0-9]+)?"
    r"(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
).fullmatch
_SEQUENCE_DIGITS: Final = 19  # as many as the largest 64-bit sequence has


def sequence_text(sequence: int) -> str:
    """A sequence as the extension wants it: comparing two texts compares the numbers."""
    return str(sequence).zfill(_SEQUENCE_DIGITS)


def is_sequence(text: str) -> bool:
    """Whether this is a number that a publisher may have given."""
    return text.isdecimal() and text.isascii() and len(text) <= _SEQUENCE_DIGITS


def is_text(value: str) -> bool:
    """Whether CloudEvents allows this as the value of an attribute."""
    return _FORBIDDEN(value) is None


def is_timestamp(value: str) -> bool:
    """Whether this is an RFC 3339 timestamp, with its offset."""
    return _TIMESTAMP(value) is not None


def is_extension_name(name: str) -> bool:
    return _EXTENSION_NAME(name) is not None and name not in CORE and name != "data"


def check_own(extensions: Mapping[str, str]) -> None:
    """Whether users may set these extension attributes on their events; `InvalidEvent` says which they may not."""
    if len(extensions) > EXTENSIONS_MAX_COUNT:
        raise InvalidEvent(
            f"{len(extensions)} extension attributes are more than the limit of {EXTENSIONS_MAX_COUNT}",
            hint="put what describes the occurrence into fields of the event",
        )
    for name, value in extensions.items():
        _check_extension(name, value)


def _check_extension(name: str, value: object) -> None:
    if name in RESERVED:
        raise InvalidEvent(
            f"the attribute {name!r} is reserved", hint="choose another name: Tutti will use this one itself"
        )
    if name in _TUTTIS_OWN:
        raise InvalidEvent(
            f"the attribute {name!r} is set by Tutti",
            hint="use the key of the type, or the argument of the call, that it stands for",
        )
    if not is_extension_name(name):
        raise InvalidEvent(
            f"{name!r} cannot name an extension attribute",
            hint="use 1 to 20 lower-case letters and digits, and no name that CloudEvents itself defines",
        )
    if not isinstance(value, str):
        raise InvalidEvent(
            f"the attribute {name!r} is {value!r}, not a text", hint="convert it: attributes travel as headers"
        )
    if len(value) > EXTENSION_MAX_CHARACTERS:
        raise InvalidEvent(
            f"the attribute {name!r} has {len(value)} characters; the limit is {EXTENSION_MAX_CHARACTERS}",
            hint="put long values into a field of the event",
        )
    if not is_text(value):
        raise InvalidEvent(
            f"the attribute {name!r} is {value!r}, which holds a control character, a surrogate or a noncharacter",
            hint="CloudEvents forbids these in attributes; a field of the event may hold control characters",
        )
