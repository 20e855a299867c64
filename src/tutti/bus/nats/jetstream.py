"""The servers' JetStream API: JSON requests on `$JS.API.…`, as far as Tutti uses it.

Every request here may be repeated without harm, so one that was cut off by a lost connection, or met a cluster without
a leader, is sent again until its time is up. Publishing is not here: see `appender`.
"""

from __future__ import annotations

import asyncio
import base64
from datetime import UTC, datetime
from typing import Final, TypeVar

import msgspec

from tutti.bus.nats.connection import Connection, Disconnected, NoResponders
from tutti.bus.nats.protocol import Message, fields_of, head_of, headers_of
from tutti.bus.port import Record
from tutti.errors import BusError, Conflict, Denied, NoReply, Refused
from tutti.limits import APPEND_RETRY_SECONDS, READER_HEARTBEAT_SECONDS, READER_PULL_SECONDS

NANOSECONDS: Final = 1_000_000_000

# Error codes of the servers (nats-server, server/errors.json)
SYSTEM_UNAVAILABLE: Final = 10008
CONSUMER_NOT_FOUND: Final = 10014
MESSAGE_NOT_FOUND: Final = 10037
NO_JETSTREAM_FOR_ACCOUNT: Final = 10039
SEQUENCE_NOT_FOUND: Final = 10043
MESSAGE_TOO_LARGE: Final = 10054
DELETE_FAILED: Final = 10057  # "no message found"
STREAM_NAME_IN_USE: Final = 10058
STREAM_NOT_FOUND: Final = 10059
WRONG_LAST_SEQUENCE: Final = 10071
REPLICAS_NOT_SUPPORTED: Final = 10074
NO_JETSTREAM: Final = 10076
STORE_FAILED: Final = 10077
NO_SUITABLE_PEERS: Final = 10005
CONSUMER_EXISTS: Final = 10148
DUPLICATE_IN_PROCESS: Final = 10158  # an earlier copy is on its way through the cluster, and has no sequence yet
ATOMIC_DISABLED: Final = 10174
WRONG_LAST_SEQUENCE_CONSTANT: Final = 10164
_DIRECT_FIELDS: Final = frozenset(
    {"Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp", "Nats-Num-Pending", "Nats-Last-Sequence"}
)
_PASSING: Final = frozenset({SYSTEM_UNAVAILABLE, 10118, 10119})  # no leader (yet)


class ApiError(msgspec.Struct, frozen=True):
    code: int = 0
    err_code: int = 0
    description: str = ""


class ServerRefusal(BusError):
    """The server's own error answer; `code` is its err_code."""

    def __init__(self, what: str, code: int, *, hint: str = "") -> None:
        super().__init__(what, hint=hint)
        self.code = code


class StreamConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Streams refuse new data rather than drop old, and never forget by age: retention is Tutti's."""

    name: str
    subjects: tuple[str, ...] = ()
    retention: str = "limits"
    storage: str = "file"
    discard: str = "new"
    max_age: int = 0
    max_bytes: int = -1
    max_msgs: int = -1
    max_msg_size: int = -1
    max_msgs_per_subject: int = -1
    num_replicas: int = 1
    duplicate_window: int = 0
    allow_direct: bool = False
    allow_atomic: bool = False


class StreamState(msgspec.Struct, frozen=True):
    messages: int = 0
    bytes: int = 0
    first_seq: int = 0
    last_seq: int = 0
    subjects: dict[str, int] | None = None


class ClusterInfo(msgspec.Struct, frozen=True):
    leader: str = ""


class StreamReply(msgspec.Struct, frozen=True):
    config: StreamConfig = StreamConfig(name="")
    state: StreamState = StreamState()
    created: datetime = datetime.fromtimestamp(0, UTC)
    cluster: ClusterInfo | None = None
    total: int = 0
    offset: int = 0
    limit: int = 0
    error: ApiError | None = None


class NamesReply(msgspec.Struct, frozen=True):
    streams: tuple[str, ...] | None = None
    total: int = 0
    error: ApiError | None = None


class PurgeReply(msgspec.Struct, frozen=True):
    purged: int = 0
    error: ApiError | None = None


class PlainReply(msgspec.Struct, frozen=True):
    success: bool = False
    error: ApiError | None = None


