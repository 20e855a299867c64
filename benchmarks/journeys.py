"""What every side of the transaction benchmark does: one row in each of two databases of one PostgreSQL server."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import asyncpg
import msgspec

import tutti
from tutti.resources.embedded_postgres import EmbeddedPostgres

NAMES: Final = ("flights", "hotels")  # the subscribers, and their databases
GROUP: Final = "travel"
CONCURRENCY: Final = 32
CREATE: Final = "CREATE TABLE booking (number bigint NOT NULL, traveller text NOT NULL)"
INSERT: Final = "INSERT INTO booking (number, traveller) VALUES ($1, $2)"
TRAVELLER: Final = "Ada Lovelace"


class Booking(tutti.Event):
    number: int
    traveller: str


class Journey(tutti.TxType, events=[Booking]):
    destination: str


class Place(msgspec.Struct, frozen=True):
    """Where a run takes place: the data folder of the embedded server and the journal, and the databases."""

    data: Path
    databases: tuple[str, ...]  # URLs, in the order of NAMES
    system: str  # what DBOS keeps for itself


@contextlib.contextmanager
def place() -> Iterator[Place]:
    """Everything synced, as it comes; only room for all the pools that stand beside each other here."""
    with (
        tempfile.TemporaryDirectory(prefix="tutti-bench-") as folder,
        EmbeddedPostgres(Path(folder, "postgres"), max_prepared=400, max_connections=400) as postgres,
    ):
        databases = tuple(postgres.create_database(name) for name in NAMES)
        yield Place(Path(folder, "data"), databases, postgres.create_database("dbos_system"))


async def create_tables(databases: tuple[str, ...]) -> None:
    for url in databases:
        connection = await asyncpg.connect(url)
        await connection.execute(CREATE)
        await connection.close()


async def count_rows(databases: tuple[str, ...]) -> list[int]:
    """And nothing may be left prepared."""
    counts: list[int] = []
    for url in databases:
        connection = await asyncpg.connect(url)
        left = await connection.fetchval("SELECT count(*) FROM pg_prepared_xacts")
        if left:
            raise RuntimeError(f"{left} branches are left prepared")
        counts.append(await connection.fetchval("SELECT count(*) FROM booking"))
        await connection.close()
    return counts
