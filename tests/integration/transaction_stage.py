"""Transactions on the real thing: a synced NATS server, PostgreSQL databases, subscribers that book rooms in them."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import asyncpg
import pytest

import tutti
from tutti.model.transaction import journal_of
from tutti.resources import Resource
from tutti.resources.embedded_postgres import EmbeddedPostgres
from tutti.resources.postgres.asyncpg import AsyncpgResource
from tutti.resources.postgres.options import PostgresOptions
from tutti.runtime.bus import Bus

E = TypeVar("E", bound=BaseException)

TABLE: Final = "create table booked (number serial primary key, room text not null, tx text not null)"
OPTIONS: Final = PostgresOptions(lock_timeout=2.0, connections=4, spare_connections=1)
PATIENCE_SECONDS: Final = 20.0


class Invitation(tutti.Event):
    room: str


class Cancellation(tutti.Event):
    room: str


class Reaction(tutti.Event):
    room: str


class Stray(tutti.Event):
    room: str


class Meeting(tutti.TxType, events=[Invitation, Cancellation, Reaction]):
    subject: str
    seats: int = 10


class Stage:
    """Buses of one namespace and databases of one server; all are closed, and nothing may be left prepared."""

    def __init__(self, url: str, postgres: EmbeddedPostgres, folder: Path) -> None:
        self.url, self.postgres, self.folder = url, postgres, folder
        self.namespace = f"n{secrets.token_hex(4)}"
        self._stack = AsyncExitStack()
        self._witnesses: dict[str, asyncpg.Connection[Any]] = {}

    async def bus(
        self,
        name: str = "",
        *,
        journal: str | Path | None = None,
        resources: tuple[Resource[Any], ...] = (),
        advertise: bool = True,
    ) -> Bus:
        """As a process of its own would open it; with the same journal as the others, unless another one is named."""
        bus = tutti.connect(
            self.url,
            namespace=self.namespace,
            name=name,
            options=tutti.NatsOptions(urls=(self.url,), synced=True),
            journal=journal if journal is not None else self.folder / "journal",
            resources=resources,
        )
        await self._stack.enter_async_context(bus)
        if advertise:
            await bus.advertise(Invitation, Cancellation, Reaction)
        return bus

    async def database(self) -> str:
        """The URL of a fresh one with the table."""
        url = await asyncio.to_thread(self.postgres.create_database, f"t{secrets.token_hex(6)}")
        witness = self._witnesses[url] = await asyncpg.connect(url)
        await witness.execute(TABLE)
        return url

    async def member(self, name: str, **options: Any) -> Member:
        member = Member(name, await self.database(), self, **options)
        self._stack.push_async_callback(member.close)
        return member

    async def booked(self, url: str) -> list[str]:
        return [row["room"] for row in await self._witnesses[url].fetch("select room from booked order by number")]

    async def prepared(self, url: str) -> list[str]:
        rows = await self._witnesses[url].fetch(
            "select gid from pg_prepared_xacts where database = current_database() order by gid"
        )
        return [row["gid"] for row in rows]

    def witness(self, url: str) -> asyncpg.Connection[Any]:
        return self._witnesses[url]

    async def resource(self, name: str, url: str) -> AsyncpgResource:
        resource = AsyncpgResource(name, url, OPTIONS)
        self._stack.push_async_callback(resource.close)
        return resource

    async def close(self) -> None:
        await self._stack.aclose()
        left = [gid for url in self._witnesses for gid in await self.prepared(url)]
        for witness in self._witnesses.values():
            await witness.close()
        assert left == [], "a prepared branch is left behind"


class Member:
    """A subscriber with a database. What it does with an event is in the room's name: `closed` raises, `veto` sets
    abort, `slow` waits for `release`, `react` publishes in the transaction; anything else is booked."""

    def __init__(
        self,
        name: str,
        url: str,
        stage: Stage,
        *,
        where: str | None = None,
        compensatable: bool = False,
        early_commit: bool = False,
        identity: str = "",
        patience: float = 0.5,
        group: str = "",
        vital: bool = True,
    ) -> None:
        self.name, self.url, self._stage = name, url, stage
        self.calendar = AsyncpgResource("calendar", url, OPTIONS)
        self.subscriber = tutti.Subscriber(name, resources=[self.calendar])
        self.invites: list[tutti.Invite[Meeting]] = []
        self.calls: list[str] = []
        self.undone: list[str] = []
        self.answer: object = True
        self.mood = ""  # what it does with every event, whatever the room is called
        self.failing_compensations = 0
        self.release = asyncio.Event()
        self.at_work = asyncio.Event()
        if group:
            self.subscriber.enrol(
                group, Meeting, compensatable=compensatable, early_commit=early_commit, vital=vital, patience=patience
            )
        else:
            self.subscriber.join(
                Meeting,
                where=where,
                compensatable=compensatable,
                early_commit=early_commit,
                identity=identity,
                patience=patience,
            )(self._interested)
        book = self.subscriber.on(Invitation, name="book")(self._book)
        book.compensate(self._unbook)

    async def _interested(self, invite: tutti.Invite[Meeting]) -> object:
        self.invites.append(invite)
        return self.answer

    async def _book(self, event: Invitation, tx: tutti.Branch) -> None:
        self.calls.append(event.room)
        db = await tx.enlist(self.calendar)
        await db.execute("insert into booked (room, tx) values ($1, $2)", event.room, tx.id)
        what = self.mood or event.room
        if what.startswith("closed"):
            raise ValueError("the room is closed")
        if what.startswith("veto"):
            tx.set_abort("not that room")
        if what.startswith("slow"):
            self.at_work.set()
            await self.release.wait()
        if what.startswith("react"):
            await tx.publish(Reaction(f"{self.name} reacts"))
        if what.endswith("then fail"):
            raise ValueError("it failed in the end")

    async def _unbook(self, event: Invitation, tx: tutti.Branch) -> None:
        if self.failing_compensations:
            self.failing_compensations -= 1
            raise ValueError("not now")
        db = await tx.enlist(self.calendar)
        await db.execute("delete from booked where tx = $1 and room = $2", tx.id, event.room)
        self.undone.append(event.room)

    async def booked(self) -> list[str]:
        return await self._stage.booked(self.url)

    async def prepared(self) -> list[str]:
        return await self._stage.prepared(self.url)

    async def close(self) -> None:
        await self.calendar.close()


def fails_with(error: type[E], match: str | None = None) -> AbstractContextManager[pytest.ExceptionInfo[E], bool]:
    """`pytest.raises` around the block of a transaction: it is the block's end that raises."""
    return pytest.raises(error, match=match)


