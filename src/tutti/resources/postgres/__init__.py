"""PostgreSQL, which can prepare: through asyncpg, psycopg, or SQLAlchemy over either.

    from tutti.resources.postgres.asyncpg import AsyncpgResource
    from tutti.resources.postgres.psycopg import PsycopgResource
    from tutti.resources.postgres.sqlalchemy import SqlalchemyConnectionResource, SqlalchemySessionResource

No driver is loaded by this package itself.
"""

from __future__ import annotations

from tutti.resources.postgres.options import PostgresOptions
from tutti.resources.postgres.resource import PostgresResource

__all__ = ["PostgresOptions", "PostgresResource"]
