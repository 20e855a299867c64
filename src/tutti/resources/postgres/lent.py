"""A connection as its user has it: an object for one work, which dies with it and never comes back to life.

What is behind it goes back to a pool, is reset and lent again, and no moment of that may show. So nothing is asked of
the connection's own state:

1. One lent object for one lending. `end` is the only change that it knows.
2. The connection's methods run with the lent object as their `self`. What they make (cursors, transactions, prepared
   statements, coroutines that nobody has awaited yet) holds the lent object too, and dies with it.
3. Every attribute is asked for here, and only while the lent object lives.
"""

from __future__ import annotations

from types import MethodType
from typing import Any

from tutti.resources.postgres.statements import work_ended


class Lent:
    """Stands for a connection until it is given back; then for nothing. To `isinstance` it is what it stands for."""

    __slots__ = ("_lent_behind", "_lent_over")

    def __init__(self, behind: object) -> None:
        object.__setattr__(self, "_lent_behind", behind)
        object.__setattr__(self, "_lent_over", False)

    @property  # type: ignore[misc]  # object's is an attribute; this is what isinstance() and super() ask for
    def __class__(self) -> type:
        return type(object.__getattribute__(self, "_lent_behind"))

    def __getattr__(self, name: str) -> Any:
        behind = _alive(self)
        value = getattr(behind, name)
        if value is behind:
            return self
        if isinstance(value, MethodType) and value.__self__ is behind:
            return MethodType(value.__func__, self)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(_alive(self), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(_alive(self), name)


def end(lent: object) -> None:
    object.__setattr__(lent, "_lent_over", True)


def behind(lent: object) -> Any:
    """What it stands for, whether it lives or not. For those who lend."""
    return object.__getattribute__(lent, "_lent_behind")


def _alive(lent: Lent) -> Any:
    if object.__getattribute__(lent, "_lent_over"):
        raise work_ended()
    return behind(lent)
