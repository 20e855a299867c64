"""What can be chosen about a PostgreSQL resource."""

from __future__ import annotations

import re
from typing import Final, Literal

import msgspec

from tutti.errors import DeclarationError
from tutti.limits import (
    RESOURCE_CONNECT_SECONDS,
    RESOURCE_CONNECTIONS_COUNT,
    RESOURCE_LOCK_SECONDS,
    RESOURCE_SPARE_CONNECTIONS_COUNT,
    RESOURCE_STATEMENT_SECONDS,
)
from tutti.resources.barrier import POSTGRES_BLOB, TABLE, Dialect
from tutti.resources.gid import PREFIX, BranchId, gid_of

Isolation = Literal["read committed", "repeatable read", "serializable"]
_IDENTIFIER: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")


class PostgresOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`lock_timeout` must stay below the protocol's time-outs: then a branch that waits for a lock votes no by itself,
    before somebody else has to give up on it. All times in seconds."""

    prefix: str = PREFIX
    schema: str = "public"  # of the barrier table
    isolation: Isolation | None = None  # None: the database's default
    lock_timeout: float = RESOURCE_LOCK_SECONDS
    statement_timeout: float = RESOURCE_STATEMENT_SECONDS  # of our own statements; those of the user have none from us
    connect_timeout: float = RESOURCE_CONNECT_SECONDS
    connections: int = RESOURCE_CONNECTIONS_COUNT
    spare_connections: int = RESOURCE_SPARE_CONNECTIONS_COUNT
    durable: bool = True  # False: a server that does not sync its writes is fit all the same (tests)

    def __post_init__(self) -> None:
        gid_of(self.prefix, BranchId("x", "x", "x"))
        if not _IDENTIFIER.fullmatch(self.schema):
            raise DeclarationError(
                f"the schema {self.schema!r} of the barrier table is not a plain lower-case name",
                hint="use letters, digits and '_'",
            )
        if self.lock_timeout <= 0:
            raise DeclarationError("lock_timeout must be positive", hint="0 would mean to wait for ever")

    @property
    def dialect(self) -> Dialect:
        blob_type, blob_start, blob_end = POSTGRES_BLOB
        now = "extract(epoch from clock_timestamp())"
        return Dialect(f"{self.schema}.{TABLE}", blob_type, blob_start, blob_end, now)
