"""How the machines write down their transitions: state, cause, guards, next state.

Every change of state is a look into such a table. A guard is a name; the machine that owns the table says whether it
holds. Where there is no row, or a guard does not hold, nothing happens: that is how duplicates, late and unknown
messages change nothing. Guards are data, so a test can take each one away and see who notices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Generic, TypeVar

import msgspec

S = TypeVar("S", bound=StrEnum)
C = TypeVar("C", bound=StrEnum)
G = TypeVar("G", bound=StrEnum)


class Row(msgspec.Struct, Generic[S, G], frozen=True):
    """The next state, if all guards hold."""

    to: S
    guards: tuple[G, ...] = ()


Table = dict[S, dict[C, Row[S, G]]]


def follow(table: Table[S, C, G], state: S, cause: C, holds: Callable[[G], bool]) -> S | None:
    """The next state, or None if nothing happens."""
    row = table[state].get(cause)
    if row is None:
        return None
    for guard in row.guards:  # written out: every step of every machine comes by here, several times
        if not holds(guard):
            return None
    return row.to


def weakened(table: Table[S, C, G]) -> Iterator[tuple[S, C, G, Row[S, G]]]:
    """Every guard of every row in turn, with the row that lacks it: put it into `table[state][cause]`."""
    for state, rows in table.items():
        for cause, row in rows.items():
            for guard in row.guards:
                rest = tuple(other for other in row.guards if other is not guard)
                yield state, cause, guard, Row(row.to, rest)
