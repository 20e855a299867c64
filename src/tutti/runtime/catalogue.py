"""Which event types and streams exist: advertisements and stream settings, kept in the bus's state.

An advertisement is durable: it outlives its publisher, so that subscribers, tools and the next version of the publisher
can be held against it.
"""

from __future__ import annotations

import logging
from typing import Final, TypeVar

import msgspec

from tutti.bus.port import Entry, StreamSpec, Transport
from tutti.errors import Conflict, DeclarationError, TypeConflict, TypeNotAdvertised, UnknownType, Unreadable
from tutti.limits import DUPLICATE_WINDOW_SECONDS, EVENT_MAX_BYTES, HEADERS_MAX_BYTES
from tutti.model.advertisement import Advertisement, advertise, clashes, succeed
from tutti.model.decoding import UNDECODABLE
from tutti.model.event import CloudEvent, EventType, event_type
from tutti.model.subjects import Layout, checked_name, token
from tutti.model.txtype import TransactionType, TxAdvertisement, advertised, tx_clashes

T = TypeVar("T")
_TRANSACTION: Final = "txtype"  # the first token of the records' keys
log = logging.getLogger("tutti.catalogue")


class Stream(msgspec.Struct, frozen=True):
    """The user's settings for one stream of events. Tutti purges by `max_age` and `max_bytes`, but never what a durable
    subscriber has still to read; at `full_at_bytes` the stream refuses new events rather than drop old ones."""

    max_age: float | None = None  # seconds; None keeps for ever
    max_bytes: int | None = None
    full_at_bytes: int | None = None
    replicas: int = 1


