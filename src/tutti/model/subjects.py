"""Where things are on the bus: the one place that knows how subjects are put together.

    <namespace>.event.<stream>.<type>.<tx>.<partition>[.<routing attribute>…]    the log of events
    <namespace>.tx.<stream>.<type>.<tx>.<partition>[.<routing attribute>…]       the same log: events in transactions
    <namespace>.live.<type>.<tx>.<partition>[.<routing attribute>…]              best-effort events, never stored
    <namespace>.status.<partition>.<tx>                                          the log of transactions' outcomes
    <namespace>.queue.<queue>.<type>                                             queues
    <namespace>.dead.<subscriber>.<handler>                                      dead letters
    <namespace>.state.<kind>.<key…>                                              compare-and-set records
    <namespace>.control.<…>                                                      protocol messages on the wire

Events in transactions stand under a word of their own: their members listen to them without hearing all plain events,
and readers of plain events do not read them. `<tx>` is `_` outside a transaction. Values become tokens by `token`: any
text, safely, equal tokens for equal values.
"""

from __future__ import annotations

import hashlib
import math
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import Final

import msgspec

from tutti.errors import DeclarationError
from tutti.limits import PARTITIONS_COUNT, ROUTING_TOKEN_MAX_BYTES

NO_TRANSACTION: Final = "_"
PRIVATE: Final = "=x"  # instead of a routing value, in private transactions: the subject tells nothing
NULL_TOKEN: Final = "=-"  # a routing attribute without a value
_SAFE: Final = re.compile(r"[A-Za-z0-9_-]+").fullmatch
_PLAIN_POWER: Final = ROUTING_TOKEN_MAX_BYTES  # more zeros than this would not fit a token anyway
_PLAIN_BELOW: Final = 10**_PLAIN_POWER
_PARTITIONS: Final = {str(partition): partition for partition in range(PARTITIONS_COUNT)}
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}").fullmatch
_INBOX: Final = re.compile(r"_INBOX[A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)+").fullmatch


def token(value: object) -> str:
    """One subject token for any routing value. Characters outside [A-Za-z0-9_-] become `=XX` (UTF-8, hex), the empty
    text `=`, an absent value `=-`; a text longer than the limit becomes `=~` and a digest. Two different values may
    share a token only through the digest, and a filter is always evaluated again at the subscriber."""
    if value is None:
        return NULL_TOKEN
    return _text_token(value if type(value) is str else routing_text(value))


@lru_cache(maxsize=4_096)
def _text_token(text: str) -> str:
    if _SAFE(text) and len(text) <= ROUTING_TOKEN_MAX_BYTES:
        return text
    encoded = "".join(chr(b) if _SAFE(chr(b)) else f"={b:02X}" for b in text.encode("utf-8", "surrogatepass"))
    if not encoded:
        return "="
    if len(encoded) <= ROUTING_TOKEN_MAX_BYTES:
        return encoded
    return "=~" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def routing_text(value: object) -> str:
    """The one text form of a routing value; equal values give equal texts (1.50 and 1.5, one instant in two zones)."""
    match value:
        case Enum():
            return routing_text(value.value)
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() if -_PLAIN_BELOW < value < _PLAIN_BELOW:
            return str(value)
        case int():
            return _number_text(Decimal(value))
        case Decimal() if value.is_finite():
            return _number_text(value)
        case float() if math.isfinite(value):
            return _number_text(Decimal(repr(value)))
        case datetime():
            return _moment_text(value)
        case date():
            return value.isoformat()
        case _ if type(value).__module__ == "uuid":  # which also makes them by chance, so it is not imported here
            return str(value)
        case _:
            raise DeclarationError(
                f"{value!r} ({type(value).__name__}) cannot be a routing attribute",
                hint="route on str, int, bool, finite Decimal or float, enum, date, datetime or UUID",
            )


def _number_text(value: Decimal) -> str:
    """Plain digits; with an exponent only where there would be very many zeros, so that 1E+999999 stays short."""
    if not value:
        return "0"
    sign, digits, exponent = value.as_tuple()
    coefficient = "".join(map(str, digits))
    significant = coefficient.rstrip("0")
    power = int(exponent) + len(coefficient) - len(significant)
    if -_PLAIN_POWER <= power <= _PLAIN_POWER:
        return format(Decimal((sign, tuple(map(int, significant)), power)), "f")
    return f"{'-' if sign else ''}{significant}E{power}"


def _moment_text(value: datetime) -> str:
    moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    try:
        return moment.astimezone(UTC).isoformat()
    except OverflowError as error:  # within a day of the first or the last year
        raise DeclarationError(
            f"{value!r} cannot be a routing attribute: its instant has no year", hint="use UTC"
        ) from error


def partition_of(key: str) -> int:
    """The partition of a key: the same in every process, version and language."""
    digest = hashlib.blake2s(key.encode("utf-8", "surrogatepass"), digest_size=4).digest()
    return int.from_bytes(digest, "big") % PARTITIONS_COUNT


@lru_cache(maxsize=4_096)
def partition_in(subject: str) -> int | None:
    """The partition that an event's subject names; None if it is no subject of ours."""
    tokens = subject.split(".", 6)
    return _PARTITIONS.get(tokens[5]) if len(tokens) > 5 else None


