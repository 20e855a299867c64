"""The second feed of a subscription: public events of transactions, when these have committed.

It differs from the first in what it reads and in how positions are counted; retries, dead letters, filters, lanes and
leases are the same. Between the two feeds there is no order, but they share the subscription's limit of calls at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import msgspec

from tutti.bus.port import FromLatest, FromSequence, FromTime, Start
from tutti.flow.dispatcher import Bury
from tutti.limits import TRANSACTION_EVENTS_MAX_COUNT
from tutti.runtime.admission import Item
from tutti.runtime.context import Context
from tutti.runtime.dead import DeadLetter
from tutti.runtime.execution import Gate
from tutti.runtime.feed import Feed
from tutti.runtime.positions import first_at
from tutti.runtime.subscriber import Subscription
from tutti.runtime.threads import Threads
from tutti.runtime.transactions.visibility import CommittedLog, CommittedRecord

log = logging.getLogger("tutti.visibility")

ON_COMMIT: Final = "@commit"  # behind a subscription's name, where the positions of its second feed are kept


class CommitFeed(Feed):
    """As a feed; handlers, dead letters and metrics know it by the subscription's own name."""

    def __init__(
        self,
        context: Context,
        subscriber: str,
        subscription: Subscription,
        *,
        gate: Gate | None,
        threads: Threads,
        moved: Callable[[int], None],
        may_run: Callable[[int, float], bool],
    ) -> None:
        super().__init__(context, subscriber, subscription, gate=gate, threads=threads, moved=moved, may_run=may_run)
        labels = {"subscriber": subscriber, "subscription": subscription.name}
        self._lost = context.metrics.counter("tutti_missing_total", **labels)
        self._log = CommittedLog(
            context.transport,
            context.layout,
            context.clock,
            stream=subscription.published.stream,
            type_token=subscription.published.token,
            missing=self._tell_missing,
        )
        # A publisher's numbers have holes here, where a transaction aborted: the statuses say what should be there.
        self._admission.on_gap = lambda _record, _gap: None

    @property
    def stream(self) -> str:
        return self._context.layout.status_stream

    def _tell_missing(self, count: int, what: str) -> None:
        self._lost.value += count
        log.error("%s.%s: %s", self._subscriber, self.subscription.name, what)

    def _letter(self, item: Item, bury: Bury) -> DeadLetter:
        letter, record = super()._letter(item, bury), item.delivery.record
        if not isinstance(record, CommittedRecord):
            return letter
        return msgspec.structs.replace(letter, stream=record.stream, sequence=record.place)


async def start_on_commit(context: Context, subscription: Subscription) -> FromSequence:
    """Where a new subscription's second feed begins: with what commits from then on. A sequence of the stream stands
    for the moment in which that event was stored."""
    transport, statuses = context.transport, context.layout.status_stream
    start: Start = subscription.start
    stream = context.layout.event_stream(subscription.published.stream)
    if isinstance(start, FromSequence):
        start = await _moment_of(context, stream, start.sequence)
    match start:
        case FromLatest():
            info = await transport.stream_info(statuses)
            first = info.last + 1 if info is not None else 1
        case FromTime():
            first = await first_at(transport, statuses, start.time)
        case _:
            return FromSequence(1)
    return FromSequence(first * TRANSACTION_EVENTS_MAX_COUNT)


async def _moment_of(context: Context, stream: str, sequence: int) -> Start:
    info = await context.transport.stream_info(stream)
    if info is None or sequence > info.last:
        return FromLatest()
    reader = await context.transport.reader(stream, (), FromSequence(sequence))
    try:
        while await reader.horizon() < info.last:
            if found := await reader.batch(1, wait=0.5):
                return FromTime(found[0].stored_at)
    finally:
        await reader.close()
    return FromLatest()
