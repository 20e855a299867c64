"""What the journal's statements need of a database: a transaction that is open, and a clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

Row = tuple[Any, ...]


class Rows(Protocol):
    """An open database transaction. Statements are written for both databases: `?` for values, `ON CONFLICT`."""

    @property
    def now(self) -> float:
        """The journal's clock, when the transaction began."""

    @property
    def lock(self) -> str:
        """Ends a SELECT whose rows are to stay as they are until the transaction ends."""

    def all(self, statement: str, *values: object) -> list[Row]: ...

    def one(self, statement: str, *values: object) -> Row | None: ...

    def run(self, statement: str, *values: object) -> int:
        """How many rows were written."""


def places(values: Sequence[object]) -> str:
    """`?, ?, ?` for as many values."""
    return ", ".join("?" * len(values))
