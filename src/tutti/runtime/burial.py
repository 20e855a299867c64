"""An event that its subscription gave up on becomes a dead letter."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from tutti.flow.dispatcher import Bury
from tutti.runtime.admission import Item
from tutti.runtime.context import Context
from tutti.runtime.dead import DeadLetter

log = logging.getLogger("tutti.feed")


class Burial:
    """For one subscription, whose log is `stream`."""

    def __init__(self, context: Context, subscriber: str, subscription: str, stream: str) -> None:
        self._context = context
        self._subscriber = subscriber
        self._subscription = subscription
        self._stream = stream
        self._dead = context.metrics.counter("tutti_dead_total", subscriber=subscriber, subscription=subscription)

    async def write(self, letter: DeadLetter, item: Item) -> None:
        """However long the bus is away: the event is held until its letter is safe. Who asked with a request is
        told."""
        await self._context.dead.bury_in_the_end(letter)
        self._dead.value += 1
        self._context.publisher.reply_failure(item.delivery.envelope, letter.reason)
        log.warning(
            "%s.%s: %s is dead-lettered: %s",
            self._subscriber,
            self._subscription,
            letter.event_id or f"record {letter.sequence}",
            letter.reason,
            extra={"event_id": letter.event_id, "event_type": letter.event_type},
        )

    def letter(self, item: Item, bury: Bury) -> DeadLetter:
        return DeadLetter.of(
            item.delivery.record,
            item.delivery.envelope,
            subscriber=self._subscriber,
            subscription=self._subscription,
            stream=self._stream if item.delivery.record.sequence else "",
            reason=item.poison or bury.reason,
            attempts=0 if item.poison else bury.attempts,
            traceback=item.traceback,
            buried_at=datetime.fromtimestamp(self._context.clock.wall(), UTC),
        )