async def all_idle(bus: Bus) -> None:
    """Nothing is under way at the subscribers that this bus serves."""
    await until(lambda: all(service.idle() for service in bus.services), "idle services")


async def until(condition: Callable[[], Any], what: str = "", seconds: float = PATIENCE_SECONDS) -> None:
    """Until it is true; it may be a coroutine function."""
    try:
        async with asyncio.timeout(seconds):
            while True:
                found = condition()
                if await found if asyncio.iscoroutine(found) else found:
                    return
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"not within {seconds:g} seconds: {what or condition}") from None


def meeting(bus: Bus, members: int = 1, subject: str = "DSOnline", **options: Any) -> tutti.Transaction:
    """With a census of exactly so many, unless options name another rule or a group."""
    if "census" not in options and "group" not in options:
        options["census"] = tutti.Census(at_least=members, at_most=members, within=PATIENCE_SECONDS)
    return bus.transaction(Meeting(subject), **options)


async def decision(bus: Bus, tx: str) -> str:
    """What stands in the journal, or the state without one."""
    assert journal_of(tx)
    found: Any = await (await bus.coordinator()).journal.decision(tx)
    return getattr(found, "outcome", type(found).__name__.lower())


@asynccontextmanager
async def serving(bus: Bus, *members: Member) -> AsyncIterator[None]:
    async with bus.serve(*(member.subscriber for member in members)):
        yield