def checked_name(name: str, what: str) -> str:
    """A name that people choose (namespace, stream, subscriber, queue) and that becomes a subject token as it is."""
    if not _NAME(name):
        raise DeclarationError(
            f"{name!r} cannot name a {what}",
            hint="use 1 to 64 letters, digits, '-' or '_', starting with a letter or digit",
        )
    return name


@lru_cache(maxsize=4_096)
def is_inbox(subject: str) -> bool:
    """A question, or an event, says where its answer should go, and anybody may have written it: only inboxes are
    written to, never our own subjects, or the servers'."""
    return _INBOX(subject) is not None


class Layout(msgspec.Struct, frozen=True):
    """Subjects and stream names of one namespace."""

    namespace: str = "tutti"

    def event_stream(self, stream: str) -> str:
        return f"{self.namespace}-events-{stream}"

    def event_subjects(self, stream: str) -> str:
        return f"{self.namespace}.event.{stream}.>"

    def event(self, stream: str, type_token: str, tx: str, partition: str, routing: tuple[str, ...]) -> str:
        return ".".join((self.namespace, "event", stream, type_token, tx, partition, *routing))

    def transactional_subjects(self, stream: str) -> str:
        return f"{self.namespace}.tx.{stream}.>"

    def transactional(self, stream: str, type_token: str, tx: str, partition: str, routing: tuple[str, ...]) -> str:
        """An event in a transaction. In a private one, whoever calls puts PRIVATE in the place of routing values."""
        return ".".join((self.namespace, "tx", stream, type_token, tx, partition, *routing))

    def of_type(self, stream: str, type_token: str) -> str:
        """Every event of a type, in any transaction."""
        return f"{self.namespace}.tx.{stream}.{type_token}.>"

    def of_transaction(self, stream: str, tx: str) -> str:
        """Every event of a transaction in a stream: so it can be enumerated from the log."""
        return f"{self.namespace}.tx.{stream}.*.{tx}.>"

    def live(self, type_token: str, tx: str, partition: str, routing: tuple[str, ...]) -> str:
        return ".".join((self.namespace, "live", type_token, tx, partition, *routing))

    @property
    def queue_stream(self) -> str:
        return f"{self.namespace}-queues"

    @property
    def queue_subjects(self) -> str:
        return f"{self.namespace}.queue.>"

    def queue(self, queue: str, type_token: str) -> str:
        return f"{self.namespace}.queue.{queue}.{type_token}"

    @property
    def dead_stream(self) -> str:
        return f"{self.namespace}-dead"

    @property
    def dead_subjects(self) -> str:
        return f"{self.namespace}.dead.>"

    def dead(self, subscriber: str, handler: str) -> str:
        return f"{self.namespace}.dead.{subscriber}.{token(handler)}"

    @property
    def state_stream(self) -> str:
        return f"{self.namespace}-state"

    @property
    def state_subjects(self) -> str:
        return f"{self.namespace}.state.>"

    # Transactions

    @property
    def status_stream(self) -> str:
        return f"{self.namespace}-status"

    @property
    def status_subjects(self) -> str:
        return f"{self.namespace}.status.>"

    def status(self, tx: str) -> str:
        return f"{self.namespace}.status.{partition_of(tx)}.{tx}"

    @property
    def manifest_stream(self) -> str:
        return f"{self.namespace}-manifests"

    @property
    def manifest_subjects(self) -> str:
        return f"{self.namespace}.manifest.>"

    def manifest(self, tx: str) -> str:
        return f"{self.namespace}.manifest.{tx}"

    def invitations(self, type_token: str) -> str:
        """Where candidates listen: of each subscriber, one instance."""
        return f"{self.namespace}.control.invite.{type_token}"

    def members(self, type_token: str, tx: str) -> str:
        """Where members of a census, and their manager, hear each other (`*` for any transaction of that type)."""
        return f"{self.namespace}.control.type.{type_token}.{tx}"

    def group(self, group: str, tx: str) -> str:
        """The same for the members of a standing group."""
        return f"{self.namespace}.control.group.{group}.{tx}"

    def manager(self, tx: str) -> str:
        """Where votes go: derived from journal, manager and transaction, all of which the id names."""
        return f"{self.namespace}.control.manager.{tx.rpartition('-')[0]}.{tx}"

    def managed(self, run: str) -> str:
        """All that goes to one run of a manager: what its transactions' ids begin with."""
        return f"{self.namespace}.control.manager.{run}.*"

    @property
    def hosts(self) -> str:
        """Where publishers ask for a manager that is a service."""
        return f"{self.namespace}.control.hosts"

    def host(self, tx: str) -> str:
        """Where the publisher of a transaction talks to its manager, if that is a service."""
        return f"{self.namespace}.control.host.{tx.rpartition('-')[0]}.{tx}"

    def hosted(self, run: str) -> str:
        """The same for all transactions of one run of a service."""
        return f"{self.namespace}.control.host.{run}.*"

    def recovery(self, journal: str) -> str:
        return f"{self.namespace}.control.recovery.{journal}"

    def heartbeat(self, instance: str) -> str:
        return f"{self.namespace}.control.beat.{instance}"
