"""Statuses on their way from the journal's outbox to the log.

1. What is in the outbox stays there until the log has acknowledged it. Whoever shares the journal may send it.
2. A status is appended under the condition that its transaction's subject has not changed since it was looked at: of
   two who send at once, one is refused, finds the other's record, and takes that for its own.
3. Statuses of one transaction go one after another, those of different ones side by side, in the order of queueing.
4. A transaction's last word is committed or aborted, once. If the log says the opposite of the journal, nothing is
   sent: somebody changed the log, and people must know.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from tutti.bus.port import Record, Stored, Transport
from tutti.errors import BusError, Conflict, JournalError
from tutti.journal import Journal, QueuedStatus, Sent
from tutti.limits import (
    STATUS_APPEND_SECONDS,
    STATUS_BACK_STEPS_COUNT,
    STATUS_CLOSE_SECONDS,
    STATUS_RELAY_SECONDS,
    STATUS_RETRY_MAX_SECONDS,
    STATUS_RETRY_SECONDS,
)
from tutti.model.decoding import UNDECODABLE
from tutti.model.status import TransactionStatus
from tutti.model.subjects import Layout
from tutti.runtime.clock import Clock, Timer
from tutti.runtime.transactions.log import transaction_streams

log = logging.getLogger("tutti.transactions")

_statuses: Final = msgspec.json.Decoder(TransactionStatus)
_encode: Final = msgspec.json.Encoder().encode


def read_status(record: Record) -> TransactionStatus | None:
    """None if somebody else wrote it."""
    try:
        return _statuses.decode(record.data)
    except UNDECODABLE:
        return None


class StatusRelay:
    """`report`: something is wrong that health must show. `failed` hears of a task of ours that ended by a bug."""

    def __init__(
        self,
        transport: Transport,
        layout: Layout,
        journal: Journal,
        *,
        clock: Clock,
        report: Callable[[str], None],
        failed: Callable[[asyncio.Task[None]], None],
    ) -> None:
        self._transport = transport
        self._layout = layout
        self._journal = journal
        self._clock = clock
        self._report = report
        self._failed = failed
        self._wanted = asyncio.Event()
        self._sending = asyncio.Lock()
        self._timer: Timer | None = None
        self._task: asyncio.Task[None] | None = None

    # Life

    async def start(self) -> None:
        """Makes sure that the log of statuses is there, and sends what is left over from earlier."""
        await self._ensure_streams()
        self._wanted.set()
        self._task = asyncio.get_running_loop().create_task(self._work())
        self._task.add_done_callback(self._ended)

    def relay(self) -> None:
        """A status was queued: send it soon. Many calls are one."""
        self._wanted.set()

    @property
    def idle(self) -> bool:
        """What was queued is sent, or its next try is a matter of time."""
        return not self._wanted.is_set() and not self._sending.locked()

    async def close(self) -> None:
        """Tries once more for a moment; what is left then is sent by others, or after the next start."""
        if self._task is None:
            return
        task, self._task = self._task, None
        with contextlib.suppress(BusError, JournalError, TimeoutError):
            async with asyncio.timeout(STATUS_CLOSE_SECONDS):
                await self.send()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        self._cancel_timer()

    async def _ensure_streams(self) -> None:
        known = await self._transport.stream_info(self._layout.state_stream)
        for spec in transaction_streams(self._layout, known.replicas if known is not None else 1):
            if await self._transport.stream_info(spec.name) is None:
                await self._transport.ensure_stream(spec)

    async def _work(self) -> None:
        pause = STATUS_RETRY_SECONDS
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                await self.send()
            except (BusError, JournalError) as error:
                log.warning("statuses are not sent yet: %s", error.what)
                await self._sleep(pause * (0.5 + random.random()))
                pause = min(pause * 2, STATUS_RETRY_MAX_SECONDS)
                with contextlib.suppress(BusError):
                    await self._ensure_streams()
                self._wanted.set()
            else:
                pause = STATUS_RETRY_SECONDS
                self._wake_in(STATUS_RELAY_SECONDS)

    async def _sleep(self, seconds: float) -> None:
        over = asyncio.Event()
        self._cancel_timer()
        self._timer = self._clock.call_at(self._clock.monotonic() + seconds, over.set)
        await over.wait()

    def _wake_in(self, seconds: float) -> None:
        self._cancel_timer()
        self._timer = self._clock.call_at(self._clock.monotonic() + seconds, self._wanted.set)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._failed(task)

    # Sending

    async def send(self) -> int:
        """Send all that is unsent now; tells how many. Raises if the bus or the journal is away: what was acknowledged
        before that is marked."""
        async with self._sending:
            after, count = 0, 0
            while page := await self._journal.unsent(after=after):
                after = page[-1].position
                last: dict[str, int] = {}  # where the newest status of a transaction of this page stands
                for side_by_side in _rounds(page):
                    count += await self._send_round(side_by_side, last)
            return count

    async def _send_round(self, queued: Sequence[QueuedStatus], last: dict[str, int]) -> int:
        """One status of each transaction. All are under way before the first answer is waited for."""
        appends = [self._append(one.status, last.get(one.status.tx, 0)) for one in queued]
        outcomes = await asyncio.gather(*appends, return_exceptions=True)
        sent: list[Sent] = []
        failure: BaseException | None = None
        for one, outcome in zip(queued, outcomes, strict=True):
            try:
                match outcome:
                    case Conflict():
                        sequence = await self._settle(one.status, outcome)
                    case BaseException():
                        raise outcome
                    case _:
                        sequence = outcome.sequence
            except BusError as error:
                failure = failure or error
                continue
            if sequence:
                last[one.status.tx] = sequence
                sent.append(Sent(one.position, sequence))
        if sent:
            await self._journal.mark_sent(sent)
        if failure is not None:
            raise failure
        return len(sent)

    def _append(self, status: TransactionStatus, expected_last: int) -> asyncio.Future[Stored]:
        return self._transport.append(
            self._layout.status(status.tx),
            {},
            _encode(status),
            timeout=STATUS_APPEND_SECONDS,
            expected_last=expected_last,
        )

    async def _settle(self, status: TransactionStatus, refusal: Conflict) -> int:
        """There are statuses of this transaction already: find this one among them, or put it behind them. Returns its
        sequence; 0 if the log contradicts the journal."""
        history = await self._history(status.tx)
        for sequence, known in history:
            if known is not None and (known.status, known.closing) == (status.status, status.closing):
                return sequence
        if not history:
            raise refusal  # a copy of the log that is behind: it must be asked again
        newest, known = history[0]
        if known is not None and known.status != "work_ended":
            if status.status == "work_ended":
                return newest  # it is over: nobody needs to know any more that the work had ended
            self._report(
                f"transaction {status.tx} is {status.status} in the journal and {known.status} in the log, "
                f"at {newest} of {self._layout.status_stream}: the log was changed"
            )
            return 0
        return (await self._append(status, newest)).sequence

    async def _history(self, tx: str) -> list[tuple[int, TransactionStatus | None]]:
        """What stands on the transaction's subject, newest first."""
        found: list[tuple[int, TransactionStatus | None]] = []
        stream, subject = self._layout.status_stream, self._layout.status(tx)
        record = await self._transport.last(stream, subject)
        while record is not None and len(found) < STATUS_BACK_STEPS_COUNT:
            found.append((record.sequence, read_status(record)))
            before = record.sequence - 1
            record = await self._transport.last(stream, subject, up_to=before) if before else None
        return found


def _rounds(page: Sequence[QueuedStatus]) -> list[list[QueuedStatus]]:
    """The statuses of a page, in rounds in which each transaction occurs once; their order within it stays."""
    rounds: list[list[QueuedStatus]] = []
    seen: dict[str, int] = {}
    for queued in page:
        number = seen.get(queued.status.tx, 0)
        seen[queued.status.tx] = number + 1
        if number == len(rounds):
            rounds.append([])
        rounds[number].append(queued)
    return rounds
