"""Tutti: transactional publish/subscribe for Python. Here: the mediator, typed and content-based.

    class TradeDone(tutti.Event):
        symbol: Annotated[str, tutti.routing]
        price: Decimal

    async with tutti.connect() as bus:
        await bus.advertise(TradeDone)
        await bus.publish(TradeDone("IBM", Decimal("128.50")))

The README is the way in; `ARCHITECTURE.md` is the map.
"""

from __future__ import annotations

from tutti import errors
from tutti.bus.nats import NatsOptions
from tutti.errors import (
    BusError,
    CensusFailed,
    DeclarationError,
    Denied,
    EmbeddedError,
    EventTooLarge,
    FilterError,
    GroupUnfit,
    InvalidEvent,
    NoReply,
    NotDurable,
    OutcomeUnknown,
    Refused,
    RequestFailed,
    TransactionAborted,
    TransactionClosed,
    TransactionError,
    TuttiError,
    TypeConflict,
    TypeNotAdvertised,
    UncheckedTransaction,
    UnknownType,
    Unreachable,
)
from tutti.filters import Filter, Index
from tutti.model.event import CloudEvent, Event, event, key, routing
from tutti.model.mapping import Mapping, mapping
from tutti.model.policy import Backoff, Batch, Policy
from tutti.model.transaction import CensusRule as Census
from tutti.model.transaction import Offer
from tutti.model.txtype import Invite, TxType
from tutti.runtime import blocking
from tutti.runtime.bus import Bus, Health
from tutti.runtime.catalogue import Stream
from tutti.runtime.connect import connect
from tutti.runtime.delivery import Delivery
from tutti.runtime.execution import Reject
from tutti.runtime.publication import Published
from tutti.runtime.queues import Message
from tutti.runtime.subscriber import Subscriber
from tutti.runtime.transactions.branch import Branch
from tutti.runtime.transactions.initiator import Transaction

__version__ = "0.1.0"

__all__ = [
    "Backoff",
    "Batch",
    "Branch",
    "Bus",
    "BusError",
    "Census",
    "CensusFailed",
    "CloudEvent",
    "DeclarationError",
    "Delivery",
    "Denied",
    "EmbeddedError",
    "Event",
    "EventTooLarge",
    "Filter",
    "FilterError",
    "GroupUnfit",
    "Health",
    "Index",
    "InvalidEvent",
    "Invite",
    "Mapping",
    "Message",
    "NatsOptions",
    "NoReply",
    "NotDurable",
    "Offer",
    "OutcomeUnknown",
    "Policy",
    "Published",
    "Refused",
    "Reject",
    "RequestFailed",
    "Stream",
    "Subscriber",
    "Transaction",
    "TransactionAborted",
    "TransactionClosed",
    "TransactionError",
    "TuttiError",
    "TxType",
    "TypeConflict",
    "TypeNotAdvertised",
    "UncheckedTransaction",
    "UnknownType",
    "Unreachable",
    "blocking",
    "connect",
    "errors",
    "event",
    "key",
    "mapping",
    "routing",
]
