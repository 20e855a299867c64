"""The bus on NATS JetStream servers: `Transport` of `tutti.bus.port`."""

from __future__ import annotations

import asyncio
import logging
import secrets
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Final

import msgspec

from tutti.bus.nats import protocol
from tutti.bus.nats.appender import Appender
from tutti.bus.nats.connection import Connection, Subscription
from tutti.bus.nats.durability import check_synced, check_version, learn_synced, learn_synced_again
from tutti.bus.nats.jetstream import (
    DELETE_FAILED,
    MESSAGE_NOT_FOUND,
    NANOSECONDS,
    NO_SUITABLE_PEERS,
    REPLICAS_NOT_SUPPORTED,
    SEQUENCE_NOT_FOUND,
    STREAM_NAME_IN_USE,
    JetStream,
    PlainReply,
    PurgeReply,
    ServerRefusal,
    StreamConfig,
    StreamReply,
    record_of,
)
from tutti.bus.nats.lane import MESSAGE_ID
from tutti.bus.nats.options import NatsOptions
from tutti.bus.nats.protocol import Message, ServerInfo
from tutti.bus.nats.queue import Queues
from tutti.bus.nats.reader import NatsReader, bounds
from tutti.bus.port import Entry, Listener, Reader, Record, Start, Status, Stored, StreamInfo, StreamSpec, Taken
from tutti.errors import BusError, Conflict, Denied, OutcomeUnknown
from tutti.limits import STATE_READS_MAX_COUNT
from tutti.model.subjects import Layout

log: Final = logging.getLogger("tutti.bus.nats")
_CLOSE_SECONDS: Final = 2.0


