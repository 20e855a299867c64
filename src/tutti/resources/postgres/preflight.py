"""Whether a PostgreSQL server can take part, found out before the first transaction needs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from tutti.errors import ResourceUnfit
from tutti.limits import PREPARED_FULL_RATIO
from tutti.resources.port import Preflight
from tutti.resources.postgres.driver import HOW_TO_PREPARE

OLDEST: Final = 130_000  # pg_current_xact_id_if_assigned; what is older is not maintained any more

FACTS: Final = (
    "SELECT current_setting('server_version_num')::int, current_setting('server_version'), "
    "current_setting('max_prepared_transactions')::int, current_setting('max_connections')::int, "
    "(SELECT count(*)::int FROM pg_prepared_xacts), "
    "pg_is_in_recovery(), current_setting('default_transaction_read_only')::bool, "
    "current_setting('fsync')::bool, current_setting('synchronous_commit')"
)


class Facts(msgspec.Struct, frozen=True, array_like=True):
    """One row of `FACTS`. `prepared_now` counts all of the server: its databases share one table of a fixed size."""

    number: int
    version: str
    prepared_max: int
    connections_max: int
    prepared_now: int
    standby: bool
    read_only: bool
    fsync: bool
    synchronous_commit: str


def facts_of(row: Sequence[object]) -> Facts:
    return msgspec.convert(list(row), Facts)


def checked(name: str, facts: Facts, *, barrier: bool, durable: bool) -> Preflight:
    """Raises `ResourceUnfit` for the first thing that makes it unfit."""
    for what, hint in _objections(facts, barrier=barrier, durable=durable):
        raise ResourceUnfit(f"resource {name!r}: {what}", hint=hint)
    return Preflight(facts.version, facts.prepared_now, facts.prepared_max, _warnings(facts))


def _objections(facts: Facts, *, barrier: bool, durable: bool) -> list[tuple[str, str]]:
    found = []
    if facts.number < OLDEST:
        found.append((f"PostgreSQL {facts.version} is too old", "use version 13 or newer"))
    if facts.standby or facts.read_only:
        found.append(("the server is read-only (a standby, or default_transaction_read_only)", "use the primary's URL"))
    if facts.prepared_max == 0:
        found.append(("prepared transactions are switched off (max_prepared_transactions = 0)", HOW_TO_PREPARE))
    elif facts.prepared_now >= facts.prepared_max:
        hint = "finish old ones (SELECT * FROM pg_prepared_xacts), or raise max_prepared_transactions and restart"
        found.append((f"all {facts.prepared_max} places for prepared transactions are taken", hint))
    if durable and not facts.fsync:
        found.append(("the server does not sync its writes (fsync = off)", "set fsync = on"))
    if durable and barrier and facts.synchronous_commit == "off":
        # PREPARE and COMMIT PREPARED are always synced; the one-phase commit of a compensatable participant is not.
        hint = "ALTER ROLE … SET synchronous_commit = on, or set it for the database"
        found.append(("commits are acknowledged before they are synced (synchronous_commit = off)", hint))
    return found


def _warnings(facts: Facts) -> tuple[str, ...]:
    found = []
    if facts.prepared_now >= PREPARED_FULL_RATIO * facts.prepared_max:
        found.append(f"{facts.prepared_now} of {facts.prepared_max} places for prepared transactions are taken")
    if facts.prepared_max < facts.connections_max:
        found.append(
            f"max_prepared_transactions ({facts.prepared_max}) is below max_connections ({facts.connections_max}): "
            "under load some transactions will find no place and abort"
        )
    return tuple(found)