class Catalogue:
    """The types and streams of one bus, with what this process has already seen of them."""

    def __init__(self, transport: Transport, layout: Layout, streams: dict[str, Stream]) -> None:
        self._transport = transport
        self._layout = layout
        self._declared = streams
        self._advertised: set[EventType] = set()  # this process may publish them
        self._begun: set[TransactionType] = set()  # … and begin transactions of these types
        self._ensured: set[str] = set()

    async def advertise(self, cls: type) -> Advertisement:
        """Make the type known, durably. Refuses a change that would break publishers or subscribers of the known."""
        known_type = event_type(cls)
        _refuse_any(known_type)
        new = advertise(known_type)
        key = f"type.{known_type.token}"
        while True:
            entry = await self._transport.state_get(key)
            known = _readable(entry, Advertisement) if entry is not None else None
            if known is not None:
                _refuse_clashes(known, new)
                new = succeed(known, new)
            if known == new:
                break
            try:
                await self._transport.state_put(
                    key, msgspec.json.encode(new), expected=entry.revision if entry is not None else 0
                )
            except Conflict:
                continue
            break
        self._ensured.discard(known_type.stream)  # somebody may have deleted it
        await self.ensure_stream(known_type.stream)
        self._advertised.add(known_type)
        return new

    def may_publish(self, known_type: EventType) -> bool:
        return known_type in self._advertised

    async def require(self, known_type: EventType) -> None:
        """The slow way of `may_publish`: somebody else may have advertised exactly this type before."""
        _refuse_any(known_type)
        found = await self.find(known_type.name)
        if found is None:
            raise TypeNotAdvertised(
                f"{known_type.name} is not advertised, so nothing was published",
                hint=f"call `await bus.advertise({known_type.name.rsplit('.', 1)[-1]})` once before publishing it",
            )
        _refuse_clashes(found, advertise(known_type))
        await self.ensure_stream(known_type.stream)
        self._advertised.add(known_type)

    async def find(self, name: str) -> Advertisement | None:
        entry = await self._transport.state_get(f"type.{token(name)}")
        return _readable(entry, Advertisement) if entry is not None else None

    async def get(self, name: str) -> Advertisement:
        found = await self.find(name)
        if found is None:
            names = ", ".join(a.type for a in await self.types()) or "none yet"
            raise UnknownType(f"no type {name!r} is advertised", hint=f"advertised types: {names}")
        return found

    async def types(self) -> list[Advertisement]:
        entries = await self._transport.state_list("type")
        found = []
        for entry in entries:
            try:
                found.append(_readable(entry, Advertisement))
            except Unreadable as error:
                log.error("%s", error.what)  # noqa: TRY400 one spoilt record must not hide the others
        return found

    async def withdraw(self, name: str) -> None:
        """Forget an advertisement; the events stay."""
        entry = await self._transport.state_get(f"type.{token(name)}")
        if entry is None:
            raise UnknownType(f"no type {name!r} is advertised")
        await self._transport.state_put(entry.key, b"", expected=entry.revision)

    # Transaction types

    async def advertise_transaction(self, kind: TransactionType) -> TxAdvertisement:
        """Make known what such a transaction announces and may publish, durably. Refuses a change that others could not
        live with."""
        new, key = advertised(kind), f"{_TRANSACTION}.{kind.token}"
        while True:
            entry = await self._transport.state_get(key)
            known = _readable(entry, TxAdvertisement) if entry is not None and entry.value else None
            if known is not None:
                _refuse_tx_clashes(known, new)
            if known is not None and known.version >= new.version:
                break  # the newest stays
            try:
                await self._transport.state_put(
                    key, msgspec.json.encode(new), expected=entry.revision if entry is not None else 0
                )
            except Conflict:
                continue
            break
        self._begun.add(kind)
        return new

    def may_begin(self, kind: TransactionType) -> bool:
        return kind in self._begun

    async def check_transaction(self, kind: TransactionType) -> None:
        """Whoever takes part is held against what publishers advertised, if they did already."""
        entry = await self._transport.state_get(f"{_TRANSACTION}.{kind.token}")
        if entry is not None and entry.value:
            _refuse_tx_clashes(_readable(entry, TxAdvertisement), advertised(kind))

    async def transaction_types(self) -> list[TxAdvertisement]:
        entries = await self._transport.state_list(_TRANSACTION)
        return [_readable(entry, TxAdvertisement) for entry in entries if entry.value]

    # Streams

    async def ensure_stream(self, name: str) -> None:
        """Create the stream that a type names, with the settings declared for it here or earlier elsewhere."""
        if name in self._ensured:
            return
        settings = await self._settle_settings(checked_name(name, "stream"))
        await self._transport.ensure_stream(
            StreamSpec(
                name=self._layout.event_stream(name),
                subjects=(self._layout.event_subjects(name), self._layout.transactional_subjects(name)),
                max_bytes=settings.full_at_bytes or -1,
                max_message_bytes=EVENT_MAX_BYTES + HEADERS_MAX_BYTES,
                replicas=settings.replicas,
                duplicate_window=DUPLICATE_WINDOW_SECONDS,
            )
        )
        self._ensured.add(name)

    async def restore_stream(self, name: str) -> None:
        """Make a stream anew that was deleted."""
        self._ensured.discard(name)
        await self.ensure_stream(name)

    async def streams(self) -> dict[str, Stream]:
        entries = await self._transport.state_list("stream")
        return {entry.key.split(".", 1)[1]: _readable(entry, Stream) for entry in entries}

    async def _settle_settings(self, name: str) -> Stream:
        """Settings declared here win and are kept for everybody; otherwise those kept; otherwise the defaults."""
        while True:
            entry = await self._transport.state_get(f"stream.{name}")
            kept = _readable(entry, Stream) if entry is not None else None
            wanted = self._declared.get(name) or kept or Stream()
            if wanted == kept:
                return wanted
            try:
                await self._transport.state_put(
                    f"stream.{name}", msgspec.json.encode(wanted), expected=entry.revision if entry is not None else 0
                )
            except Conflict:
                continue
            return wanted


def _refuse_any(known_type: EventType) -> None:
    if known_type.python is CloudEvent:
        raise DeclarationError(
            "a CloudEvent stands for events of any type, so it can only be received",
            hint="declare a class with the fields of what you publish",
        )


def _refuse_clashes(known: Advertisement, new: Advertisement) -> None:
    found = clashes(known, new)
    if found:
        listing = "".join(f"\n    - {clash}" for clash in found)
        raise TypeConflict(
            f"{new.type} was advertised before (version {known.version}) and the new form does not fit it:{listing}",
            clashes=tuple(found),
            hint="keep the old fields and give new ones defaults, or publish the new form under another type name",
        )


def _refuse_tx_clashes(known: TxAdvertisement, new: TxAdvertisement) -> None:
    found = tx_clashes(known, new)
    if found:
        listing = "".join(f"\n    - {clash}" for clash in found)
        raise TypeConflict(
            f"the transaction type {new.type} was advertised before (version {known.version}) and the new form does "
            f"not fit it:{listing}",
            clashes=found,
            hint="keep the old fields and events, or give the new form another name",
        )


def _readable(entry: Entry, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(entry.value, type=kind)
    except UNDECODABLE as error:
        raise Unreadable(
            f"the record {entry.key} is unreadable: {error}",
            hint="somebody else wrote it; `tutti doctor` shows what is wrong, and it can be written anew",
        ) from error
