"""The way into one stream: in order, pipelined, and in groups where that is faster. The rules of a lane:

1. First in, first out. A message leaves at once if few are unanswered; else it waits.
2. A server that syncs needs a disk write for every message, but only one for an atomic batch, which in turn costs about
   2 ms by itself. The lane measures what a message costs; when the messages that wait would take longer one by one
   than as a batch, they leave as a batch.
3. One batch at a time, and nothing behind it is stored until its outcome is known, because a rejected batch (one
   duplicate is enough) is sent again one by one, and nothing may overtake it. But the next full batch is *staged*
   meanwhile: all of it is sent but the last message, which commits it. If it must stand back, it is abandoned.
4. After a reconnect, and when a living connection gives no answer for `APPEND_STALL_SECONDS`, what is unanswered is
   sent again, in order. Only messages with an id, without a condition, within the duplicate window: a repetition of the
   others could store them twice, so their outcome is unknown.
5. A stream without a leader answers "nobody there": the message was not stored. It goes back to the front and is tried
   again until its time is up, unless a later one was stored meanwhile: then it is refused, for it must not come behind.
6. A copy may meet its first one on the way through the cluster ("duplicate in process"). It is asked again like one of
   rule 5, but nothing can overtake it: the first copy has its place, before everything that was sent behind it.
7. When time is up, a message that never left is refused; one that left without an answer has an unknown outcome.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from tutti.bus.nats import protocol
from tutti.bus.nats.jetstream import ATOMIC_DISABLED, DUPLICATE_IN_PROCESS, SYSTEM_UNAVAILABLE, ApiError, append_failure
from tutti.bus.nats.protocol import Message
from tutti.bus.port import Stored
from tutti.errors import OutcomeUnknown, Refused
from tutti.limits import (
    APPEND_BATCH_COST_SECONDS,
    APPEND_BATCH_MAX_BYTES,
    APPEND_BATCH_MAX_COUNT,
    APPEND_FLIGHT_MAX_BYTES,
    APPEND_FLIGHT_MAX_COUNT,
    APPEND_RETRY_SECONDS,
    APPEND_STALL_SECONDS,
    DUPLICATE_MARGIN_SECONDS,
)
from tutti.model.headers import fields_in

if TYPE_CHECKING:
    from tutti.bus.nats.appender import Appender

MESSAGE_ID: Final = "Nats-Msg-Id"
EXPECTED: Final = "Nats-Expected-Last-Subject-Sequence"
ID_LINE: Final = f"\r\n{MESSAGE_ID}: "
OVERHEAD_BYTES: Final = 256  # what framing and batch headers add to a message, generously
_BATCHED_SECONDS: Final = 0.000006  # what a message costs the server inside a batch (measured)
SYNCED_SECONDS: Final = 0.00012  # first guess for a message on a server that syncs (measured); corrected as acks come
UNSYNCED_SECONDS: Final = 0.000005  # the same on one that does not
_SLOW_SECONDS: Final = 0.00005  # below it the event loop is what takes the time, and a batch gains nothing
_SAMPLE_COUNT: Final = 8  # acks in a row that make a measurement
_PROBE_COUNT: Final = 64  # messages that may fly before the first measurement
_PROBE_BATCHES: Final = 64  # batches between two looks at what a single message costs


UNKNOWN_HINT: Final = "it may be stored: publish it again with the same event id, within the duplicate window"


class Ack(msgspec.Struct, frozen=True, gc=False):
    stream: str = ""
    seq: int = 0
    duplicate: bool = False
    error: ApiError | None = None


_decode_ack: Final = msgspec.json.Decoder(Ack).decode


class Append(msgspec.Struct, eq=False, gc=False):
    """One message on its way into the log. Nothing that it refers to leads back to it, so the collector need not look
    at thousands of them."""

    future: asyncio.Future[Stored]
    subject: str
    lines: str
    data: bytes
    deadline: float
    size: int
    repeatable: bool  # a second copy would be recognised
    alone: bool = False  # not, or no longer, to be put in a batch
    number: int = 0  # its place in the lane
    sent: bool = False  # and not known to be refused
    doubtful: bool = False  # an earlier copy of it left and was never answered
    placed: bool = False  # the servers said that an earlier copy is on its way
    first_sent: float = 0.0
    settled: bool = False  # its outcome was told

    @property
    def message_id(self) -> str:
        return fields_in(self.lines).get(MESSAGE_ID, "")


class Lane:
    """The way into one stream. `atomic`: the stream takes batches."""

    def __init__(self, owner: Appender, name: str, patterns: tuple[str, ...], *, atomic: bool) -> None:
        self.name = name
        self.patterns = patterns
        self.atomic = atomic
        self._owner = owner
        self._waiting: deque[Append] = deque()
        self._flying: dict[str, Append] = {}  # by token, in the order they left
        self._flying_bytes = 0
        self._batch: list[Append] = []
        self._batch_token = ""
        self._staged: list[Append] = []  # behind the batch; its last message has not left
        self._staged_name = ""
        self._bounced: list[Append] = []  # answered "nobody there"
        self._resume_at = 0.0
        self._flush_due = False
        self._next_token = 0
        self._put = 0
        self._heard = 0.0  # the last ack, or the first message after a silence
        self._sample_from = 0.0
        self._sampled = 0
        self._batches = 0
        self.cost = owner.first_cost()  # seconds a single message takes, as measured; 0: not known yet
        self._replies = owner.connection.own_inbox("a")
        self._replies_length = len(self._replies)
        owner.connection.subscribe(f"{self._replies}*", self._on_ack)

    def __len__(self) -> int:
        return len(self._waiting) + len(self._flying) + len(self._batch) + len(self._staged) + len(self._bounced)

    def all(self) -> Iterable[Append]:
        return (*self._batch, *self._staged, *self._bounced, *self._flying.values(), *self._waiting)

    def put(self, append: Append) -> None:
        self._put += 1
        append.number = self._put
        self._waiting.append(append)
        if self._flush_due:
            return
        if self._flying or self._batch_worth():
            self.flush_soon()
        else:
            self._flush()  # nothing to put it together with, so it need not wait for its turn

    def flush_soon(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            self._owner.loop.call_soon(self._flush)

    # Sending

    def _flush(self) -> None:
        self._flush_due = False
        owner = self._owner
        if not (self._waiting or self._staged) or self._bounced or not owner.connection.writable:
            return
        now = owner.loop.time()
        if now < self._resume_at:
            return
        frames: list[bytes] = []
        if self._staged and not self._batch:
            self._commit(now, frames)
        elif not self._batch:
            self._send_waiting(now, frames)
        if self._batch and not self._staged:
            self._stage(self._next_batch(APPEND_BATCH_MAX_COUNT), frames)
        if frames:
            owner.connection.write(b"".join(frames))

    def _send_waiting(self, now: float, frames: list[bytes]) -> None:
        worth = self._batch_worth()
        flight = worth or (APPEND_FLIGHT_MAX_COUNT if self.cost else _PROBE_COUNT)
        room = flight - len(self._flying)
        while self._waiting and room > 0 and self._flying_bytes < APPEND_FLIGHT_MAX_BYTES:
            if worth and not self._waiting[0].alone and (batch := self._next_batch(worth)):
                self._stage(batch, frames)
                self._commit(now, frames)
                return
            self._send_single(self._waiting.popleft(), now, frames)
            room -= 1

    def _batch_worth(self) -> int:
        """From how many messages on a batch is faster; 0: never."""
        if not self.atomic or self.cost < _SLOW_SECONDS:
            return 0
        return max(2, int(APPEND_BATCH_COST_SECONDS / (self.cost - _BATCHED_SECONDS)) + 1)

    def _send_single(self, append: Append, now: float, frames: list[bytes]) -> None:
        limit = self._owner.connection.info.max_payload
        if append.size - OVERHEAD_BYTES > limit:
            self._owner.fail(
                append,
                Refused(
                    f"{append.subject}: {append.size - OVERHEAD_BYTES} bytes, but the server takes {limit}",
                    hint="send less, or raise max_payload on every server",
                ),
            )
            return
        self._next_token += 1
        token = str(self._next_token)
        if not self._flying:
            self._heard = self._sample_from = now
            self._sampled = 0
        self._flying[token] = append
        self._flying_bytes += append.size
        append.first_sent = append.first_sent or now
        append.sent = True
        data = append.data
        head = protocol.before_data(append.subject, self._replies + token, append.lines, data)
        frames.extend((head, data, protocol.AFTER_DATA))

    def _next_batch(self, least: int) -> list[Append]:
        """Take a batch from what waits in front, if at least so many of it may be in one."""
        batch: list[Append] = []
        size = 0
        largest = self._owner.connection.info.max_payload - OVERHEAD_BYTES
        if len(self._waiting) < least:
            return []
        for append in self._waiting:
            size += append.size
            if append.alone or append.size > largest:
                break
            if size > APPEND_BATCH_MAX_BYTES or len(batch) == APPEND_BATCH_MAX_COUNT:
                break
            batch.append(append)
        if len(batch) < least:
            return []
        for _ in batch:
            self._waiting.popleft()
        return batch

    def _stage(self, batch: list[Append], frames: list[bytes]) -> None:
        """All but the last message leaves. The server keeps them aside, and forgets them if that never comes."""
        self._staged = batch
        self._staged_name = name = secrets.token_hex(8)
        for number, append in enumerate(batch[:-1], 1):
            data = append.data
            lines = f"{append.lines}Nats-Batch-Id: {name}\r\nNats-Batch-Sequence: {number}\r\n"
            frames.extend((protocol.before_data(append.subject, "", lines, data), data, protocol.AFTER_DATA))

    def _commit(self, now: float, frames: list[bytes]) -> None:
        """The last message of what is staged leaves: from here on all of it may be stored."""
        batch, self._staged = self._staged, []
        self._batch = batch
        self._batches += 1
        if self._batches % _PROBE_BATCHES == 0:
            self.cost = self._owner.first_cost()  # look again what single messages cost, if nobody told us
        self._heard = now
        for append in batch:
            append.first_sent = append.first_sent or now
            append.sent = True
        self._next_token += 1
        self._batch_token = f"b{self._next_token}"
        last = batch[-1]
        lines = (
            f"{last.lines}Nats-Batch-Id: {self._staged_name}\r\nNats-Batch-Sequence: {len(batch)}\r\n"
            "Nats-Batch-Commit: 1\r\n"
        )
        frames.append(protocol.publish(last.subject, self._replies + self._batch_token, lines, last.data))

    def _abandon(self) -> None:
        """What is staged waits again: something in front of it must be sent anew."""
        staged, self._staged = self._staged, []
        if not staged:
            return
        self._waiting.extendleft(reversed(staged))
        # A number that does not follow ends a batch at once; else the server would keep it until its time is over.
        lines = f"Nats-Batch-Id: {self._staged_name}\r\nNats-Batch-Sequence: {len(staged) + 1}\r\n"
        self._owner.connection.write(protocol.publish(staged[0].subject, "", lines, b""))

    # Answers

    def _on_ack(self, message: Message) -> None:
        append = self._flying.pop(message.subject[self._replies_length :], None)
        if append is None:
            if self._batch and message.subject[self._replies_length :] == self._batch_token:
                self._on_batch_ack(message)
            return
        self._flying_bytes -= append.size
        if message.head:
            self._bounce([append])
        else:
            ack = _decode_ack(message.data)
            if ack.error is None:
                self._owner.done(append, Stored(ack.stream, ack.seq, ack.duplicate))
                if self._bounced:
                    self._refuse_overtaken(append.number)
            elif ack.error.err_code == SYSTEM_UNAVAILABLE:
                self._bounce([append])
            elif ack.error.err_code == DUPLICATE_IN_PROCESS:
                append.doubtful = append.placed = append.alone = True
                self._bounce([append])
            else:
                self._owner.refused(append, append_failure(append.subject, ack.error), ack.stream)
            self._heard = self._owner.connection.received_at
            self._sampled += 1
            if self._sampled >= _SAMPLE_COUNT:
                self._measure()
        if self._bounced:
            self._requeue_bounced()
        if self._waiting and not self._flush_due:
            self.flush_soon()

    def _on_batch_ack(self, message: Message) -> None:
        batch, self._batch = self._batch, []
        error = None if message.head else _decode_ack(message.data).error
        if message.head or (error is not None and error.err_code == SYSTEM_UNAVAILABLE):
            self._bounce(batch)
        elif error is not None:
            # Nothing of it is stored. One by one, each message gets its own answer.
            self.atomic = self.atomic and error.err_code != ATOMIC_DISABLED
            self._one_by_one(batch)
        else:
            ack = _decode_ack(message.data)
            first = ack.seq - len(batch) + 1
            self._flush()  # before anybody hears of it: the servers need not wait for what is done then
            for number, append in enumerate(batch):
                self._owner.done(append, Stored(ack.stream, first + number))
            self._refuse_overtaken(batch[0].number)
        self._requeue_bounced()
        self.flush_soon()

    def _one_by_one(self, batch: list[Append]) -> None:
        self._abandon()
        for append in batch:
            append.sent = False
            append.alone = True
        self._waiting.extendleft(append for append in reversed(batch) if not append.settled)

    def deny(self, subject: str, text: str) -> None:
        """The server says, without naming a message, that we may not publish on this subject."""
        for token in [token for token, append in self._flying.items() if append.subject == subject]:
            append = self._flying.pop(token)
            self._flying_bytes -= append.size
            self._owner.fail(
                append, Refused(f"{subject}: {text}", hint="the user needs the permission to publish there")
            )
        if any(append.subject == subject for append in self._staged):
            for append in self._staged:
                append.alone = True
            self._abandon()
        if any(append.subject == subject for append in self._batch):
            batch, self._batch = self._batch, []  # it has a hole, so it can never be committed
            self._one_by_one(batch)
        self.flush_soon()

    def _measure(self) -> None:
        """The cost goes up slowly and comes down at once: a busy loop makes the server look slower, never faster."""
        now = self._owner.loop.time()
        sample = (now - self._sample_from) / self._sampled
        self.cost = min(sample, self.cost * 1.5) if self.cost else sample
        self._sample_from = now
        self._sampled = 0

    # A stream without a leader

    def _bounce(self, appends: list[Append]) -> None:
        if not self._owner.is_known(self):
            for append in appends:
                hint = "no stream takes this subject: ensure_stream first"
                self._owner.fail(append, Refused(f"{append.subject}: nobody stores it", hint=hint))
            return
        self._abandon()
        for append in appends:
            append.sent = False
        self._bounced.extend(appends)

    def _requeue_bounced(self) -> None:
        """Once nothing is under way that could be stored before them."""
        if not self._bounced or self._flying or self._batch:
            return
        self._waiting.extendleft(sorted(self._bounced, key=lambda append: append.number, reverse=True))
        self._bounced = []
        self._resume_at = self._owner.loop.time() + APPEND_RETRY_SECONDS
        self._owner.loop.call_later(APPEND_RETRY_SECONDS + 0.001, self.flush_soon)

    def _refuse_overtaken(self, by: int) -> None:
        """A later message is stored, or may be: those before it that bounced would come behind it."""
        for append in self._bounced:
            if append.number > by or append.placed:
                continue
            what = f"{append.subject}: the stream {self.name} had no leader, and a later message may have been stored"
            if append.doubtful:
                self._owner.fail(append, OutcomeUnknown(what, hint=UNKNOWN_HINT))
            else:
                self._owner.fail(
                    append, Refused(what, hint="publish it again if its place in the order does not matter")
                )
        self._bounced = [append for append in self._bounced if append.number > by or append.placed]

    # Lost answers

    def rewind(self, why: str) -> None:
        """Everything unanswered goes back to the front, except what must not be sent twice."""
        self._abandon()
        unanswered = [*self._batch, *self._flying.values()]
        self._batch = []
        self._flying.clear()
        self._flying_bytes = 0
        now = self._owner.loop.time()
        for append in unanswered:
            self._refuse_overtaken(append.number)
        again = self._bounced
        self._bounced = []
        for append in unanswered:
            if append.settled:
                continue
            if append.repeatable and now - append.first_sent < self._owner.duplicate_window - DUPLICATE_MARGIN_SECONDS:
                append.alone = append.doubtful = True
                again.append(append)
            else:
                self._owner.fail(append, OutcomeUnknown(f"{append.subject}: {why}", hint=UNKNOWN_HINT))
        self._waiting.extendleft(sorted(again, key=lambda append: append.number, reverse=True))

    def sweep(self, now: float) -> None:
        """End what is out of time; send again what a dead leader swallowed."""
        if self._flying and any(append.deadline <= now for append in self._flying.values()):
            for token in [token for token, append in self._flying.items() if append.deadline <= now]:
                append = self._flying.pop(token)
                self._flying_bytes -= append.size
                self._owner.expire(append)
        for line in (self._batch, self._bounced):
            for append in line:
                if append.deadline <= now:
                    self._owner.expire(append)
        if self._batch and all(append.settled for append in self._batch):
            self._batch = []  # nobody waits for it any more, nor for what a late answer says
        self._bounced = [append for append in self._bounced if append.deadline > now]
        if any(append.deadline <= now for append in self._staged):
            self._abandon()  # nothing of it can be stored, so it can be refused
        if any(append.deadline <= now for append in self._waiting):
            for append in self._waiting:
                if append.deadline <= now:
                    self._owner.expire(append)
            self._waiting = deque(append for append in self._waiting if append.deadline > now)
        if (
            (self._flying or self._batch)
            and now - self._heard > APPEND_STALL_SECONDS
            and self._owner.connection.connected
        ):
            self.rewind(f"the stream {self.name} does not answer")
        if self._waiting or self._staged:
            self.flush_soon()
