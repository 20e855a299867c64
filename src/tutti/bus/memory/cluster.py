"""The servers that transports in memory share, and what can be made to go wrong with them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tutti.bus.memory.clock import Clock, LoopClock
from tutti.bus.memory.stream import Stream
from tutti.bus.memory.subjects import check_subject, matcher, overlap
from tutti.bus.memory.waiting import Bell
from tutti.bus.memory.wire import Wire
from tutti.bus.port import StreamSpec
from tutti.errors import Gone, Refused
from tutti.limits import QUEUE_SILENCE_SECONDS, WIRE_MAX_BYTES

if TYPE_CHECKING:
    from tutti.bus.memory.transport import MemoryTransport


_KNOWN_SUBJECTS_MAX_COUNT: Final = 10_000  # a transaction's id is part of its subjects, so they are without number


class MemoryCluster:
    """The servers: streams, queues and wire. `silence` is how long a queue message is held without a word."""

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        silence: float = QUEUE_SILENCE_SECONDS,
        max_payload: int = WIRE_MAX_BYTES,
        request_timeout: float = 5.0,
    ) -> None:
        self.clock: Clock = clock if clock is not None else LoopClock()
        self.silence = silence
        self.max_payload = max_payload
        self.request_timeout = request_timeout
        self.full: set[str] = set()
        self.up = True
        self._streams: dict[str, Stream] = {}
        self._owners: dict[str, Stream] = {}
        self._wire = Wire()
        self._transports: dict[int, MemoryTransport] = {}
        self._transports_ever = 0
        self._acknowledgements_to_lose = 0
        self._progress = Bell()

    # Faults

    def stop(self) -> None:
        """The servers are gone, what they stored is not."""
        self.up = False

    def start(self) -> None:
        self.up = True
        for transport in tuple(self._transports.values()):
            transport._resume()

    def lose_acknowledgements(self, count: int = 1) -> None:
        """The next `count` appends are stored, but their senders never hear of it."""
        self._acknowledgements_to_lose += count

    def lose(self, stream: str, sequence: int) -> bool:
        """A record vanishes as by a broken disk: silently. (`Transport.remove` tells the readers it is taken from.)"""
        return self._stream(stream).discard(sequence)

    def delete(self, stream: str) -> None:
        """An operator deletes a stream with all that is in it. Nobody may be reading it."""
        del self._streams[stream]
        self._owners.clear()

    # Rest

    def idle(self) -> bool:
        """Nothing is left to be delivered: no append waits, no reader is behind, no listener has unread messages, and
        no message lies untaken in a queue that an open transport takes from. What handlers still do with what they
        were given is not known here."""
        if any(transport._waiting for transport in self._transports.values()):
            return False
        if any(listener.unread for listener in self._wire.listeners):
            return False
        taken_from = {name for transport in self._transports.values() for name in transport._takes_from}
        for stream in self._streams.values():
            if any(reader.behind for reader in stream.readers):
                return False
            if any(queue.untaken for name, queue in stream.queues.items() if name in taken_from):
                return False
        return True

    async def settled(self) -> None:
        """Returns when `idle()`. Whoever was woken last may not have run yet: ask it too."""
        while not self.idle():
            await self._progress.wait(self.clock, None)

    # For the transports

    def _stream(self, name: str) -> Stream:
        stream = self._streams.get(name)
        if stream is None:
            raise Gone(f"stream {name!r} does not exist", hint="call ensure_stream before the stream is used")
        return stream

    def _owner(self, subject: str) -> Stream:
        known = self._owners.get(subject)
        if known is not None:
            return known
        check_subject(subject)
        for stream in self._streams.values():
            if stream.owns(subject):
                if len(self._owners) >= _KNOWN_SUBJECTS_MAX_COUNT:
                    self._owners.clear()
                self._owners[subject] = stream
                return stream
        raise Refused(f"no stream takes {subject!r}", hint="call ensure_stream before the first append")

    def _ensure(self, spec: StreamSpec) -> Stream:
        if not re.fullmatch(r"[^\s.*>/\\]+", spec.name) or not spec.subjects:
            raise Refused(f"{spec.name!r} with subjects {spec.subjects!r} cannot be a stream", hint="name both")
        matches = matcher(spec.subjects)
        for other in self._streams.values():
            if other.spec.name != spec.name and overlap(spec.subjects, other.spec.subjects):
                raise Refused(
                    f"stream {spec.name!r} would share subjects with {other.spec.name!r}",
                    hint="every subject belongs to one stream: choose others",
                )
        existing = self._streams.get(spec.name)
        self._owners.clear()
        if existing is None:
            existing = self._streams[spec.name] = Stream(spec, matches, self)
        elif existing.spec.queue != spec.queue:
            raise Refused(f"stream {spec.name!r} cannot become or cease to be a queue", hint="use another name")
        else:
            existing.spec, existing.owns = spec, matches
        return existing

    def _acknowledgement_is_lost(self) -> bool:
        if self._acknowledgements_to_lose == 0:
            return False
        self._acknowledgements_to_lose -= 1
        return True
