"""What happens when something is wrong, on real servers. docs/bad-input.md is the same as a table; its last test here
checks that each row names a test that exists."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import pytest

import tutti
from tests.integration.nats_server import NatsServer
from tutti.errors import FilterTooComplex
from tutti.limits import EVENT_MAX_BYTES, FILTER_MAX_CHARACTERS, FILTER_MAX_DEPTH
from tutti.runtime.dead import DeadLetter

ROOT: Final = Path(__file__).parents[2]
STREAM: Final = "tutti-events-events"


class Trade(tutti.Event):
    symbol: Annotated[str, tutti.routing]
    price: Decimal
    note: str = ""


IBM = Trade("IBM", Decimal("128.50"))
FIT = b'{"symbol":"IBM","price":"1"}'


@pytest.fixture
async def bus(tmp_path: Path) -> AsyncIterator[tutti.Bus]:
    async with tutti.connect(data=tmp_path / "data", name="test") as bus:
        await bus.advertise(Trade)
        yield bus


class Desk(tutti.Subscriber):
    """Handles every trade, and remembers it."""

    def __init__(self, start: Literal["latest", "earliest"] = "latest") -> None:
        super().__init__("desk", policy=tutti.Policy(attempts=2, backoff=tutti.Backoff(first=0.0)))
        self.seen: list[Trade] = []

        @self.on(Trade, start=start)
        async def trade(event: Trade) -> None:
            self.seen.append(event)


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def until(condition: Callable[[], object], seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


async def letters(bus: tutti.Bus, count: int, seconds: float = 20) -> list[DeadLetter]:
    """The dead letters, once there are so many."""
    async with asyncio.timeout(seconds):
        while len(found := [letter async for letter in bus.dead.each()]) < count:
            await asyncio.sleep(0.02)
    return found


async def stored(bus: tutti.Bus, stream: str = STREAM) -> int:
    info = await bus.context.transport.stream_info(stream)
    return info.messages if info is not None else 0


async def write(bus: tutti.Bus, data: bytes, subject: str = "", **headers: str) -> None:
    """A record of somebody who does not use Tutti."""
    named = {f"ce-{name}": value for name, value in headers.items() if name != "content_type"}
    named |= {"content-type": headers["content_type"]} if "content_type" in headers else {}
    await bus.context.transport.append(subject or "tutti.event.events.Trade._.3.IBM", named, data, timeout=5)


GOOD: Final = {"specversion": "1.0", "id": "x", "source": "/x", "type": "Trade"}


# At the publisher


async def test_a_type_that_is_not_advertised(bus: tutti.Bus) -> None:
    class Unheard(tutti.Event):
        number: int

    with pytest.raises(tutti.TypeNotAdvertised, match=r"await bus.advertise\(Unheard\)"):
        await bus.publish(Unheard(1))


async def test_an_unknown_type(bus: tutti.Bus) -> None:
    with pytest.raises(tutti.UnknownType, match="advertised types: Trade"):
        await bus.describe("Trad")


async def test_what_is_no_event(bus: tutti.Bus) -> None:
    for wrong in ("text", {"symbol": "IBM"}, None, Trade):
        with pytest.raises((tutti.DeclarationError, tutti.InvalidEvent)):
            await bus.publish(wrong)
    assert await stored(bus) == 0


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"price": "128.50"}, "price"),
        ({"price": 128.5}, "Decimal"),
        ({"price": Decimal("NaN")}, "equal to nothing"),
        ({"note": None}, "note"),
        ({"note": "\ud800"}, "surrogates"),
        ({"symbol": 7}, "symbol"),
    ],
)
async def test_a_value_that_does_not_fit_never_leaves(bus: tutti.Bus, fields: dict[str, Any], said: str) -> None:
    values: dict[str, Any] = {"symbol": "IBM", "price": Decimal(1), **fields}
    with pytest.raises(tutti.InvalidEvent, match=said):
        await bus.publish(Trade(**values))
    assert await stored(bus) == 0


async def test_an_event_that_is_too_large(bus: tutti.Bus, desk: Desk) -> None:
    room = EVENT_MAX_BYTES - len(b'{"symbol":"IBM","price":"1","note":""}')
    with pytest.raises(tutti.EventTooLarge, match="1,000,001 bytes; the limit is 1,000,000"):
        await bus.publish(Trade("IBM", Decimal(1), "x" * (room + 1)))
    async with bus.serve(desk):
        await bus.publish(Trade("IBM", Decimal(1), "x" * room))  # the largest arrives
        await until(lambda: desk.seen)


async def test_options_that_cannot_work(bus: tutti.Bus) -> None:
    wrong: list[dict[str, Any]] = [{"priority": 10}, {"lifetime": -1}, {"id": ""}, {"grade": "sometimes"}]
    for options in [*wrong, {"attributes": {"No!": "x"}}, {"traceparent": "a\nb"}]:
        with pytest.raises((tutti.DeclarationError, tutti.InvalidEvent)):
            await bus.publish(IBM, **options)
    assert await stored(bus) == 0


async def test_an_incompatible_advertisement(bus: tutti.Bus) -> None:
    class Changed(tutti.Event, type="Trade", version=2):
        symbol: Annotated[str, tutti.routing]
        price: float
        venue: str

    with pytest.raises(tutti.TypeConflict, match="venue") as raised:
        await bus.advertise(Changed)
    assert len(raised.value.clashes) >= 2
    assert (await bus.describe("Trade")).version == 1


# On the bus


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"symbol":"IBM","price":"dear"}', "price"),
        (b'{"symbol":"IBM"}', "missing required field `price`"),
        (b'{"symbol":"IBM","price":"1"', "truncated"),
        (b"\xff\xfe", "malformed"),
        (b"[" * 100_000, "Trade"),
    ],
)
async def test_a_value_that_does_not_fit_is_dead_lettered(bus: tutti.Bus, desk: Desk, data: bytes, said: str) -> None:
    async with bus.serve(desk):
        await write(bus, data, **GOOD)
        await bus.publish(IBM)
        (letter,) = await letters(bus, 1)
        await until(lambda: desk.seen == [IBM])
    assert said in letter.reason
    assert letter.payload == data
    assert letter.attempts == 0


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"id": "x"}, "ce-specversion is missing"),
        ({**GOOD, "specversion": "0.3"}, "only 1.0 is known"),
        ({**GOOD, "id": ""}, "ce-id is missing or empty"),
        ({**GOOD, "source": "%zz"}, "percent sign"),
        ({**GOOD, "source": "%ff%fe"}, "not UTF-8"),
        ({**GOOD, "time": "yesterday"}, "no RFC 3339 timestamp"),
        ({**GOOD, "expirytime": "soon"}, "no RFC 3339 timestamp"),
        ({**GOOD, "priority": "high"}, "not an integer"),
        ({**GOOD, "type": "Other"}, "stands on the subject of Trade"),
        (GOOD | {f"a{n}": "x" for n in range(100)}, "headers; the limit is 64"),
        (GOOD | {"long": "x" * 40_000}, "the limit is 32,768"),
    ],
)
async def test_malformed_headers(bus: tutti.Bus, desk: Desk, headers: dict[str, str], said: str) -> None:
    async with bus.serve(desk):
        await write(bus, FIT, **headers)
        await bus.publish(IBM)
        (letter,) = await letters(bus, 1)
        await until(lambda: desk.seen == [IBM])
    assert said in letter.reason


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"{", "truncated"),
        (b"[]", "xpected `object`"),
        (b'{"specversion":"1.0","id":"1","source":"/x"}', "type is missing"),
        (b'{"specversion":"1.0","id":[],"source":"/x","type":"Trade"}', "id"),
        (b'{"specversion":"1.0","id":"1","source":"/x","type":"Trade","data":1,"data_base64":"AA=="}', "data"),
        (b'{"specversion":"1.0","id":"1","source":"/x","type":"Trade","data_base64":"A"}', "data_base64"),
    ],
)
async def test_a_broken_structured_event(bus: tutti.Bus, desk: Desk, data: bytes, said: str) -> None:
    async with bus.serve(desk):
        await write(bus, data, content_type="application/cloudevents+json")
        await bus.publish(IBM)
        (letter,) = await letters(bus, 1)
        await until(lambda: desk.seen == [IBM])
    assert said in letter.reason
    assert letter.payload == data


async def test_a_foreign_message_on_our_subject(bus: tutti.Bus, desk: Desk) -> None:
    async with bus.serve(desk):
        for partition in ("3", "99", "x"):
            await write(bus, b"hello", f"tutti.event.events.Trade._.{partition}.IBM")
        await bus.publish(IBM)
        found = await letters(bus, 3)
        await until(lambda: desk.seen == [IBM])
    assert {letter.payload for letter in found} == {b"hello"}


async def test_an_unreadable_message_in_a_queue(bus: tutti.Bus) -> None:
    await write(bus, b"hello", "tutti.queue.work.x", id="1")
    await bus.send(IBM, to="work")
    message = await bus.receive("work", Trade, wait=5)
    assert message is not None
    async with message:
        assert message.event == IBM
    (letter,) = await letters(bus, 1)
    assert (letter.subscriber, letter.payload) == ("work", b"hello")


async def test_the_same_event_again(bus: tutti.Bus, desk: Desk) -> None:
    async with bus.serve(desk):
        first = await bus.publish(IBM, id="order 7")
        again = await bus.publish(IBM, id="order 7")
        await bus.publish(Trade("SAP", Decimal(1)))
        await until(lambda: len(desk.seen) == 2)
    assert (again.duplicate, again.sequence) == (True, first.sequence)
    assert bus.metrics.total("tutti_missing_total") == 0


async def test_events_that_disappear_from_the_log(bus: tutti.Bus) -> None:
    late = Desk()
    await bus.stop(await bus.start(late))
    await bus.publish_many([Trade("IBM", Decimal(n)) for n in range(5)])
    await bus.context.transport.remove(STREAM, 3)
    async with bus.serve(late):
        await until(lambda: len(late.seen) == 4)
        await until(lambda: bus.metrics.total("tutti_missing_total") == 1)


# Filters


def nothing(event: Trade) -> None: ...


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("symbol = ", tutti.FilterError),
        ("symbol = 'IBM", tutti.FilterError),
        ("price > > 1", tutti.FilterError),
        ("EXEC('rm')", tutti.FilterError),
        ("x" * (FILTER_MAX_CHARACTERS + 1), FilterTooComplex),
        ("(" * (FILTER_MAX_DEPTH + 50) + "TRUE" + ")" * (FILTER_MAX_DEPTH + 50), FilterTooComplex),
        ("NOT " * 1_500 + "TRUE", FilterTooComplex),
        ("-" * 5_000 + "1 = 1", FilterTooComplex),
        (" OR ".join(["a = 1"] * 1_000), FilterTooComplex),
    ],
)
def test_a_hostile_or_wrong_filter_is_refused_when_it_is_declared(text: str, error: type[Exception]) -> None:
    begun = time.process_time()
    with pytest.raises(error):
        tutti.Subscriber("desk").on(Trade, where=text)(nothing)
    assert time.process_time() - begun < 2


async def test_a_pattern_bomb_costs_nothing(bus: tutti.Bus) -> None:
    app, bomb, seen = tutti.Subscriber("app"), "%a" * 500 + "%", list[Trade]()

    @app.on(Trade, where=f"note LIKE '{bomb}b'")
    async def never(event: Trade) -> None:
        raise AssertionError

    @app.on(Trade)
    async def always(event: Trade) -> None:
        seen.append(event)

    async with bus.serve(app):
        begun = time.process_time()
        await bus.publish_many([Trade("IBM", Decimal(1), "a" * 50_000) for _ in range(10)])
        await until(lambda: len(seen) == 10)
        await until(lambda: bus.metrics.total("tutti_received_total", subscription="never") == 10)
        assert time.process_time() - begun < 10


async def test_a_filter_on_a_field_that_no_event_has(bus: tutti.Bus) -> None:
    app = tutti.Subscriber("app")

    @app.on(Trade, where="colour = 'red'")
    async def never(event: Trade) -> None:
        raise AssertionError

    async with bus.serve(app):
        await bus.publish(IBM)
        await until(lambda: bus.metrics.total("tutti_filter_errors_total") == 1)


# Handlers


class Odd(Exception):
    def __str__(self) -> str:
        raise RuntimeError("nor can I be shown")


@pytest.mark.parametrize(
    ("error", "reason", "attempts"),
    [
        (ValueError("no"), "ValueError: no", 2),
        (tutti.Reject("nonsense"), "rejected by the handler: nonsense", 1),
        (ValueError("half \ud800 a pair"), "ValueError: half \\ud800 a pair", 2),
        (ValueError("x" * 5_000_000), "ValueError: xxx", 2),
        (Odd(), "Odd: (what it says cannot be read)", 2),
    ],
)
async def test_a_handler_that_raises(bus: tutti.Bus, error: Exception, reason: str, attempts: int) -> None:
    app, seen = tutti.Subscriber("app", policy=tutti.Policy(attempts=2, backoff=tutti.Backoff(first=0.0))), []

    @app.on(Trade)
    async def trade(event: Trade) -> None:
        if event.symbol == "BAD":
            raise error
        seen.append(event)

    async with bus.serve(app):
        await bus.publish_many([Trade("BAD", Decimal(1)), IBM])
        (letter,) = await letters(bus, 1)
        await until(lambda: seen == [IBM])
    assert letter.reason.startswith(reason)
    assert (letter.attempts, letter.event_type) == (attempts, "Trade")


async def test_a_handler_that_hangs(bus: tutti.Bus) -> None:
    policy = tutti.Policy(attempts=2, handler_timeout=0.1, backoff=tutti.Backoff(first=0.0))
    app, seen = tutti.Subscriber("app", policy=policy), []

    @app.on(Trade)
    async def trade(event: Trade) -> None:
        if event.symbol == "BAD":
            await asyncio.Event().wait()
        seen.append(event)

    async with bus.serve(app):
        await bus.publish_many([Trade("BAD", Decimal(1)), IBM])
        (letter,) = await letters(bus, 1)
        await until(lambda: seen == [IBM])
    assert (letter.reason, letter.attempts) == ("the handler took longer than 0.1 seconds", 2)


async def test_a_handler_whose_thread_hangs(bus: tutti.Bus) -> None:
    app, seen = tutti.Subscriber("app", policy=tutti.Policy(attempts=5, handler_timeout=0.1)), []

    @app.on(Trade)
    def trade(event: Trade) -> None:
        if event.symbol == "BAD":
            time.sleep(0.5)  # a thread cannot be stopped
        seen.append(event.symbol)

    async with bus.serve(app):
        await bus.publish_many([Trade("BAD", Decimal(1)), IBM])
        (letter,) = await letters(bus, 1)
        await until(lambda: "IBM" in seen)
    assert "its thread still runs" in letter.reason
    assert letter.attempts == 1


async def test_a_handler_that_never_ends_does_not_keep_the_service(bus: tutti.Bus) -> None:
    app, started = tutti.Subscriber("app", policy=tutti.Policy(handler_timeout=None)), asyncio.Event()

    @app.on(Trade)
    async def trade(event: Trade) -> None:
        started.set()
        await asyncio.Event().wait()

    service = await bus.start(app)
    await bus.publish(IBM)
    await started.wait()
    assert not await bus.stop(service, grace=0.1)


KILLER: Final = """
import asyncio, os, sys
import tutti

