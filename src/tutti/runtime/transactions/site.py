"""What all participations of one subscriber in this process share."""

from __future__ import annotations

from tutti.flow.matcher import Matcher
from tutti.journal import ParticipantLog
from tutti.model.event import CloudEvent
from tutti.runtime.context import Context
from tutti.runtime.subscriber import Subscription
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