class NatsTransport:
    """`start` before use, `close` after; from one event loop. `locate` gives the servers' URLs of the moment, and
    `monitor` the monitoring URL, if they may come back elsewhere; else they are those of `options`.

    Work that must be durable is given to servers that sync only. This is looked at again at each reconnection to a
    server with another id: one that does not sync, or does not tell, is left, and the next one is tried."""

    def __init__(
        self,
        options: NatsOptions,
        layout: Layout,
        *,
        locate: Callable[[], Sequence[str]] | None = None,
        monitor: Callable[[], str] | None = None,
    ) -> None:
        self._locate = locate
        self._monitor = monitor
        self._options = options
        self._layout = layout
        self._synced: bool | None = None
        self._trusted = ""  # the id of the server of which this is known
        self._refused = ""  # the id of the last server that was left
        self._connection: Connection
        self._jetstream: JetStream
        self._appender: Appender
        self._queues: Queues
        self._started = False
        self._open: weakref.WeakSet[NatsReader | NatsListener] = weakref.WeakSet()

    def status(self) -> Status:
        if not self._started:
            return Status(connected=False, server="", detail="not started")
        connection = self._connection
        return Status(
            connected=connection.connected,
            server=connection.server,
            version=connection.info.version,
            synced=self._synced,
            reconnects=connection.reconnects,
            detail=connection.detail,
        )

    async def start(self) -> None:
        durable = self._options.durable
        self._connection = Connection(self._options, accept=self._accept, locate=self._locate)
        self._jetstream = JetStream(self._connection)
        self._appender = Appender(self._connection, self._jetstream)
        self._queues = Queues(self._connection, self._jetstream, self._layout.queue_stream)
        try:
            await self._connection.start()
            self._synced = await learn_synced(self._options, self._connection.info)
            if durable:
                check_synced(self._synced)
            self._trusted = self._connection.info.server_id
        except BaseException:
            await self._connection.close()
            raise
        self._appender.synced = self._synced
        self._started = True

    async def _accept(self, info: ServerInfo) -> None:
        """Raises to leave this server and try the next."""
        if self._options.durable:
            check_version(info)
        if not self._started or info.server_id == self._trusted:
            return
        try:
            synced = await self._learned_again(info)
        except BusError as error:
            if info.server_id != self._refused:
                self._refused = info.server_id
                log.warning("the server %s (%s:%d) is left: %s", info.server_name, info.host, info.port, error.what)
            raise
        self._trusted, self._refused = info.server_id, ""
        self._synced = self._appender.synced = synced

    async def _learned_again(self, info: ServerInfo) -> bool | None:
        options = self._options
        if self._monitor is not None:
            options = msgspec.structs.replace(options, monitor_url=self._monitor())
        try:
            synced = await learn_synced_again(options, info, self._synced)
        except BusError:
            if options.durable:
                raise
            return None  # then it is not known
        if options.durable:
            check_synced(synced)
        return synced

    async def close(self) -> None:
        if not self._started:
            return
        for open_ in tuple(self._open):
            await open_.close()
        await self._appender.drain(_CLOSE_SECONDS)
        await self._connection.close()

    # The log

    async def ensure_stream(self, spec: StreamSpec) -> StreamInfo:
        """A server with fewer nodes than `replicas` gets a stream with one copy; the answer says how many it has."""
        wanted = _config(spec)
        try:
            reply = await self._create_or_update(wanted)
        except ServerRefusal as refused:
            if wanted.num_replicas == 1 or refused.code not in {REPLICAS_NOT_SUPPORTED, NO_SUITABLE_PEERS}:
                raise
            log.warning("%s: %s; kept in one copy", spec.name, refused.what)
            reply = await self._create_or_update(msgspec.structs.replace(wanted, num_replicas=1))
        return self._learned(reply)

    async def _create_or_update(self, wanted: StreamConfig) -> StreamReply:
        try:
            return await self._jetstream.ask(f"STREAM.CREATE.{wanted.name}", wanted, StreamReply)
        except ServerRefusal as refused:
            if refused.code != STREAM_NAME_IN_USE:
                raise
        there = await self._jetstream.stream(wanted.name)
        if there is not None and there.config == wanted:
            return there
        return await self._jetstream.ask(f"STREAM.UPDATE.{wanted.name}", wanted, StreamReply)

    def _learned(self, reply: StreamReply) -> StreamInfo:
        config = reply.config
        self._appender.learn(
            config.name,
            config.subjects,
            atomic=config.allow_atomic,
            duplicate_window=config.duplicate_window / NANOSECONDS,
        )
        first, last = bounds(reply)
        return StreamInfo(
            name=config.name,
            first=first,
            last=last,
            messages=reply.state.messages,
            bytes=reply.state.bytes,
            subjects=config.subjects,
            replicas=config.num_replicas,
            leader=reply.cluster.leader if reply.cluster is not None else self._connection.info.server_name,
            created_at=reply.created.timestamp(),
        )

    async def stream_info(self, name: str) -> StreamInfo | None:
        reply = await self._jetstream.stream(name)
        return None if reply is None else self._learned(reply)

    async def stream_names(self) -> Sequence[str]:
        return await self._jetstream.stream_names()

    def append(
        self, subject: str, headers: Mapping[str, str], data: bytes, *, timeout: float, expected_last: int | None = None
    ) -> asyncio.Future[Stored]:
        return self._appender.append(subject, headers, data, timeout, expected_last)

    async def reader(self, stream: str, subjects: Sequence[str], start: Start) -> Reader:
        reader = NatsReader(self._connection, self._jetstream, stream, subjects)
        await reader.open(start)
        self._open.add(reader)
        return reader

    async def fetch(self, stream: str, sequence: int) -> Record | None:
        return await self._jetstream.message(stream, {"seq": sequence}) if sequence > 0 else None

    async def last(self, stream: str, subject: str, *, up_to: int | None = None) -> Record | None:
        record = await self._jetstream.message(stream, {"last_by_subj": subject})
        if record is None or up_to is None or record.sequence <= up_to:
            return record
        return await self._jetstream.last_up_to(stream, subject, up_to) if up_to > 0 else None

    async def purge(self, stream: str, *, below: int) -> int:
        # To the servers, "below 0" means everything; nothing is below 1, but the stream must be there.
        first = max(below, 1)
        reply = await self._jetstream.ask(f"STREAM.PURGE.{stream}", {"seq": first}, PurgeReply)
        return reply.purged

    async def remove(self, stream: str, sequence: int) -> bool:
        try:
            reply = await self._jetstream.ask(f"STREAM.MSG.DELETE.{stream}", {"seq": sequence}, PlainReply)
        except ServerRefusal as refused:
            if refused.code in {MESSAGE_NOT_FOUND, SEQUENCE_NOT_FOUND, DELETE_FAILED}:
                return False
            raise
        return reply.success

    # The state

    def _state_subject(self, key: str) -> str:
        return f"{self._layout.namespace}.state.{key}"

    async def state_get(self, key: str) -> Entry | None:
        record = await self._state_record(key)
        return None if record is None or not record.data else self._entry(record)

    async def _state_record(self, key: str) -> Record | None:
        return await self._jetstream.message(self._layout.state_stream, {"last_by_subj": self._state_subject(key)})

    def _entry(self, record: Record) -> Entry:
        key = record.subject[len(self._state_subject("")) :]
        return Entry(key, record.data, record.sequence, record.stored_at)

    async def state_list(self, prefix: str) -> Sequence[Entry]:
        """The leader is asked for the keys, then for each record: a follower may be behind what we wrote ourselves."""
        whole = [self._state_subject(prefix)] if prefix else []
        below = self._state_subject(f"{prefix}.>" if prefix else ">")
        subjects = [*whole, *await self._jetstream.subjects(self._layout.state_stream, below)]
        entries: list[Entry] = []
        for first in range(0, len(subjects), STATE_READS_MAX_COUNT):
            page = subjects[first : first + STATE_READS_MAX_COUNT]
            queries = (
                self._jetstream.message(self._layout.state_stream, {"last_by_subj": subject}) for subject in page
            )
            records = await asyncio.gather(*queries)
            entries.extend(self._entry(record) for record in records if record is not None and record.data)
        return sorted(entries, key=lambda entry: entry.key)

    async def state_put(self, key: str, value: bytes, *, expected: int, timeout: float = 5.0) -> int:
        """A deleted record stays as an empty one, which reads as absent and tells readers of the stream.

        When the answer is lost the call is repeated: the condition lets one copy pass, and the id that it carries tells
        our own from somebody else's. Only if the servers stay away is `OutcomeUnknown` raised."""
        mark = secrets.token_hex(12)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        condition = expected
        while True:
            left = max(0.0, deadline - loop.time())
            try:
                stored = await self.append(
                    self._state_subject(key), {MESSAGE_ID: mark}, value, timeout=left, expected_last=condition
                )
            except Conflict:
                record = await self._state_record(key) if expected == 0 else None
                if record is None or record.data or record.sequence == condition:
                    raise
                condition = record.sequence  # it was deleted: what is left of it is no record
            except OutcomeUnknown:
                if self._connection.closed or loop.time() >= deadline:
                    raise
            else:
                return stored.sequence if value else 0

    # The queues

    async def take(self, queue: str, *, max_messages: int = 1, wait: float | None = None) -> Sequence[Taken]:
        subjects = self._layout.queue(queue, ">")
        return await self._queues.take(queue, subjects, max_messages=max_messages, wait=wait)

    # The wire

    def emit(self, subject: str, headers: Mapping[str, str], data: bytes, *, reply: str = "") -> None:
        lines = protocol.header_lines(headers)
        if reply:
            protocol.checked_subject(reply)
        self._connection.emit(protocol.checked_subject(subject), reply, lines, data)

    async def listen(self, subject: str, *, group: str = "", buffer: int = 65_536) -> Listener:
        await self._connection.wait_up(self._options.request_timeout)
        listener = NatsListener(self._connection, subject, group, buffer)
        try:
            # The server has taken the subscription when it answers a ping behind it; a refusal comes before the answer.
            await self._connection.flush(timeout=self._options.request_timeout)
            listener.check()
        except BaseException:
            await listener.close()
            raise
        self._open.add(listener)
        return listener

    def inbox(self) -> str:
        return self._connection.inbox()


