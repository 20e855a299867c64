"""The same work with the ordinary client, `nats-py`, in every way that is fast: the baseline is the fastest of them.

Publishing starts from a value, encodes it with msgspec, checks the acknowledgement of every event and knows for each
where it was stored. Handling decodes the payload into the same struct, compares, awaits the handler and acknowledges.
Only what the client offers in public is used.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec
from nats.js import api

from benchmarks.workload import Trade, Watch, decode, encode, handle

STREAM: Final = "bare"
# Each is the fastest of those tried, in turns, medians of nine rounds.
CHUNK: Final = 1_000  # events gathered at once, and in an atomic batch, where it is the servers' limit
BATCHES: Final = 10  # atomic batches under way; 1, 2, 4 and 20 are slower, 4 by a fifth
FLIGHT: Final = 8_000  # unacknowledged at once; 500 to 4,000 are slower, 2,000 by a tenth; the servers queue 10,000
PULL: Final = 1_000  # messages a request, and an acknowledgement; 250 to 4,000 differ by 3 %
TIMEOUT: Final = 30.0

Publish = Callable[[Any, Sequence[Trade]], Awaitable[list[int]]]
Handle = Callable[[Any, Watch], Awaitable[None]]
Follow = Callable[[Any, "Arrival"], contextlib.AbstractAsyncContextManager[None]]


class Ack(msgspec.Struct, frozen=True):
    stream: str = ""
    seq: int = 0
    error: dict[str, Any] | None = None


_ack: Final = msgspec.json.Decoder(Ack).decode


def stored(data: bytes) -> int:
    ack = _ack(data)
    if ack.error is not None:
        raise RuntimeError(f"not stored: {ack.error}")
    return ack.seq


async def create_stream(client: Any) -> None:
    """A stream in files that takes atomic batches; nats-py's own configuration does not know these yet."""
    config = {"name": STREAM, "subjects": [f"{STREAM}.>"], "storage": "file", "allow_atomic": True}
    answer = await client.request(f"$JS.API.STREAM.CREATE.{STREAM}", json.dumps(config).encode(), timeout=TIMEOUT)
    if b'"error"' in answer.data:
        raise RuntimeError(answer.data.decode())


def subject(event: Trade) -> str:
    return f"{STREAM}.trade.{event.symbol}"


# Publishing


async def gathered(client: Any, events: Sequence[Trade]) -> list[int]:
    """`js.publish`, gathered a chunk at a time."""
    stream = client.jetstream(timeout=TIMEOUT)
    sequences: list[int] = []
    for start in range(0, len(events), CHUNK):
        part = events[start : start + CHUNK]
        acks = await asyncio.gather(*(stream.publish(subject(event), encode(event)) for event in part))
        sequences += [ack.seq for ack in acks]
    return sequences


async def published_async(client: Any, events: Sequence[Trade]) -> list[int]:
    """`js.publish_async`, all futures awaited at the end."""
    stream = client.jetstream(timeout=TIMEOUT, publish_async_max_pending=FLIGHT)
    futures = [await stream.publish_async(subject(event), encode(event)) for event in events]
    return [ack.seq for ack in await asyncio.gather(*futures)]


async def replied(client: Any, events: Sequence[Trade]) -> list[int]:
    """By hand: plain publishing with a reply subject for each, and one subscription that takes all answers."""
    return await _replied(client, events, None)


async def replied_with_id(client: Any, events: Sequence[Trade]) -> list[int]:
    """The same with a `Nats-Msg-Id`, so that repeating is harmless, as it is with ours."""
    return await _replied(client, events, secrets.token_hex(6))


async def _replied(client: Any, events: Sequence[Trade], run: str | None) -> list[int]:
    inbox = client.new_inbox()
    prefix = len(inbox) + 1
    sequences = [0] * len(events)
    left = len(events)
    room = asyncio.Semaphore(FLIGHT)
    done = asyncio.get_running_loop().create_future()

    async def answered(message: Any) -> None:
        nonlocal left
        sequences[int(message.subject[prefix:])] = stored(message.data)
        left -= 1
        room.release()
        if not left:
            done.set_result(None)

    answers = await client.subscribe(f"{inbox}.*", cb=answered, pending_msgs_limit=0, pending_bytes_limit=0)
    for number, event in enumerate(events):
        await room.acquire()
        headers = {"Nats-Msg-Id": f"{run}-{number}"} if run else None
        await client.publish(subject(event), encode(event), reply=f"{inbox}.{number}", headers=headers)
    await done
    await answers.unsubscribe()
    return sequences


