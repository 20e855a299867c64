from __future__ import annotations

import pytest

from tutti.errors import DeclarationError
from tutti.limits import RESOURCE_LOCK_SECONDS
from tutti.resources.postgres.options import PostgresOptions


def test_the_table_is_in_the_schema() -> None:
    assert PostgresOptions(schema="tutti").dialect.table == "tutti.tutti_barrier"


def test_locks_are_not_waited_for_for_ever() -> None:
    assert PostgresOptions().lock_timeout == RESOURCE_LOCK_SECONDS
    with pytest.raises(DeclarationError, match="for ever"):
        PostgresOptions(lock_timeout=0)


@pytest.mark.parametrize("schema", ["", "a.b", "A", 'x"', "x; drop table y", "1a"])
def test_the_schema_is_a_plain_name(schema: str) -> None:
    with pytest.raises(DeclarationError, match="plain lower-case name"):
        PostgresOptions(schema=schema)


def test_the_prefix_is_part_of_every_name() -> None:
    with pytest.raises(DeclarationError, match="prefix"):
        PostgresOptions(prefix="a:b")
