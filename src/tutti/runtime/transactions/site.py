"""What all participations of one subscriber in this process share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tutti.errors import TuttiError
from tutti.flow.matcher import Matcher
from tutti.journal import ParticipantLog
from tutti.limits import REASON_MAX_CHARACTERS
from tutti.model.event import CloudEvent
from tutti.runtime.context import Context
from tutti.runtime.subscriber import Subscription
from tutti.runtime.transactions.branch import Branch
from tutti.runtime.transactions.joining import Parts


class Site:
    """`instance` is the name under which this process beats and writes to the log."""

    def __init__(self, context: Context, parts: Parts, log: ParticipantLog, instance: str) -> None:
        self.context = context
        self.parts = parts
        self.log = log
        self.instance = instance
        self._matchers: dict[str, Matcher] = {}

    @property
    def subscriber(self) -> str:
        return self.parts.subscriber

    @property
    def now(self) -> float:
        return self.context.clock.wall()

    def matcher(self, subscription: Subscription) -> Matcher:
        found = self._matchers.get(subscription.name)
        if found is None:
            untyped = subscription.type.python is CloudEvent
            python = None if untyped else subscription.type.python
            found = self._matchers[subscription.name] = Matcher(subscription.filter, subscription.match, python)
        return found

    async def call(
        self, function: Callable[..., Any], subscription: Subscription, name: str, value: Any, branch: Branch
    ) -> None:
        """A handler, or its compensator, within the handler's time. The branch is over afterwards."""
        failure = "it was ended"
        try:
            async with asyncio.timeout(subscription.policy.handler_timeout):
                await function(value, branch)
            failure = ""
        except Exception as error:
            failure = said(error)
            raise
        finally:
            branch.close()
            if self.context.witness is not None:
                self.context.witness(self.subscriber, name, [value], 1, failure)


def said(error: BaseException) -> str:
    """Why something failed, as votes and reports say it."""
    if isinstance(error, TuttiError):
        return sayable(error.what)
    return sayable(f"{type(error).__name__}: {sayable(error)}")


def sayable(reason: object) -> str:
    """A reason travels, and stands in the journal: as text, in UTF-8, and no more of it than a person reads."""
    try:
        return str(reason)[:REASON_MAX_CHARACTERS].encode(errors="replace").decode()
    except Exception as error:  # noqa: BLE001  whatever a user's __str__ raises, it must not keep a vote back
        return f"{type(reason).__name__} cannot be shown: {type(error).__name__}"