async def batched(client: Any, events: Sequence[Trade]) -> list[int]:
    """By hand: atomic batches of 1,000, several under way. The last message of a batch is a request; its answer counts
    for all of them."""
    room = asyncio.Semaphore(BATCHES)

    async def one(part: Sequence[Trade]) -> list[int]:
        async with room:
            name = secrets.token_hex(8)
            for number, event in enumerate(part[:-1], 1):
                headers = {"Nats-Batch-Id": name, "Nats-Batch-Sequence": str(number)}
                await client.publish(subject(event), encode(event), headers=headers)
            last = {"Nats-Batch-Id": name, "Nats-Batch-Sequence": str(len(part)), "Nats-Batch-Commit": "1"}
            answer = await client.request(subject(part[-1]), encode(part[-1]), timeout=TIMEOUT, headers=last)
            end = stored(answer.data)
            return list(range(end - len(part) + 1, end + 1))

    parts = [events[start : start + CHUNK] for start in range(0, len(events), CHUNK)]
    return [sequence for part in await asyncio.gather(*map(one, parts)) for sequence in part]


PUBLISHING: Final[dict[str, Publish]] = {
    "js.publish, gathered": gathered,
    "js.publish_async": published_async,
    "reply subjects by hand": replied,
    "reply subjects by hand, message ids": replied_with_id,
    "atomic batches by hand": batched,
}


# Handling


async def handled(message: Any, watch: Watch) -> None:
    """What a subscriber does with a message: decode, filter, handle."""
    event = decode(message.data)
    if event.price > 0:
        await handle(event)
    watch.hit()


async def _consumer(client: Any, policy: str, start: Any = api.DeliverPolicy.ALL) -> str:
    name = f"c{secrets.token_hex(6)}"
    config = api.ConsumerConfig(
        durable_name=name, ack_policy=api.AckPolicy(policy), max_ack_pending=-1, deliver_policy=start
    )
    await client.jetstream(timeout=TIMEOUT).add_consumer(STREAM, config)
    return name


async def fetched_each(client: Any, watch: Watch) -> None:
    """Pull consumer, `fetch`, every message acknowledged."""
    await _fetched(client, watch, each=True)


async def fetched_last(client: Any, watch: Watch) -> None:
    """Pull consumer that acknowledges up to a message, `fetch`, the last of each fetch acknowledged."""
    await _fetched(client, watch, each=False)


async def _fetched(client: Any, watch: Watch, *, each: bool) -> None:
    name = await _consumer(client, "explicit" if each else "all")
    pull = await client.jetstream(timeout=TIMEOUT).pull_subscribe_bind(name, stream=STREAM)
    while not watch.done.done():
        messages = await pull.fetch(PULL, timeout=TIMEOUT)
        for message in messages:
            await handled(message, watch)
            if each:
                await message.ack()
        if not each:
            await messages[-1].ack()
    await pull.unsubscribe()


async def pulled(client: Any, watch: Watch) -> None:
    """By hand: pull requests, two under way, answered to a plain subscription; acknowledged up to every 1,000th."""
    name = await _consumer(client, "all")
    inbox = client.new_inbox()
    ask = f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{name}"
    request = json.dumps({"batch": PULL, "expires": int(TIMEOUT * 1e9)}).encode()

    async def arrived(message: Any) -> None:
        if not message.reply:
            return  # a status
        await handled(message, watch)
        if watch.count % PULL == 0:
            await client.publish(message.reply, b"+ACK")
            await client.publish(ask, request, reply=inbox)

    messages = await client.subscribe(inbox, cb=arrived, pending_msgs_limit=0, pending_bytes_limit=0)
    await client.publish(ask, request, reply=inbox)
    await client.publish(ask, request, reply=inbox)
    await watch.done
    await messages.unsubscribe()


