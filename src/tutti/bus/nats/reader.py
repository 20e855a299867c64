"""A cursor over a stream that survives lost connections, dead servers and forgotten consumers.

The server side of it is an ephemeral pull consumer without acknowledgements; it is cheap, and thrown away at the first
doubt: when its numbering has a gap, when it falls silent, when the connection goes or the server says that it is gone.
A new one then starts behind the last record that was handed out. So nothing is skipped and nothing comes twice.

`Gone` means that the log was purged (or lost, or made anew) beyond the reader's position while the reader lived. When
the sequence jumps, by a purge or because the records between do not match, the stream is asked where it begins now. One
answer is good for everything that had arrived by then; and a reader that was told "nothing more" and has kept asking
since cannot have missed anything, so following the end of a log costs no questions. Single records that were removed
are passed over, and in a stream that keeps the last record of each subject nothing is ever gone. A start before the
oldest record is not `Gone` either: it starts there. After `Gone` a reader goes on with what is left, if it is asked to.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import assert_never

import msgspec

from tutti.bus.nats import protocol
from tutti.bus.nats.connection import Connection, Subscription
from tutti.bus.nats.jetstream import (
    NANOSECONDS,
    PULL_EXPIRES,
    PULL_HEARTBEAT,
    ConsumerConfig,
    ConsumerReply,
    JetStream,
    Pull,
    ServerRefusal,
    StreamReply,
)
from tutti.bus.nats.patterns import disjoint, matches, parsed
from tutti.bus.nats.protocol import Message, head_of, headers_of
from tutti.bus.port import FromEarliest, FromLatest, FromSequence, FromTime, Record, Start
from tutti.errors import BusError, Denied, Gone, NoReply, Unreachable
from tutti.limits import (
    READER_HEARTBEAT_SECONDS,
    READER_INACTIVE_SECONDS,
    READER_PREFETCH_MAX_BYTES,
    READER_PREFETCH_MAX_COUNT,
)

_PREFETCH_MIN_COUNT = 64
_PREFETCH_BATCHES = 8
_RETRY_SECONDS = 0.1
_PASSING = (Unreachable, NoReply, ServerRefusal)  # a server that restarts, a cluster without a leader


class NatsReader:
    """Use `open` once, then `batch` from one task at a time."""

    def __init__(self, connection: Connection, jetstream: JetStream, stream: str, subjects: Sequence[str]) -> None:
        self._connection = connection
        self._jetstream = jetstream
        self._stream = stream
        self._subjects = () if ">" in subjects else disjoint(map(protocol.checked_pattern, subjects))
        # Where the servers must be asked for more than is wanted, what is wanted is looked at here again.
        self._wanted = [parsed(subject) for subject in subjects] if set(self._subjects) - set(subjects) else []
        self._position: int | None = None  # everything up to it was handed out, or does not concern us
        self._since: str = ""  # start time, while there is no position
        self._buffer: deque[Message] = deque()
        self._buffered_bytes = 0
        self._asked = 0  # records that the server may still send
        self._received = 0  # from this consumer
        self._taken = 0  # of those, handed out
        self._consumer = ""
        self._subscription: Subscription | None = None
        self._pull_subject = ""
        self._pull_reply = ""
        self._broken = ""  # why the consumer cannot be used any more
        self._heard = False
        self._idle = False  # a pull ran out without a record
        self._vetted = 0  # up to this number of the consumer, jumps are known to be harmless
        self._jump = False  # the next record is behind one that must be vetted
        self._dry = 0  # at this number of the consumer no pull was under way
        self._at_end = False  # the last record taken was the last there was
        self._replacing = False  # the stream keeps one record of each subject
        self._waiter: asyncio.Future[None] | None = None
        self._closed = False
        self._closing = asyncio.Event()

    async def open(self, start: Start) -> None:
        info = await self._stream_info()
        self._replacing = info.config.max_msgs_per_subject == 1
        first, last = bounds(info)
        match start:
            case FromEarliest():
                self._position = first - 1
            case FromLatest():
                self._position = last
            case FromSequence(sequence):
                self._position = max(sequence, first) - 1
            case FromTime(time):
                self._since = datetime.fromtimestamp(time, UTC).isoformat().replace("+00:00", "Z")
            case _:
                assert_never(start)
        self._connection.on_down.append(self._on_down)
        try:
            await self._create()
        except BaseException:
            self._connection.on_down.remove(self._on_down)
            raise

    async def batch(self, max_records: int, *, wait: float | None = None) -> Sequence[Record]:
        try:
            async with asyncio.timeout(wait):
                while True:
                    if self._closed:
                        raise BusError("the reader is closed", hint="open another one")
                    if self._buffer:
                        records = self._take(max_records)
                        self._ask(max_records)
                        if records:
                            return records
                        if self._jump:
                            await self._vet()
                    elif self._broken:
                        await self._recreate()
                    else:
                        await self._ask_and_wait(max_records)
        except TimeoutError:
            return ()

    async def horizon(self) -> int:
        if self._closed:
            raise BusError("the reader is closed", hint="open another one")
        if not self._buffer and not self._broken:
            await self._advance_when_idle()
        return self._position or 0

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._closing.set()
        self._connection.on_down.remove(self._on_down)
        self._drop_consumer()
        self._buffer.clear()
        self._wake()

    # Handing out

    def _take(self, max_records: int) -> list[Record]:
        """Stops at a gap in the consumer's numbering, which breaks it, and before a jump that must be vetted."""
        records: list[Record] = []
        append = records.append
        buffer = self._buffer
        position = self._position
        taken = self._taken
        at_end = self._at_end
        size = 0
        for _ in range(min(max_records, len(buffer))):
            message = buffer[0]
            parts = message.reply.split(".")
            first = 5 if len(parts) == 9 else 7
            sequence = int(parts[first])
            if int(parts[first + 1]) != taken + 1:
                self._break("its numbering has a gap")
                buffer.clear()
                size = self._buffered_bytes
                break
            if sequence - 1 != position and taken >= self._vetted and not (at_end and taken != self._dry):
                self._jump = True
                break
            buffer.popleft()
            taken += 1
            position = sequence
            at_end = parts[first + 3] == "0"
            size += len(message.data) + len(message.head)
            if self._wanted and not self._is_wanted(message.subject):
                continue
            append(
                Record(
                    message.subject,
                    headers_of(message.head),
                    message.data,
                    sequence,
                    int(parts[first + 2]) / NANOSECONDS,
                )
            )
        self._taken = taken
        self._at_end = at_end
        self._position = position
        self._buffered_bytes -= size
        return records

    def _is_wanted(self, subject: str) -> bool:
        tokens = parsed(subject)
        return any(matches(pattern, tokens) for pattern in self._wanted)

    async def _vet(self) -> None:
        """The next record is not the next sequence: do those between not concern us, or were they purged?"""
        self._jump = False
        received = self._received
        try:
            info = await self._stream_info()
        except _PASSING:
            await asyncio.sleep(_RETRY_SECONDS)
            return
        self._vetted = received
        self._check_position(info)

    def _check_position(self, info: StreamReply) -> None:
        position = self._position
        if position is None:
            return
        first, last = bounds(info)
        if first > position + 1 and not self._replacing:
            raise Gone(
                f"{self._stream}: the records {position + 1} to {first - 1} were removed before they were read",
                hint="purge only what every reader has read; reading again goes on with the oldest record left",
            )
        if last < position:
            raise Gone(
                f"{self._stream}: the log ends at {last}, but {position} was read already",
                hint="the stream was made anew, or its server lost data: reading again starts with its oldest record",
            )

    # Asking

    def _ask(self, max_records: int) -> None:
        """Keep two pulls under way, each for several of the caller's batches: few requests, and none waits for one."""
        if self._broken or self._closed:
            return
        half = min(READER_PREFETCH_MAX_COUNT // 2, max(_PREFETCH_MIN_COUNT, _PREFETCH_BATCHES * max_records))
        most = max(READER_PREFETCH_MAX_BYTES // 2, self._connection.info.max_payload + 65_536)
        while self._asked + len(self._buffer) <= half and self._buffered_bytes < most:
            pull = Pull(half, PULL_EXPIRES, PULL_HEARTBEAT, most)
            data = msgspec.json.encode(pull)
            self._connection.write(protocol.publish(self._pull_subject, self._pull_reply, "", data))
            self._asked += half

    async def _ask_and_wait(self, max_records: int) -> None:
        if self._idle and self._subjects:
            await self._advance_when_idle()
            if self._buffer or self._broken:
                return
        self._ask(max_records)
        self._heard = False
        self._waiter = asyncio.get_running_loop().create_future()
        # Own time-out, not asyncio's: a timer that is re-armed for every wait would cost more than reading.
        timer = asyncio.get_running_loop().call_later(READER_HEARTBEAT_SECONDS * 2.5, self._on_silence)
        try:
            await self._waiter
        finally:
            self._waiter = None
            timer.cancel()

    def _on_silence(self) -> None:
        if not self._heard:
            self._break("it fell silent")
        self._wake()

    async def _advance_when_idle(self) -> None:
        """With nothing pending, nothing up to the stream's end concerns us: a purge up to there is no loss."""
        self._idle = False
        consumer = self._consumer
        try:
            _, last = bounds(await self._stream_info())
            reply = await self._jetstream.ask(f"CONSUMER.INFO.{self._stream}.{self._consumer}", None, ConsumerReply)
        except _PASSING as problem:
            self._break(problem.what)
            return
        if consumer == self._consumer and reply.num_pending == 0 and reply.delivered.consumer_seq == self._taken:
            self._position = max(self._position or 0, last)

    # What arrives

    def _on_message(self, message: Message) -> None:
        self._heard = True
        if message.reply:
            self._buffer.append(message)
            self._received += 1
            self._asked -= 1
            if self._asked <= 0:
                self._dry = self._received
            self._buffered_bytes += len(message.data) + len(message.head)
            if self._waiter is not None:
                self._wake()
        else:
            self._on_status(message)

    def _on_status(self, message: Message) -> None:
        head = head_of(message.head)
        match head.status:
            case 100:
                if int(head.fields.get("Nats-Last-Consumer", "0")) > self._received:
                    self._break("records were lost on the way")
                    self._wake()
                return
            case 404 | 408:
                self._idle = True
                self._asked -= int(head.fields.get("Nats-Pending-Messages", self._asked))
            case 409 if "Nats-Pending-Messages" in head.fields and "maxbytes" in head.description.lower():
                self._asked -= int(head.fields["Nats-Pending-Messages"])
            case _:
                self._break(head.description or f"status {head.status}")
        if self._asked <= 0:
            self._dry = self._received
        self._wake()

    def _on_down(self) -> None:
        self._break("the connection was lost")
        self._wake()

    def _break(self, why: str) -> None:
        self._broken = self._broken or why

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # The consumer

    async def _recreate(self) -> None:
        """Until there is a new one, or the reader is closed meanwhile."""
        while not self._closed:
            self._drop_consumer()
            try:
                await self._until_up()
                if self._closing.is_set():
                    return
                info = await self._stream_info()
                try:
                    self._check_position(info)
                except Gone:
                    self._position = bounds(info)[0] - 1
                    raise
                await self._create()
            except (Gone, Denied):
                raise
            except _PASSING:
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                break
        if self._closed:
            self._drop_consumer()

    async def _until_up(self) -> None:
        """Returns when there is a connection, or when the reader is closed."""
        if self._connection.connected:
            return
        up = asyncio.ensure_future(self._connection.wait_up(60.0))
        closing = asyncio.ensure_future(self._closing.wait())
        try:
            await asyncio.wait((up, closing), return_when=asyncio.FIRST_COMPLETED)
            if up.done():
                up.result()
        finally:
            up.cancel()
            closing.cancel()

    async def _create(self) -> None:
        name = f"tutti-{secrets.token_hex(8)}"
        replies = self._connection.own_inbox("c")
        self._consumer = name
        self._received = self._taken = self._asked = self._dry = 0
        self._vetted = sys.maxsize if self._replacing or self._position is None else 0
        self._at_end = self._jump = False
        self._broken = ""
        self._idle = False
        self._pull_subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{name}"
        self._pull_reply = f"{replies}p"
        self._subscription = self._connection.subscribe(self._pull_reply, self._on_message)
        config = ConsumerConfig(
            name=name,
            deliver_policy="by_start_time" if self._position is None else "by_start_sequence",
            opt_start_seq=0 if self._position is None else self._position + 1,
            opt_start_time=self._since if self._position is None else "",
            ack_policy="none",
            max_deliver=1,
            filter_subjects=self._subjects,
            inactive_threshold=int(READER_INACTIVE_SECONDS * NANOSECONDS),
            mem_storage=True,
            num_replicas=1,
        )
        try:
            await self._jetstream.create_consumer(self._stream, config)
        except BaseException:
            self._drop_consumer()
            self._break("it could not be made")
            raise

    def _drop_consumer(self) -> None:
        if self._subscription is None:
            return
        self._connection.unsubscribe(self._subscription)
        self._subscription = None
        # Nobody waits for the answer: a consumer that stays behind is forgotten by the server itself.
        self._connection.emit(f"$JS.API.CONSUMER.DELETE.{self._stream}.{self._consumer}", "", "", b"")

    async def _stream_info(self) -> StreamReply:
        info = await self._jetstream.stream(self._stream)
        if info is None:
            raise Gone(f"there is no stream {self._stream}", hint="was it deleted? ensure_stream makes it")
        return info


def bounds(info: StreamReply) -> tuple[int, int]:
    """The first sequence that is there, or will be, and the last one ever given."""
    state = info.state
    return (state.first_seq if state.messages else state.last_seq + 1), state.last_seq
