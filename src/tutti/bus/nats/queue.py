"""Queues: a stream with work-queue retention and one durable consumer for each queue.

A message that is settled is removed from the stream; one whose taker falls silent for `NatsOptions.queue_silence` is
offered again. Settling waits for the server's answer, so it is as durable as the server's own state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from tutti.bus.nats import protocol
from tutti.bus.nats.connection import Connection, Disconnected, NoResponders
from tutti.bus.nats.jetstream import NANOSECONDS, ConsumerConfig, JetStream, Pull, ServerRefusal, delivery_of
from tutti.bus.nats.protocol import Message, head_of, headers_of
from tutti.bus.port import Record
from tutti.errors import BusError, NoReply, OutcomeUnknown, Unreachable, invariant
from tutti.limits import APPEND_RETRY_SECONDS, READER_PULL_SECONDS

_FLIGHT_MAX_COUNT = 65_536  # taken and unsettled messages of one queue, over all takers


class NatsTaken:
    """A message taken from a queue."""

    __slots__ = ("_connection", "_record", "attempt")

    def __init__(self, connection: Connection, record: Record, attempt: int) -> None:
        self._connection = connection
        self._record = record
        self.attempt = attempt

    @property
    def record(self) -> Record:
        return self._record

    async def settle(self) -> None:
        await self._tell(b"+ACK")

    async def hand_back(self, *, delay: float = 0.0) -> None:
        word = msgspec.json.encode({"delay": int(delay * NANOSECONDS)})
        await self._tell(b"-NAK " + word if delay > 0 else b"-NAK")

    async def working(self) -> None:
        await self._tell(b"+WPI")

    async def _tell(self, word: bytes) -> None:
        """Until the server answers: an acknowledgement may be repeated."""
        connection = self._connection
        loop = asyncio.get_running_loop()
        deadline = loop.time() + connection.options.request_timeout
        while (left := deadline - loop.time()) > 0:
            try:
                await connection.wait_up(left)
                await connection.request(self._record.reply, word, timeout=min(left, 2.0))
            except (Disconnected, NoReply):
                await asyncio.sleep(min(APPEND_RETRY_SECONDS, max(0.0, deadline - loop.time())))
            except Unreachable:
                if connection.closed:
                    raise
                break
            else:
                return
        raise OutcomeUnknown(
            f"{self._record.subject}: the queue did not answer {word.decode()}",
            hint="the message may be offered again: handle it as a repetition",
        )


class Queues:
    def __init__(self, connection: Connection, jetstream: JetStream, stream: str) -> None:
        self._connection = connection
        self._jetstream = jetstream
        self._stream = stream
        self._ready: set[str] = set()

    async def take(self, queue: str, subjects: str, *, max_messages: int, wait: float | None) -> Sequence[NatsTaken]:
        """First what is there, without waiting; else the next one that comes."""
        loop = asyncio.get_running_loop()
        deadline = float("inf") if wait is None else loop.time() + wait
        while True:
            left = deadline - loop.time()
            try:
                if queue not in self._ready:
                    await self._make(queue, subjects)
                taken = await self._pull(queue, Pull(max_messages, no_wait=True), _PATIENCE_SECONDS)
                if not taken and left > 0:
                    expires = min(left, READER_PULL_SECONDS)
                    pull = Pull(1, expires=max(1_000_000, int(expires * NANOSECONDS)))
                    taken = await self._pull(queue, pull, expires + _PATIENCE_SECONDS)
            except (Unreachable, NoReply) as problem:
                if self._connection.closed:
                    raise
                if isinstance(problem, NoResponders):
                    self._ready.discard(queue)
                if loop.time() + APPEND_RETRY_SECONDS >= deadline:
                    return ()
                await asyncio.sleep(APPEND_RETRY_SECONDS)
                continue
            if taken or loop.time() >= deadline:
                return taken

    async def _make(self, queue: str, subjects: str) -> None:
        name = f"queue-{queue}"
        config = ConsumerConfig(
            name=name,
            durable_name=name,
            deliver_policy="all",
            ack_policy="explicit",
            ack_wait=int(self._connection.options.queue_silence * NANOSECONDS),
            max_deliver=-1,
            max_ack_pending=_FLIGHT_MAX_COUNT,
            filter_subjects=(subjects,),
        )
        try:
            await self._jetstream.create_consumer(self._stream, config)
        except ServerRefusal as refused:
            raise BusError(refused.what, hint="ensure_stream the queues' stream first") from None
        self._ready.add(queue)

    async def _pull(self, queue: str, pull: Pull, patience: float) -> list[NatsTaken]:
        """One request. If its caller is cancelled, what came for it is handed back."""
        connection = self._connection
        await connection.wait_up(patience)
        answers = _Answers(connection, pull.batch)
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.queue-{queue}"
        try:
            connection.write(protocol.publish(subject, answers.inbox, "", msgspec.json.encode(pull)))
            async with asyncio.timeout(patience):
                await answers.ended
        except TimeoutError:
            pass  # the request is lost; what came before counts
        except asyncio.CancelledError:
            for message in answers.messages:
                connection.emit(message.reply, "", "", b"-NAK")
            raise
        finally:
            answers.close()
        return [_taken(connection, message) for message in answers.messages]


_PATIENCE_SECONDS = 2.0


class _Answers:
    """What comes for one pull, until it is complete or the server ends it."""

    def __init__(self, connection: Connection, count: int) -> None:
        self._connection = connection
        self._count = count
        self.messages: list[Message] = []
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.inbox = connection.own_inbox("q") + "p"
        self._subscription = connection.subscribe(self.inbox, self._on_message)
        connection.on_down.append(self._on_down)

    def close(self) -> None:
        self._connection.unsubscribe(self._subscription)
        self._connection.on_down.remove(self._on_down)
        self.ended.cancel()

    def _on_message(self, message: Message) -> None:
        if message.reply:
            self.messages.append(message)
            if len(self.messages) >= self._count:
                self._end(None)
            return
        match head_of(message.head).status:
            case 100:
                pass
            case 503:
                self._end(NoResponders("the queue's consumer is gone", hint="it is made again"))
            case _:
                self._end(None)

    def _on_down(self) -> None:
        if self.messages:
            self._end(None)
        else:
            self._end(Disconnected("the connection was lost", hint="it is tried again for ever"))

    def _end(self, problem: BusError | None) -> None:
        if self.ended.done():
            return
        if problem is None:
            self.ended.set_result(None)
        else:
            self.ended.set_exception(problem)


def _taken(connection: Connection, message: Message) -> NatsTaken:
    delivery = delivery_of(message.reply)
    invariant(delivery is not None, f"a queue's message without its place: {message.reply!r}")
    assert delivery is not None  # noqa: S101  narrows the type: checked above
    record = Record(
        message.subject,
        headers_of(message.head),
        message.data,
        delivery.stream_sequence,
        delivery.time / NANOSECONDS,
        message.reply,
    )
    return NatsTaken(connection, record, delivery.attempt)
