"""What is opened when it is first asked for, and closed at the end if it was."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

from tutti.errors import TuttiError


class Closable(Protocol):
    async def close(self) -> None: ...


T = TypeVar("T", bound=Closable)


class Once(Generic[T]):
    """Of several that ask at the same time one opens it. What could not be opened is tried again by the next."""

    def __init__(self, open: Callable[[], Awaitable[T]]) -> None:  # noqa: A002  it is the word for it
        self._open = open
        self._opening: asyncio.Future[T] | None = None

    async def get(self) -> T:
        opening = self._opening
        if opening is None or (opening.done() and (opening.cancelled() or opening.exception() is not None)):
            opening = self._opening = asyncio.ensure_future(self._open())
        return await asyncio.shield(opening)

    @property
    def opened(self) -> T | None:
        """What is open now. Does not open it."""
        opening = self._opening
        done = opening is not None and opening.done() and not opening.cancelled() and opening.exception() is None
        return opening.result() if opening is not None and done else None

    async def close(self) -> None:
        opening, self._opening = self._opening, None
        if opening is not None:
            with contextlib.suppress(TuttiError):
                await (await opening).close()