def _config(spec: StreamSpec) -> StreamConfig:
    return StreamConfig(
        name=spec.name,
        subjects=spec.subjects,
        retention="workqueue" if spec.queue else "limits",
        max_bytes=spec.max_bytes,
        max_msg_size=spec.max_message_bytes,
        max_msgs_per_subject=1 if spec.last_per_subject else -1,
        num_replicas=spec.replicas,
        duplicate_window=int(spec.duplicate_window * NANOSECONDS),
        allow_direct=True,
        allow_atomic=True,
    )


class NatsListener:
    """Messages of the wire, as they come."""

    def __init__(self, connection: Connection, subject: str, group: str, size: int) -> None:
        self.dropped = 0
        self._connection = connection
        self._size = size
        self._buffer: deque[Message] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._closed = False
        self._subscription: Subscription = connection.subscribe(subject, self._on_message, queue=group)

    def check(self) -> None:
        if self._subscription.denied:
            raise Denied(
                f"{self._connection.server}: {self._subscription.denied}",
                hint="the user needs the permission to subscribe",
            )

    def _on_message(self, message: Message) -> None:
        if len(self._buffer) >= self._size:
            self.dropped += 1
            return
        self._buffer.append(message)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def __aiter__(self) -> AsyncIterator[Record]:
        while True:
            while self._buffer:
                yield record_of(self._buffer.popleft())
            if self._closed:
                return
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    async def close(self) -> None:
        self._closed = True
        self._connection.unsubscribe(self._subscription)
        self._wake()
