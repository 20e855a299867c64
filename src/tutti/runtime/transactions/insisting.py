"""There is no way back from a decision: what it asks of a resource is tried until it is done."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from tutti.errors import ResourceError
from tutti.limits import FINISH_RETRY_MAX_SECONDS, FINISH_RETRY_SECONDS

log = logging.getLogger("tutti.transactions")


async def insist(work: Callable[[], Awaitable[None]], what: str) -> None:
    """After growing pauses. `what` it is, for the log."""
    pause = FINISH_RETRY_SECONDS
    while True:
        try:
            await work()
        except ResourceError as error:
            log.warning("%s: not yet: %s", what, error)
            await asyncio.sleep(pause)
            pause = min(2 * pause, FINISH_RETRY_MAX_SECONDS)
        else:
            return
