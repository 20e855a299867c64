"""What the operator's commands work with: the journal and the log of this host, the bus if it runs, and databases.

A command that looks never starts a server, and answers from the journal alone if there is none.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
import socket
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Final, assert_never

import msgspec

from tutti.bus.embedded import default_folder, inspect
from tutti.cli.loading import load_resources
from tutti.cli.options import AtServers, InFolder, Session
from tutti.errors import DeclarationError, ResourceError, TuttiError
from tutti.resources import Resource
from tutti.runtime.bus import Bus
from tutti.runtime.transactions.books import Books, Place, opened

CONNECT_SECONDS: Final = 3.0  # for the servers, where a command can do without them
_URLS: Final = ("postgresql://", "postgres://")


class Desk(msgspec.Struct, frozen=True):
    """`bus`: None if no server can be reached; then `away` says why."""

    books: Books
    bus: Bus | None
    away: str = ""


def place_of(session: Session, journal: str) -> Place:
    """As `tutti.connect` finds it."""
    chosen = journal or os.environ.get("TUTTI_JOURNAL") or ""
    where = session.target
    match where:
        case InFolder(folder):
            pass
        case AtServers():
            folder = default_folder()
        case _:
            assert_never(where)
    return Place(chosen if chosen.startswith(_URLS) else str(_folder(chosen) if chosen else folder), folder)


def _folder(text: str) -> Path:
    if "://" in text:
        raise DeclarationError(
            f"{text.partition('://')[0]}:// is no place for a journal", hint="name a folder, or postgresql://…"
        )
    return Path(text).expanduser().absolute()


@contextlib.asynccontextmanager
async def desk(session: Session, journal: str, *, bus: bool) -> AsyncIterator[Desk]:
    """`bus`: connect, if a server runs."""
    async with opened(place_of(session, journal)) as books:
        if not bus:
            yield Desk(books, None, "it was not asked for")
            return
        found, away = await running_bus(session)
        try:
            yield Desk(books, found, away)
        finally:
            if found is not None:
                await found.close()


async def running_bus(session: Session) -> tuple[Bus | None, str]:
    """The bus, open, or why not. No server is started."""
    where = session.target
    if isinstance(where, InFolder):
        state = await asyncio.to_thread(inspect, where.folder) if where.folder.exists() else None
        if state is None or not state.running:
            return None, f"the server of {where.folder} does not run"
    bus = session.bus()
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await bus.open()
    except TuttiError as error:
        return None, error.what
    except TimeoutError:
        return None, f"no server answered within {CONNECT_SECONDS:g} s"
    return bus, ""


def operator_name() -> str:
    """For the record: who did it."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


# Databases


@contextlib.asynccontextmanager
async def reached(places: Sequence[str]) -> AsyncIterator[list[Resource[Any]]]:
    """The resources, started. `ResourceError` if one of them does not answer."""
    resources = [_resource(place) for place in places]
    names = [resource.name for resource in resources]
    for name in names:
        if names.count(name) > 1:
            raise DeclarationError(
                f"two of --resources are called {name!r}", hint="give one another name: --resources name=postgresql://…"
            )
    async with contextlib.AsyncExitStack() as stack:
        for resource, place in zip(resources, places, strict=True):
            stack.push_async_callback(resource.close)
            try:
                await resource.start()
                if resource.prepares:
                    await resource.recover()
            except ResourceError as error:
                raise ResourceError(
                    f"--resources {_public(place)}: {error.what}", hint=error.hint or "is the database running?"
                ) from error
        yield resources


def _resource(place: str) -> Resource[Any]:
    name, equals, url = place.partition("=")
    if place.startswith(_URLS):
        name, url = _database(place), place
    elif not (equals and url.startswith(_URLS)):
        [found] = load_resources([place])
        return found
    from tutti.resources.postgres.psycopg import PsycopgResource  # noqa: PLC0415  the driver is loaded where it is used

    return PsycopgResource(name, url)


def _database(url: str) -> str:
    """The database's name, which is a good one for a resource too, if it fits."""
    name = url.partition("://")[2].partition("/")[2].partition("?")[0]
    return "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in name) or "database"


def _public(place: str) -> str:
    head, scheme, rest = place.partition("://")
    return f"{head}{scheme}{rest.rpartition('@')[2]}"
