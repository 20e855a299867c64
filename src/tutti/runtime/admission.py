"""From a record on the bus to an event for the handler: the way in, up to the dispatcher.

A record that cannot be understood is not dropped here: it is admitted as *poison*, keeps its place in the order, and is
dead-lettered with the reason when its turn comes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tutti.bus.port import Record
from tutti.errors import InvalidEvent
from tutti.flow.continuity import CONTINUOUS, Continuity, Gap, Unproven
from tutti.flow.duplicates import Duplicates
from tutti.flow.matcher import Matcher, Seen
from tutti.model import attributes
from tutti.model.cloudevents import from_message
from tutti.model.envelope import Envelope, publisher_of
from tutti.model.event import CloudEvent
from tutti.runtime.clock import Clock
from tutti.runtime.delivery import Delivery, Reply
from tutti.runtime.metrics import Metrics
from tutti.runtime.subscriber import Subscription

if TYPE_CHECKING:
    from tutti.runtime.bus import Bus

UNREADABLE: Final = Envelope(id="", source="", type="", data=b"")


class Item(msgspec.Struct, eq=False, gc=False):
    """An event on its way through one subscription."""

    delivery: Delivery
    lane: str
    event: Any = None
    poison: str = ""
    priority: int = 0
    expires_at: float | None = None  # by the monotonic clock
    traceback: str = ""
    partition: int = -1
    sequence: int = 0  # in the log, or a number of the feed's own for a best-effort event

    @property
    def attributes(self) -> Mapping[str, str]:
        """The event's context attributes: put together only if a filter asks for one."""
        return self.delivery.envelope.attributes()


class _Past(msgspec.Struct):
    """What is remembered of a partition while it is ours."""

    continuity: Continuity
    duplicates: Duplicates


class Admission:
    """For one subscription in one instance. What it remembers of a partition is forgotten with the partition."""

    def __init__(self, wanted: Subscription, clock: Clock, metrics: Metrics, reply: Reply, **labels: str) -> None:
        untyped = wanted.type.python is CloudEvent
        self._matcher = Matcher(wanted.filter, wanted.match, None if untyped else wanted.type.python)
        self._published = wanted.published  # the type as it is published, before any transformation
        self._is_untyped = self._published.python is CloudEvent
        self._via = wanted.via
        self._is_shared = wanted.foreign_subject is not None or wanted.queue is not None  # with events of other types
        self._clock = clock
        self._reply = reply
        self.bus: Bus | None = None  # what deliveries name as theirs
        self._key = attrgetter(wanted.key) if wanted.key else None
        self._lifetime = wanted.policy.lifetime
        self._filters = not self._matcher.open
        self._ranks = self._key is not None or self._lifetime is not None  # by more than what an event says of itself
        self._is_foreign = wanted.foreign_subject is not None
        self._pasts: dict[int, _Past] = {}
        self._received = metrics.counter("tutti_received_total", **labels)
        self._filtered = metrics.counter("tutti_filtered_total", **labels)
        self._filter_errors = metrics.counter("tutti_filter_errors_total", **labels)
        self._repeated = metrics.counter("tutti_duplicates_total", **labels)
        self.on_gap: Callable[[Record, Gap | Unproven], None] = lambda _record, _gap: None

    def forget(self, partition: int) -> None:
        self._pasts.pop(partition, None)

    def admit(self, record: Record, partition: int, now: float) -> Item | None:
        """None: nothing to do here (turned away by the filter, or handled before)."""
        self._received.value += 1
        try:
            envelope = from_message(record.headers, record.data)
        except InvalidEvent as error:
            item = Item(Delivery(record, UNREADABLE, self._reply, self.bus), "")
            item.poison = str(error)
            return item
        item = Item(Delivery(record, envelope, self._reply, self.bus), publisher_of(envelope.source))
        try:
            return item if self._concerns_us(item, record, envelope, partition, now) else None
        except InvalidEvent as error:
            item.poison = str(error)
        except Exception as error:  # noqa: BLE001 a user's mapping or key may raise anything; the event is kept
            item.poison = f"{type(error).__name__} before the handler: {error}"
        return item

    def _concerns_us(self, item: Item, record: Record, envelope: Envelope, partition: int, now: float) -> bool:
        """Whether it is new and passes the filter. If so, the item has all that the dispatcher and the handler need."""
        extensions = envelope.extensions
        if partition >= 0:
            past = self._pasts.get(partition)
            if past is None:
                past = self._pasts[partition] = _Past(Continuity(), Duplicates())
            if attributes.SEQUENCE in extensions and not self._is_foreign:
                self._watch(record, envelope, past.continuity)
            if past.duplicates.seen(f"{item.lane}\x1f{envelope.id}", now):
                self._repeated.value += 1
                return False
        if not self._understand(item, envelope):
            return False
        if self._ranks or len(extensions) != 1 or attributes.SEQUENCE not in extensions:
            self._time_and_rank(item, envelope, now)
        return True

    def _understand(self, item: Item, envelope: Envelope) -> bool:
        """Decode, transform, filter. False: the filter turns it away."""
        published = self._published
        if self._is_untyped:
            event: Any = published.decode_envelope(envelope)
        elif envelope.type != published.name:
            if self._is_shared:
                self._filtered.value += 1
                return False
            raise InvalidEvent(f"an event of type {envelope.type!r} stands on the subject of {published.name}")
        else:
            event = published.decode(envelope.data)
        if self._via is not None:
            event = self._via.apply(event)
        item.event = event
        if self._filters:
            seen = Seen(event.data, envelope.attributes()) if type(event) is CloudEvent else item
            matches = self._matcher.match(seen)
            if matches is None:
                self._filtered.value += 1
                self._filter_errors.value = self._matcher.errors
                return False
            item.delivery.matches = matches
        return True

    def _time_and_rank(self, item: Item, envelope: Envelope, now: float) -> None:
        extensions = envelope.extensions
        if self._key is None:
            key = extensions.get(attributes.PARTITION_KEY)
            if key is not None:  # the type's own key
                item.lane = f"{item.lane}\x1f{key}"
        else:
            item.lane = f"{item.lane}\x1f{self._key(item.event)}"
        priority = extensions.get(attributes.PRIORITY)
        if priority:
            item.priority = _integer(priority, attributes.PRIORITY)
        expiry = extensions.get(attributes.EXPIRY)
        if expiry:
            item.expires_at = now + moment(expiry, attributes.EXPIRY) - self._clock.wall()
        if self._lifetime is not None and envelope.time:
            end = now + moment(envelope.time, "time") + self._lifetime - self._clock.wall()
            item.expires_at = end if item.expires_at is None else min(end, item.expires_at)

    def _watch(self, record: Record, envelope: Envelope, continuity: Continuity) -> None:
        """Notice what is missing: a publisher numbers its events per exact subject."""
        text = envelope.extensions[attributes.SEQUENCE]
        if not attributes.is_sequence(text):
            return
        found = continuity.observe(envelope.source, record.subject, int(text), record.sequence)
        if found is not CONTINUOUS and isinstance(found, Gap | Unproven):
            self.on_gap(record, found)


def _integer(text: str, name: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidEvent(f"attribute {name} is {text!r}, not an integer") from None


def moment(text: str, name: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidEvent(f"attribute {name} is {text!r}, not an RFC 3339 timestamp") from None
    if moment.tzinfo is None:
        raise InvalidEvent(f"attribute {name} is {text!r}, without a time zone")
    return moment.timestamp()
