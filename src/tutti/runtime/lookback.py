"""A hole in a publisher's numbers: look back in the log whether it is one, and say so.

Beside the delivery, never in its way: an event is handled whether or not the one before it is missing.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from tutti.bus.port import Record
from tutti.errors import BusError, Gone, InvalidEvent
from tutti.flow.continuity import Gap, Unproven
from tutti.limits import LOOK_BACK_MAX_COUNT, LOOK_BACK_STEPS
from tutti.model import attributes
from tutti.model.cloudevents import from_message
from tutti.runtime.context import Context

log = logging.getLogger("tutti.continuity")

_GAP_TEXT: Final = (
    "%s.%s: events %d to %d of %s on %s are missing from the log before sequence %d; "
    "they were lost there, or never stored (then their publisher was told so)"
)


class LookBack:
    def __init__(self, context: Context, stream: str, labels: dict[str, str]) -> None:
        self._context = context
        self._stream = stream
        self._labels = labels
        self._missing = context.metrics.counter("tutti_missing_total", **labels)
        self._queue: asyncio.Queue[tuple[Record, Unproven]] = asyncio.Queue(LOOK_BACK_MAX_COUNT)
        self._task: asyncio.Task[None] | None = None
        self.gaps: list[Gap] = []  # newest last, at most LOOK_BACK_MAX_COUNT

    def notice(self, record: Record, found: Gap | Unproven) -> None:
        if isinstance(found, Gap):
            self._report(found, record.sequence)
            return
        if self._queue.full():
            return  # very many publishers at once, right after a start: prove those that there is time for
        self._queue.put_nowait((record, found))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work())
            self._task.add_done_callback(self._ended)

    def lost(self, error: Gone) -> None:
        """A span that should have been read is gone from the log."""
        self._missing.value += 1
        log.error("%s.%s: %s", self._labels["subscriber"], self._labels["subscription"], error.what)

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and task.exception() is not None:
            self._context.failed(task)

    async def _work(self) -> None:
        while True:
            record, first = await self._queue.get()
            try:
                await self._prove(record, first)
            except BusError:
                log.debug("cannot look back to %s before %d now", record.subject, record.sequence)

    async def _prove(self, record: Record, first: Unproven) -> None:
        """The event before the first one that we saw of this publisher on this subject must be numbered one less."""
        at = record.sequence
        for _ in range(LOOK_BACK_STEPS):
            before = await self._context.transport.last(self._stream, record.subject, up_to=at - 1) if at > 1 else None
            if before is None:
                info = await self._context.transport.stream_info(self._stream)
                if info is not None and info.first == 1:  # nothing was ever purged: they should be here
                    self._report(Gap(first.publisher, first.subject, 1, first.number - 1), record.sequence)
                return
            number = _number(before, first.publisher)
            if number is not None:
                if number < first.number - 1:
                    self._report(Gap(first.publisher, first.subject, number + 1, first.number - 1), record.sequence)
                return
            at = before.sequence

    def _report(self, gap: Gap, sequence: int) -> None:
        self._missing.value += gap.last_missing - gap.first_missing + 1
        self.gaps = [*self.gaps[-LOOK_BACK_MAX_COUNT:], gap]
        log.error(
            _GAP_TEXT,
            self._labels["subscriber"],
            self._labels["subscription"],
            gap.first_missing,
            gap.last_missing,
            gap.publisher,
            gap.subject,
            sequence,
        )


def _number(record: Record, publisher: str) -> int | None:
    """The publisher's number of this record; None if another publisher wrote it."""
    try:
        envelope = from_message(record.headers, record.data)
    except InvalidEvent:
        return None
    text = envelope.extensions.get(attributes.SEQUENCE, "")
    return int(text) if envelope.source == publisher and attributes.is_sequence(text) else None
