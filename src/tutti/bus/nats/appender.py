"""Appending to streams: every lane, the budget in bytes, the clock, and what becomes of each message.

The rules of the road are in `lane`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from tutti.bus.nats import protocol
from tutti.bus.nats.connection import Connection
from tutti.bus.nats.jetstream import JetStream
from tutti.bus.nats.lane import (
    EXPECTED,
    ID_LINE,
    MESSAGE_ID,
    OVERHEAD_BYTES,
    SYNCED_SECONDS,
    UNKNOWN_HINT,
    UNSYNCED_SECONDS,
    Append,
    Lane,
)
from tutti.bus.nats.patterns import matches, parsed
from tutti.bus.port import Stored
from tutti.errors import BusError, Conflict, OutcomeUnknown, Refused
from tutti.limits import APPEND_QUEUE_MAX_BYTES, APPEND_SUBJECTS_MAX_COUNT, DUPLICATE_WINDOW_SECONDS
from tutti.model.headers import HeaderText

log: Final = logging.getLogger("tutti.bus.nats")


class Appender:
    """Every lane, the budget in bytes and the clock."""

    def __init__(self, connection: Connection, jetstream: JetStream) -> None:
        self.connection = connection
        self._jetstream = jetstream
        self._explanations: set[asyncio.Task[None]] = set()
        self.loop = asyncio.get_running_loop()
        self.duplicate_window = DUPLICATE_WINDOW_SECONDS
        self.synced: bool | None = None
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._closed = False
        self._lanes: dict[str, Lane] = {}
        self._anywhere = Lane(self, "", (), atomic=False)  # subjects whose stream we do not know
        self._by_subject: dict[str, Lane] = {}
        connection.on_up.append(self._on_up)
        connection.on_down.append(self._on_down)
        connection.on_writable.append(self._flush_all)
        connection.on_publish_denied.append(self._on_denied)

    def first_cost(self) -> float:
        match self.synced:
            case True:
                return SYNCED_SECONDS
            case False:
                return UNSYNCED_SECONDS
            case None:
                return 0.0

    def learn(self, name: str, subjects: tuple[str, ...], *, atomic: bool, duplicate_window: float) -> None:
        """A stream that is there, and what it takes."""
        if 0 < duplicate_window < self.duplicate_window:
            self.duplicate_window = duplicate_window
        lane = self._lanes.get(name)
        if lane is None:
            self._lanes[name] = Lane(self, name, subjects, atomic=atomic)
        else:
            lane.patterns = subjects
            lane.atomic = atomic
        self._by_subject.clear()

    def is_known(self, lane: Lane) -> bool:
        return lane is not self._anywhere

    def append(
        self, subject: str, headers: Mapping[str, str], data: bytes, timeout: float, expected_last: int | None
    ) -> asyncio.Future[Stored]:
        future: asyncio.Future[Stored] = asyncio.Future(loop=self.loop)
        try:
            lane = self._by_subject.get(subject)
            if lane is None:
                lane = self._lane_of(subject)
            lines = headers.text if type(headers) is HeaderText else protocol.header_lines(headers)
        except Refused as refused:
            future.set_exception(refused)
            return future
        deadline = self.loop.time() + timeout
        repeatable = ID_LINE in lines or lines.startswith(ID_LINE[2:])
        append = Append(future, subject, lines, data, deadline, len(lines) + len(data) + OVERHEAD_BYTES, repeatable)
        if expected_last is not None:
            # The servers look at the condition before they look for a duplicate: a repetition would be a conflict.
            append.lines += f"{EXPECTED}: {expected_last}\r\n"
            append.repeatable = False
            append.alone = True
        if self._closed or self._bytes + append.size > APPEND_QUEUE_MAX_BYTES:
            future.set_exception(self._full() if not self._closed else _closed(subject))
            return future
        self._bytes += append.size
        if self._timer is None or deadline < self._timer_at:
            self._arm(min(deadline, self.loop.time() + 1.0))
        lane.put(append)
        return future

    def _full(self) -> Refused:
        return Refused(
            f"{self._bytes} bytes wait for the log already ({APPEND_QUEUE_MAX_BYTES} at most)",
            hint="await publishes before making more, or publish more slowly",
        )

    def _lane_of(self, subject: str) -> Lane:
        protocol.checked_subject(subject)
        tokens = parsed(subject)
        found = self._anywhere
        for lane in self._lanes.values():
            if any(matches(parsed(pattern), tokens) for pattern in lane.patterns):
                found = lane
                break
        if len(self._by_subject) >= APPEND_SUBJECTS_MAX_COUNT:
            self._by_subject.clear()
        self._by_subject[subject] = found
        return found

    # Outcomes

    def done(self, append: Append, stored: Stored) -> None:
        if append.settled:
            return
        append.settled = True
        self._bytes -= append.size
        if not append.future.done():
            append.future.set_result(stored)

    def fail(self, append: Append, error: BusError) -> None:
        if append.settled:
            return
        append.settled = True
        self._bytes -= append.size
        if not append.future.done():
            append.future.set_exception(error)

    def refused(self, append: Append, error: BusError, stream: str) -> None:
        """A repeated conditional append meets what its first copy stored: that is no conflict, if it is still there."""
        if isinstance(error, Conflict) and append.message_id and stream and not append.settled:
            task = self.loop.create_task(self._explain(append, error, stream), name="tutti-nats-conflict")
            self._explanations.add(task)
            task.add_done_callback(self._explanations.discard)
        else:
            self.fail(append, error)

    async def _explain(self, append: Append, conflict: BusError, stream: str) -> None:
        try:
            last = await self._jetstream.message(stream, {"last_by_subj": append.subject})
        except BusError as error:
            log.info("%s: a conflict could not be looked into: %s", append.subject, error.what)
            last = None
        if last is not None and last.headers.get(MESSAGE_ID) == append.message_id:
            self.done(append, Stored(stream, last.sequence, duplicate=True))
        else:
            self.fail(append, conflict)

    def expire(self, append: Append) -> None:
        where = "" if self.connection.connected else f" (not connected: {self.connection.detail})"
        if append.sent or append.doubtful:
            what = f"{append.subject}: the log did not answer in time{where}"
            self.fail(append, OutcomeUnknown(what, hint=UNKNOWN_HINT))
        else:
            what = f"{append.subject}: not stored, it could not be sent in time{where}"
            self.fail(append, Refused(what, hint="publish it again when the servers are back"))

    # Events of the connection

    def _every_lane(self) -> tuple[Lane, ...]:
        return (self._anywhere, *self._lanes.values())

    def _on_up(self) -> None:
        self._flush_all()

    def _on_down(self) -> None:
        for lane in self._every_lane():
            lane.rewind("the connection was lost before the log answered")

    def _flush_all(self) -> None:
        for lane in self._every_lane():
            lane.flush_soon()

    def _on_denied(self, subject: str, text: str) -> None:
        for lane in self._every_lane():
            lane.deny(subject, text)

    # Time

    def _arm(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self.loop.call_at(at, self._sweep)

    def _sweep(self) -> None:
        self._timer = None
        now = self.loop.time()
        for lane in self._every_lane():
            lane.sweep(now)
        deadlines = [append.deadline for lane in self._every_lane() for append in lane.all()]
        if deadlines:
            self._arm(min(*deadlines, now + 1.0))

    async def drain(self, timeout: float) -> None:
        """Wait for what is under way, then end the rest."""
        self._closed = True
        futures = [append.future for lane in self._every_lane() for append in lane.all() if not append.future.done()]
        if futures and self.connection.connected:
            await asyncio.wait(futures, timeout=timeout)
        for lane in self._every_lane():
            lane.sweep(float("inf"))
        if self._timer is not None:
            self._timer.cancel()
        for task in self._explanations:
            task.cancel()
        await asyncio.gather(*self._explanations, return_exceptions=True)


def _closed(subject: str) -> Refused:
    return Refused(f"{subject}: the bus is closed", hint="publish before closing it")