class Bomb(tutti.Event):
    number: int

app = tutti.Subscriber("app", policy=tutti.Policy(attempts=1))

@app.on(Bomb, start="earliest")
async def bomb(event: Bomb) -> None:
    if event.number == 1:
        os._exit(9)
    if event.number == 2:
        done.set()

async def main() -> None:
    global done
    done = asyncio.Event()
    async with tutti.connect(data=sys.argv[1]) as bus:
        async with bus.serve(app):
            await done.wait()

asyncio.run(main())
"""


async def test_a_handler_that_kills_the_process(bus: tutti.Bus, tmp_path: Path) -> None:
    class Bomb(tutti.Event):
        number: int

    script = tmp_path / "killer.py"
    script.write_text(KILLER)
    await bus.advertise(Bomb)
    await bus.publish_many([Bomb(0), Bomb(1), Bomb(2)])
    codes = []
    while 0 not in codes:
        process = await asyncio.create_subprocess_exec(sys.executable, str(script), str(tmp_path / "data"))
        codes.append(await asyncio.wait_for(process.wait(), 30))
        assert len(codes) <= 4
    (letter,) = await letters(bus, 1)
    assert codes == [9, 9, 0]  # the first death is noticed, the second counts as the one attempt
    assert (letter.attempts, letter.payload) == (1, b'{"number":1}')


# Declarations that cannot work together


async def test_a_subscriber_without_handlers(bus: tutti.Bus) -> None:
    with pytest.raises(tutti.DeclarationError, match="has no handlers"):
        await bus.start(tutti.Subscriber("empty"))


async def test_a_subscriber_that_knows_other_routing_attributes(bus: tutti.Bus) -> None:
    class Plain(tutti.Event, type="Trade"):
        symbol: str
        price: Decimal

    app = tutti.Subscriber("app")

    @app.on(Plain)
    async def plain(event: Plain) -> None: ...

    with pytest.raises(tutti.TypeConflict, match="routing attributes"):
        await bus.start(app)


async def test_an_answer_of_another_type(bus: tutti.Bus) -> None:
    app = tutti.Subscriber("app")

    class Other(tutti.Event):
        number: int

    @app.on(Trade)
    async def trade(event: Trade, delivery: tutti.Delivery) -> None:
        await delivery.reply(event)

    async with bus.serve(app):
        with pytest.raises(tutti.TuttiError, match="the answer is a Trade, not a Other"):
            await bus.request(IBM, reply=Other)


async def test_a_request_that_nobody_answers(bus: tutti.Bus) -> None:
    with pytest.raises(tutti.NoReply, match=r"within 0\.1 seconds"):
        await bus.request(IBM, reply=Trade, timeout=0.1)


# Servers


@contextlib.asynccontextmanager
async def running(server: NatsServer) -> AsyncIterator[NatsServer]:
    try:
        await server.start()
        yield server
    finally:
        server.kill()


def options(server: NatsServer, **more: Any) -> tutti.NatsOptions:
    return tutti.NatsOptions(urls=(server.url,), monitor_url=server.monitor_url, reconnect_max_delay=0.1, **more)


async def test_a_full_stream_refuses_new_events_and_keeps_the_old(tmp_path: Path) -> None:
    streams = {"events": tutti.Stream(full_at_bytes=200_000)}
    async with tutti.connect(data=tmp_path / "data", streams=streams) as bus:
        await bus.advertise(Trade)
        big = Trade("IBM", Decimal(1), "x" * 10_000)
        with pytest.raises(tutti.Refused, match="is not stored"):
            await bus.publish_many([big] * 40)
        info = await bus.context.transport.stream_info(STREAM)
        assert info is not None
        assert info.first == 1
        assert 10 < info.messages < 20


async def test_a_server_without_room(tmp_path: Path) -> None:
    server = NatsServer(tmp_path)
    reconfigure(server, "max_file_store: 1GB", "max_file_store: 1MB")
    async with running(server), tutti.connect(options=options(server)) as bus:
        await bus.advertise(Trade)
        with pytest.raises(tutti.Refused, match="insufficient"):
            await bus.publish_many([Trade("IBM", Decimal(1), "x" * 100_000)] * 40)
        assert bus.health().state == "ok"


def reconfigure(server: NatsServer, pattern: str, replacement: str) -> None:
    (config,) = server.folder.glob("*.conf")
    config.write_text(re.sub(pattern, replacement, config.read_text()))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    if (
        sys.platform != "linux"
        or os.geteuid() != 0
        or not _ran("mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", folder)
    ):
        pytest.skip("only an administrator may make a small disk")
    yield folder
    assert _ran("umount", "-l", folder)


def _ran(*command: str | Path) -> bool:
    return subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode == 0


async def test_a_full_disk(small_disk: Path) -> None:
    server = NatsServer(small_disk)
    async with running(server), tutti.connect(options=options(server), timeout=2) as bus:
        await bus.advertise(Trade)
        acknowledged = await _fill(bus)
    assert 50 < acknowledged < 200
    assert _ran("mount", "-o", "remount,size=64m", small_disk)  # the administrator gives it more room
    async with running(server), tutti.connect(options=options(server)) as bus:
        late = Desk(start="earliest")
        async with bus.serve(late):
            await until(lambda: len(late.seen) >= acknowledged)
    assert [int(trade.price) for trade in late.seen[:acknowledged]] == list(range(acknowledged))


async def _fill(bus: tutti.Bus) -> int:
    """Publish until it fails; returns how many events were acknowledged."""
    for count in range(1_000):
        try:
            await bus.publish(Trade("IBM", Decimal(count), "x" * 100_000))
        except (tutti.Refused, tutti.OutcomeUnknown):
            return count
    raise AssertionError("the disk is never full")


async def test_publishing_while_the_server_is_away_is_refused_and_goes_on_when_it_is_back(tmp_path: Path) -> None:
    server, desk = NatsServer(tmp_path), Desk()
    async with running(server), tutti.connect(options=options(server)) as bus:
        await bus.advertise(Trade)
        async with bus.serve(desk):
            await bus.publish(IBM)
            server.kill()
            await until(lambda: bus.health().state == "down")
            with pytest.raises(tutti.Refused, match="is not stored"):
                await bus.publish(IBM, timeout=0.2)
            waiting = asyncio.ensure_future(bus.publish(Trade("SAP", Decimal(2)), timeout=20))
            await server.start()
            await waiting
            await until(lambda: len(desk.seen) == 2)
        assert bus.health().state == "ok"
        assert bus.metrics.total("tutti_missing_total") == 0


async def test_an_event_without_an_answer_may_be_published_again_with_its_id(tmp_path: Path) -> None:
    server, desk = NatsServer(tmp_path), Desk()
    async with running(server), tutti.connect(options=options(server)) as bus:
        await bus.advertise(Trade)
        async with bus.serve(desk):
            server.pause()
            with pytest.raises(tutti.OutcomeUnknown, match="again with id='order 7'"):
                await bus.publish(IBM, id="order 7", timeout=0.3)
            server.resume()
            await bus.publish(IBM, id="order 7", timeout=20)
            await bus.publish(Trade("SAP", Decimal(2)))
            await until(lambda: len(desk.seen) == 2)
        assert await stored(bus) == 2
        assert bus.metrics.total("tutti_missing_total") == 0


async def test_nobody_at_that_address() -> None:
    nowhere = tutti.NatsOptions(urls=("nats://127.0.0.1:1",), connect_timeout=0.3)
    with pytest.raises(tutti.Unreachable, match=r"127\.0\.0\.1:1"):
        await tutti.connect(options=nowhere).open()


async def test_something_else_at_that_address() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    other = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with other:
        url = f"nats://127.0.0.1:{other.sockets[0].getsockname()[1]}"
        with pytest.raises(tutti.Unreachable, match="not a line of the NATS protocol"):
            await tutti.connect(options=tutti.NatsOptions(urls=(url,), connect_timeout=0.3)).open()


async def test_a_server_that_does_not_sync(tmp_path: Path) -> None:
    async with running(NatsServer(tmp_path, synced=False)) as server:
        with pytest.raises(tutti.NotDurable, match="sync_interval: always"):
            await tutti.connect(options=options(server)).open()
        async with tutti.connect(options=options(server, durable=False)) as bus:
            await bus.advertise(Trade)
            assert (await bus.publish(IBM)).sequence == 1


async def test_a_server_that_does_not_say_whether_it_syncs(tmp_path: Path) -> None:
    async with running(NatsServer(tmp_path)) as server:
        with pytest.raises(tutti.NotDurable, match="monitor_url"):
            await tutti.connect(server.url).open()
        async with tutti.connect(server.url, options=tutti.NatsOptions(synced=True)) as bus:
            assert bus.health().state == "ok"


async def test_a_server_that_is_too_old() -> None:
    """It only has to introduce itself."""

    async def introduce(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        info = '{"server_id":"OLD","version":"2.10.29","headers":true,"jetstream":true,"max_payload":1048576}'
        writer.write(f"INFO {info}\r\n".encode())
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                if line.startswith(b"PING"):
                    writer.write(b"PONG\r\n")
        writer.close()

    old = await asyncio.start_server(introduce, "127.0.0.1", 0)
    async with old:
        url = f"nats://127.0.0.1:{old.sockets[0].getsockname()[1]}"
        with pytest.raises(tutti.NotDurable, match=r"2\.10\.29 .* is below the floor"):
            await tutti.connect(options=tutti.NatsOptions(urls=(url,), synced=True, connect_timeout=1)).open()


async def test_a_server_without_jetstream(tmp_path: Path) -> None:
    server = NatsServer(tmp_path)
    reconfigure(server, r"jetstream .*", "")
    async with running(server):
        with pytest.raises(tutti.BusError):
            await tutti.connect(options=options(server, durable=False, request_timeout=1)).open()


async def test_wrong_credentials(tmp_path: Path) -> None:
    server = NatsServer(tmp_path, extra='authorization { user: "desk", password: "right" }')
    async with running(server):
        with pytest.raises(tutti.Denied):
            await tutti.connect(options=options(server, user="desk", password="wrong", connect_timeout=1)).open()
        async with tutti.connect(options=options(server, user="desk", password="right")) as bus:
            assert bus.health().state == "ok"


async def test_a_data_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(tutti.EmbeddedError, match="file"):
        await tutti.connect(data=tmp_path / "file").open()


# The table


def rows() -> list[tuple[int, str]]:
    """The line and the text of each row of docs/bad-input.md."""
    lines = (ROOT / "docs" / "bad-input.md").read_text().splitlines()
    heads = ("| ---", "| what is wrong |")
    return [(n, line) for n, line in enumerate(lines, 1) if line.startswith("|") and not line.startswith(heads)]


def named_tests(row: str) -> list[tuple[Path, str]]:
    """What a row links to: `[test](path#test_name)`."""
    return [((ROOT / "docs" / path).resolve(), name) for path, name in re.findall(r"\]\(([^)#]+)#(test_\w+)\)", row)]


def test_each_row_of_the_table_names_a_test_that_exists() -> None:
    assert len(rows()) > 30
    for line, row in rows():
        found = named_tests(row)
        assert found, f"docs/bad-input.md:{line} names no test"
        for path, name in found:
            defined = functions(ast.walk(ast.parse(path.read_text())))
            assert name in defined, f"docs/bad-input.md:{line}: {path.name} has no {name}"


def functions(nodes: Iterable[ast.AST]) -> set[str]:
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_each_test_of_this_file_stands_in_the_table() -> None:
    here = Path(__file__)
    listed = {name for _, row in rows() for path, name in named_tests(row) if path == here}
    own = {name for name in functions(ast.parse(here.read_text()).body) if re.match("test_(?!each_)", name)}
    assert own - listed == set()
    assert len(own) > 15
