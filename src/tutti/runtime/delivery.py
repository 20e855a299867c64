"""What a handler gets beside its event."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from tutti.bus.port import Record
from tutti.errors import DeclarationError
from tutti.model import attributes
from tutti.model.envelope import Envelope, publisher_of

if TYPE_CHECKING:
    from tutti.runtime.bus import Bus

Reply = Callable[[object, Envelope], None]
"""Sends an answer to whoever made this request."""


class Delivery(msgspec.Struct, eq=False, gc=False):
    """One event on its way to one handler."""

    record: Record
    envelope: Envelope
    _reply: Reply
    _bus: Any = None
    attempt: int = 1
    matches: frozenset[Hashable] = frozenset()  # the keys of a match index's filters that this event passes

    def __repr__(self) -> str:
        return f"<Delivery of {self.type} {self.id} from {self.publisher}, attempt {self.attempt}>"

    @property
    def id(self) -> str:
        return self.envelope.id

    @property
    def type(self) -> str:
        return self.envelope.type

    @property
    def publisher(self) -> str:
        """The publisher's name: the same in each of its runs. With `id` it names the event for ever."""
        return publisher_of(self.envelope.source)

    @property
    def source(self) -> str:
        """The event's CloudEvents source: the publisher's name, and which run of it."""
        return self.envelope.source

    @property
    def bus(self) -> Bus:
        """The bus that the event came over: what a handler publishes on."""
        if self._bus is None:
            raise DeclarationError(f"{self.type} {self.id} came over no bus", hint="this delivery was made by hand")
        return self._bus  # type: ignore[no-any-return]  # msgspec must not look at the class: it would be a cycle

    @property
    def sequence(self) -> int:
        """The event's place in the log; 0 for a best-effort event."""
        return self.record.sequence

    @property
    def attributes(self) -> Mapping[str, str]:
        """Every CloudEvents context attribute."""
        return self.envelope.attributes()

    @property
    def traceparent(self) -> str:
        return self.envelope.extensions.get(attributes.TRACEPARENT, "")

    @property
    def time(self) -> datetime | None:
        """When the event happened, as its publisher says."""
        return datetime.fromisoformat(self.envelope.time) if self.envelope.time else None

    @property
    def wants_reply(self) -> bool:
        return attributes.REPLY_TO in self.envelope.extensions

    async def reply(self, event: object) -> None:
        """Answer whoever asked with `bus.request`. The answer carries the request's id as its `correlationid`."""
        if not self.wants_reply:
            raise DeclarationError(
                f"{self.type} {self.id} was published, not requested: nobody waits for a reply",
                hint="check `delivery.wants_reply` first",
            )
        self._reply(event, self.envelope)
