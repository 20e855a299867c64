"""The pytest plugin: the fixture `tutti_bus`.

Loaded by every pytest run in an environment that has Tutti: it imports nothing of it before the fixture is asked for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

try:
    import pytest_asyncio
except ImportError:  # anyio users write `async with BusKit() as bus:` themselves
    pytest_asyncio = None  # type: ignore[assignment]  # the name must exist

if TYPE_CHECKING:
    from tutti.testing.kit import BusKit

if pytest_asyncio is not None:

    @pytest_asyncio.fixture
    async def tutti_bus() -> AsyncIterator[BusKit]:
        """An open bus in memory with a clock of its own; see `tutti.testing.kit`."""
        from tutti.testing.kit import BusKit  # noqa: PLC0415 see above

        async with BusKit() as bus:
            yield bus
