"""What a publisher makes known of a type, and what may change about it later.

Every version of a type must go together with every other one (`schema_clashes` says what that means), because events of
all versions lie in the same log and programs of all versions run side by side. A change that does not is a new type,
under another name. A changed schema needs a higher version: so a version names one schema, and the highest is the
newest, in whatever order old and new publishers start.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tutti.model.declaration import RoutingAttribute
from tutti.model.event import EventType, Grade
from tutti.model.schema import json_schema
from tutti.model.schema_clashes import same_values, schema_clashes


class Advertisement(msgspec.Struct, frozen=True):
    """One event type, as everybody may know it. `earlier` are the schemas of lower versions that it replaced."""

    type: str
    version: int
    schema: dict[str, Any]  # JSON Schema, 2020-12
    routing: tuple[RoutingAttribute, ...] = ()
    key: str | None = None
    stream: str = "events"
    grade: Grade = "at_least_once"
    lifetime: float | None = None  # seconds
    priority: int = 0
    earlier: tuple[dict[str, Any], ...] = ()
    format: int = 1  # of this record


def advertise(event_type: EventType) -> Advertisement:
    """The advertisement of a type."""
    return Advertisement(
        type=event_type.name,
        version=event_type.version,
        schema=json_schema(event_type.python),
        routing=event_type.routing,
        key=event_type.key,
        stream=event_type.stream,
        grade=event_type.grade,
        lifetime=event_type.lifetime,
        priority=event_type.priority,
    )


def clashes(known: Advertisement, new: Advertisement) -> tuple[str, ...]:
    """Why `new` cannot stand beside `known`: a sentence for each reason, naming the field. None: it can."""
    found = list(_address_clashes(known, new))
    for schema in (known.schema, *known.earlier):
        older, newer = (schema, new.schema) if new.version >= known.version else (new.schema, schema)
        found += schema_clashes(older, newer)
    if not found and new.version == known.version and not same_values(known.schema, new.schema):
        found.append(f"the fields changed, but the version is still {new.version}: declare version={new.version + 1}")
    return tuple(dict.fromkeys(found))


def _address_clashes(known: Advertisement, new: Advertisement) -> list[str]:
    """What decides where events lie: whoever looks in the old place would miss the new ones."""
    found = []
    if known.type != new.type:
        found.append(f"the type is called {new.type}, not {known.type}")
    if known.routing != new.routing:
        found.append(f"the routing attributes changed from {_listed(known.routing)} to {_listed(new.routing)}")
    if known.key != new.key:
        found.append(f"the key changed from {known.key or 'none'} to {new.key or 'none'}")
    if known.stream != new.stream:
        found.append(f"the stream changed from {known.stream} to {new.stream}")
    if known.grade != new.grade:
        found.append(f"the grade changed from {known.grade} to {new.grade}")
    return found


def _listed(routing: tuple[RoutingAttribute, ...]) -> str:
    return ", ".join(f"{a.name} ({a.kind}{', optional' if a.optional else ''})" for a in routing) or "none"


def succeed(known: Advertisement, new: Advertisement) -> Advertisement:
    """What to keep when `new` is advertised beside `known`, with which it does not clash.

    A field that a version dropped must not come back as something else while events that hold it are in the log: so the
    schemas of all versions are kept."""
    newest, other = (new, known) if new.version >= known.version else (known, new)
    earlier = [*known.earlier]
    if not any(same_values(other.schema, schema) for schema in (newest.schema, *earlier)):
        earlier.append(other.schema)
    return msgspec.structs.replace(newest, earlier=tuple(earlier))