async def pushed_each(client: Any, watch: Watch) -> None:
    """Durable push consumer, every message acknowledged."""
    await _pushed(client, watch, 1)


async def pushed_last(client: Any, watch: Watch) -> None:
    """Durable push consumer that acknowledges up to a message, every 1,000th acknowledged."""
    await _pushed(client, watch, PULL)


async def _pushed(client: Any, watch: Watch, every: int) -> None:
    async def arrived(message: Any) -> None:
        await handled(message, watch)
        if watch.count % every == 0:
            await message.ack()

    messages = await client.jetstream(timeout=TIMEOUT).subscribe(
        f"{STREAM}.>",
        stream=STREAM,
        durable=f"c{secrets.token_hex(6)}",
        cb=arrived,
        manual_ack=True,
        flow_control=True,
        idle_heartbeat=5.0,
        config=api.ConsumerConfig(ack_policy=api.AckPolicy("explicit" if every == 1 else "all"), max_ack_pending=-1),
        pending_msgs_limit=0,
        pending_bytes_limit=0,
    )
    await watch.done
    await messages.unsubscribe()


async def ordered(client: Any, watch: Watch) -> None:
    """Ordered consumer: no acknowledgements, and nobody knows after a crash where it was."""

    async def arrived(message: Any) -> None:
        await handled(message, watch)

    await _ordered(client, watch, arrived)


async def counted(client: Any, watch: Watch) -> None:
    """Ordered consumer whose messages are only counted: neither decoded nor filtered nor handled."""

    async def arrived(_message: Any) -> None:
        watch.hit()

    await _ordered(client, watch, arrived)


async def _ordered(client: Any, watch: Watch, arrived: Callable[[Any], Awaitable[None]]) -> None:
    messages = await client.jetstream(timeout=TIMEOUT).subscribe(
        f"{STREAM}.>",
        stream=STREAM,
        cb=arrived,
        ordered_consumer=True,
        pending_msgs_limit=0,
        pending_bytes_limit=0,
    )
    await watch.done
    await messages.unsubscribe()


HANDLING: Final[dict[str, Handle]] = {
    "fetch, each acknowledged": fetched_each,
    "fetch, last of 1,000 acknowledged": fetched_last,
    "pull by hand, every 1,000th acknowledged": pulled,
    "push, each acknowledged": pushed_each,
    "push, every 1,000th acknowledged": pushed_last,
}
NOT_DURABLE: Final[dict[str, Handle]] = {
    "ordered consumer, not durable": ordered,
    "ordered consumer, only counted": counted,
}


# Latency


class Arrival:
    """When the event that is under way reached its handler."""

    def __init__(self) -> None:
        self.time: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    def expect(self) -> None:
        self.time = asyncio.get_running_loop().create_future()

    def note(self) -> None:
        self.time.set_result(time.perf_counter())

    async def handled(self, message: Any) -> None:
        event = decode(message.data)
        if event.price > 0:
            self.note()
        await message.ack()


@contextlib.asynccontextmanager
async def pushing(client: Any, arrival: Arrival) -> AsyncIterator[None]:
    """A durable push consumer."""
    messages = await client.jetstream(timeout=TIMEOUT).subscribe(
        f"{STREAM}.>",
        stream=STREAM,
        durable=f"c{secrets.token_hex(6)}",
        cb=arrival.handled,
        manual_ack=True,
        config=api.ConsumerConfig(ack_policy=api.AckPolicy.EXPLICIT, deliver_policy=api.DeliverPolicy.NEW),
    )
    yield
    await messages.unsubscribe()


@contextlib.asynccontextmanager
async def fetching(client: Any, arrival: Arrival) -> AsyncIterator[None]:
    """A durable pull consumer that always has a request under way."""
    name = await _consumer(client, "explicit", api.DeliverPolicy.NEW)
    pull = await client.jetstream(timeout=TIMEOUT).pull_subscribe_bind(name, stream=STREAM)

    async def follow() -> None:
        while True:
            for message in await pull.fetch(1, timeout=TIMEOUT):
                await arrival.handled(message)

    following = asyncio.create_task(follow())
    yield
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


FOLLOWING: Final[dict[str, Follow]] = {"js.publish to push": pushing, "js.publish to fetch": fetching}
