"""The records of a bus's state as they are found, not as they should be: somebody else may have written there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeVar

import msgspec
from rich.console import RenderableType

from tutti.bus.port import Entry
from tutti.cli.options import Session
from tutti.errors import DeclarationError, TuttiError
from tutti.model.advertisement import Advertisement
from tutti.model.subjects import Layout
from tutti.runtime.bus import Bus
from tutti.runtime.catalogue import Stream
from tutti.runtime.leases import Lease
from tutti.runtime.positions import Positions, Registration

T = TypeVar("T")

_KINDS: Final[dict[str, tuple[type[object], int]]] = {  # what its value is, and how many tokens its key has
    "type": (Advertisement, 2),
    "stream": (Stream, 2),
    "subscription": (Registration, 3),
    "position": (Positions, 3),
    "lease": (Lease, 3),
}
_BY_PARTITION: Final = ("position", "lease")
FORGETTABLE: Final = ("type", "stream")  # the others are written anew, or dropped with their subscriber


class SpoiltRecord(msgspec.Struct, frozen=True):
    key: str
    why: str

    @property
    def kind(self) -> str:
        return self.key.split(".")[0]


async def all_records(bus: Bus) -> list[Entry]:
    return [entry for kind in _KINDS for entry in await bus.context.transport.state_list(kind)]


def spoilt(entries: Iterable[Entry]) -> list[SpoiltRecord]:
    return [SpoiltRecord(entry.key, why) for entry in entries if (why := _fault(entry))]


def decoded(entries: Iterable[Entry], kind: type[T]) -> dict[str, T]:
    """The sound records of that kind, by key."""
    return {
        entry.key: msgspec.json.decode(entry.value, type=kind)
        for entry in entries
        if _KINDS[entry.key.split(".")[0]][0] is kind and not _fault(entry)
    }


def sound(entries: Iterable[Entry]) -> list[Entry]:
    return [entry for entry in entries if not _fault(entry)]


def _fault(entry: Entry) -> str:
    tokens = entry.key.split(".")
    kind, length = _KINDS[tokens[0]]
    if len(tokens) != length:
        return f"such a key has {length} parts"
    if tokens[0] in _BY_PARTITION and not (tokens[-1].isascii() and tokens[-1].isdecimal()):
        return f"{tokens[-1]} is no partition"
    try:
        msgspec.json.decode(entry.value, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return str(error) or type(error).__name__
    return ""


def missing_streams(entries: Iterable[Entry], there: Iterable[str], layout: Layout) -> dict[str, list[str]]:
    """Streams that somebody counts on and that do not exist, with those who do."""
    entries = list(entries)
    needed: dict[str, list[str]] = {}
    for registration in decoded(entries, Registration).values():
        reader = f"{registration.subscriber}.{registration.subscription} reads it"
        needed.setdefault(registration.stream, []).append(reader)
    for known in decoded(entries, Advertisement).values():
        needed.setdefault(layout.event_stream(known.stream), []).append(f"{known.type} is kept in it")
    present = set(there)
    return {name: why for name, why in sorted(needed.items()) if name not in present}


class Forgotten(msgspec.Struct, frozen=True):
    key: str

    def __rich__(self) -> RenderableType:
        return f"the record {self.key} is forgotten"


async def forget(session: Session, key: str) -> None:
    """Remove a record that cannot be read; one that can is left alone."""
    if key.split(".", maxsplit=1)[0] not in FORGETTABLE:
        raise DeclarationError(
            f"{key!r} is no record that can be forgotten", hint="only type.… and stream.…; see what `tutti doctor` says"
        )
    async with session.bus(create=False) as bus:
        found = [entry for entry in await all_records(bus) if entry.key == key]
        if not spoilt(found):
            raise TuttiError(
                f"the record {key} {'can be read' if found else 'does not exist'}: nothing was done",
                hint="`tutti doctor` names those that cannot be read",
            )
        await bus.context.transport.state_put(key, b"", expected=found[0].revision)
    session.output.show(Forgotten(key))
