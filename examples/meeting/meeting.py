"""What everybody shares: the two types, and where the databases are. Nobody knows anybody else."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import Final

import tutti
from tutti.resources.embedded_postgres import EmbeddedPostgres
from tutti.resources.postgres.asyncpg import AsyncpgResource
from tutti.resources.postgres.options import PostgresOptions

PATIENCE_SECONDS: Final = 1.0  # without news for so long, a participant asks the others
LOCK_SECONDS: Final = 8.0  # for somebody else's lock on the same hour; then it votes no


class Invitation(tutti.Event):
    """Come to this room at this time."""

    subject: str
    starts: datetime
    room: str


class Meeting(tutti.TxType, events=[Invitation]):
    """The transaction. This is what its census announces, and what subscribers may filter on."""

    subject: str
    starts: datetime
    by_train: bool  # who sells tickets is interested in no other


def database_of(name: str) -> AsyncpgResource:
    """Each part has a PostgreSQL database of its own. Here one embedded server holds them all; a URL is all it takes to
    have them anywhere."""
    server = EmbeddedPostgres(Path(os.environ.get("MEETING_POSTGRES", ".tutti/postgres")))
    return AsyncpgResource("calendar", server.url(name), PostgresOptions(lock_timeout=LOCK_SECONDS))