class StoredMessage(msgspec.Struct, frozen=True):
    subject: str = ""
    seq: int = 0
    hdrs: str = ""  # base64
    data: str = ""  # base64
    time: datetime = datetime.fromtimestamp(0, UTC)


class MessageReply(msgspec.Struct, frozen=True):
    message: StoredMessage = StoredMessage()
    error: ApiError | None = None


class ConsumerConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str = ""
    durable_name: str = ""
    deliver_policy: str = ""
    opt_start_seq: int = 0
    opt_start_time: str = ""
    ack_policy: str = ""
    ack_wait: int = 0
    max_deliver: int = 0
    max_ack_pending: int = 0
    max_waiting: int = 0
    filter_subjects: tuple[str, ...] = ()
    inactive_threshold: int = 0
    mem_storage: bool = False
    num_replicas: int = 0


class Delivered(msgspec.Struct, frozen=True):
    consumer_seq: int = 0
    stream_seq: int = 0


class ConsumerReply(msgspec.Struct, frozen=True):
    name: str = ""
    num_pending: int = 0
    delivered: Delivered = Delivered()
    error: ApiError | None = None


class Pull(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request for messages."""

    batch: int
    expires: int = 0
    idle_heartbeat: int = 0
    max_bytes: int = 0
    no_wait: bool = False


PULL_EXPIRES: Final = int(READER_PULL_SECONDS * NANOSECONDS)
PULL_HEARTBEAT: Final = int(READER_HEARTBEAT_SECONDS * NANOSECONDS)

Reply = TypeVar("Reply", StreamReply, NamesReply, PurgeReply, PlainReply, MessageReply, ConsumerReply)


class JetStream:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def ask(self, verb: str, body: object, answer: type[Reply], *, timeout: float | None = None) -> Reply:
        """Raises `ServerRefusal` with the server's code, `NoReply` or `Unreachable` when time is up."""
        connection = self._connection
        loop = asyncio.get_running_loop()
        total = connection.options.request_timeout if timeout is None else timeout
        deadline = loop.time() + total
        data = b"" if body is None else msgspec.json.encode(body)
        problem: BusError = NoReply(f"no answer on $JS.API.{verb} within {total} s", hint="is the server overloaded?")
        while (left := deadline - loop.time()) > 0:
            try:
                await connection.wait_up(left)
                # A cluster that has just lost a leader drops requests: ask again well before the time is up.
                message = await connection.request(f"$JS.API.{verb}", data, timeout=min(left, max(2.0, total / 3)))
                reply = msgspec.json.decode(message.data, type=answer)
            except (Disconnected, NoReply) as lost:  # NoResponders too: JetStream starts after the server listens
                problem = lost
            except msgspec.DecodeError as error:
                raise BusError(
                    f"the answer to $JS.API.{verb} cannot be read: {error}", hint="is it a newer server?"
                ) from None
            else:
                if reply.error is None:
                    return reply
                problem = refusal(verb, reply.error)
                if reply.error.err_code not in _PASSING:
                    raise problem
            if isinstance(problem, (Disconnected, NoResponders, ServerRefusal)):
                await asyncio.sleep(min(APPEND_RETRY_SECONDS, max(0.0, deadline - loop.time())))
        raise problem

    async def stream(self, name: str, *, subjects_filter: str = "", offset: int = 0) -> StreamReply | None:
        body = {"subjects_filter": subjects_filter, "offset": offset} if subjects_filter else None
        try:
            return await self.ask(f"STREAM.INFO.{name}", body, StreamReply)
        except ServerRefusal as refused:
            if refused.code == STREAM_NOT_FOUND:
                return None
            raise

    async def stream_names(self) -> list[str]:
        names: list[str] = []
        while True:
            page = await self.ask("STREAM.NAMES", {"offset": len(names)}, NamesReply)
            names.extend(page.streams or ())
            if not page.streams or len(names) >= page.total:
                return sorted(names)

    async def message(self, stream: str, query: dict[str, object]) -> Record | None:
        """From the stream's leader, so it is what the last acknowledged write left."""
        try:
            reply = await self.ask(f"STREAM.MSG.GET.{stream}", query, MessageReply)
        except ServerRefusal as refused:
            if refused.code in {MESSAGE_NOT_FOUND, SEQUENCE_NOT_FOUND, STREAM_NOT_FOUND}:
                return None
            raise
        found = reply.message
        return Record(
            subject=found.subject,
            headers=fields_of(base64.b64decode(found.hdrs)),
            data=base64.b64decode(found.data),
            sequence=found.seq,
            stored_at=found.time.timestamp(),
        )

    async def last_up_to(self, stream: str, subject: str, up_to: int) -> Record | None:
        """The last record on a subject at or below a sequence. Any replica may answer; the caller knows that a later
        one exists, so only a replica that is far behind could miss it."""
        query = msgspec.json.encode({"multi_last": [subject], "up_to_seq": up_to})
        timeout = self._connection.options.request_timeout
        message = await self._connection.request(f"$JS.API.DIRECT.GET.{stream}", query, timeout=timeout)
        head = head_of(message.head)
        if head.status:
            return None
        fields = head.fields
        return Record(
            subject=fields["Nats-Subject"],
            headers={name: value for name, value in fields.items() if name not in _DIRECT_FIELDS},
            data=message.data,
            sequence=int(fields["Nats-Sequence"]),
            stored_at=datetime.fromisoformat(fields["Nats-Time-Stamp"]).timestamp(),
        )

    async def subjects(self, stream: str, pattern: str) -> list[str]:
        """Every subject of a stream that matches and has a record."""
        subjects: list[str] = []
        while True:
            page = await self.stream(stream, subjects_filter=pattern, offset=len(subjects))
            found = page.state.subjects if page is not None else None
            if page is None or not found:
                return subjects
            subjects.extend(found)
            if len(subjects) >= page.total:
                return subjects

    async def create_consumer(self, stream: str, config: ConsumerConfig) -> ConsumerReply:
        body = {"stream_name": stream, "config": config, "action": ""}
        return await self.ask(f"CONSUMER.CREATE.{stream}.{config.name or config.durable_name}", body, ConsumerReply)


def refusal(where: str, error: ApiError) -> BusError:
    """The server's error in our words, for management requests."""
    what = f"{where}: {error.description} ({error.err_code})"
    match error.err_code:
        case c if c in {NO_JETSTREAM, NO_JETSTREAM_FOR_ACCOUNT}:
            return Denied(what, hint="enable JetStream on the server (`jetstream {}`) and for this user's account")
        case c if c in {WRONG_LAST_SEQUENCE, WRONG_LAST_SEQUENCE_CONSTANT}:
            return Conflict(what, hint="somebody else changed that record first: read it again")
        case code:
            return ServerRefusal(what, code)


def append_failure(subject: str, error: ApiError) -> BusError:
    """The server's error answer to one message: it is not stored."""
    what = f"{subject}: {error.description} ({error.err_code})"
    match error.err_code:
        case c if c in {WRONG_LAST_SEQUENCE, WRONG_LAST_SEQUENCE_CONSTANT}:
            return Conflict(what, hint="somebody else changed that record first: read it again")
        case c if c == MESSAGE_TOO_LARGE:
            return Refused(what, hint="the stream's max_message_bytes is lower: send less, or store the data elsewhere")
        case c if c == STORE_FAILED:
            return Refused(what, hint="the stream is full: purge it, or raise its max_bytes")
        case _ if error.code == 429:
            return Refused(what, hint="the server's queue for this stream is full: publish more slowly")
        case _:
            return Refused(what, hint="see the server's log")


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """What the reply subject of a consumer's message says."""

    attempt: int
    stream_sequence: int
    consumer_sequence: int
    time: int  # nanoseconds since the epoch
    pending: int


def delivery_of(reply: str) -> Delivery | None:
    """None for a status message, or anything else that is not

    `$JS.ACK.[<domain>.<account>.]<stream>.<consumer>.<attempt>.<stream seq>.<consumer seq>.<time>.<pending>[.<random>]`
    """
    parts = reply.split(".")
    if len(parts) < 9 or parts[1] != "ACK":
        return None
    first = 4 if len(parts) == 9 else 6
    try:
        return Delivery(*map(int, parts[first : first + 5]))
    except (ValueError, TypeError):
        return None


def record_of(message: Message) -> Record:
    """A message of the wire."""
    return Record(message.subject, headers_of(message.head), message.data, 0, 0.0, message.reply)
