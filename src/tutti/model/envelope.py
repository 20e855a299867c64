"""An event as it travels: context attributes around opaque bytes."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec

from tutti.model.attributes import SPECVERSION

JSON: Final = "application/json"


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """One CloudEvent. Filters reach its attributes as `ce.name`; its data are bytes until a type decodes them."""

    id: str
    source: str
    type: str
    data: bytes = b""
    time: str | None = None  # RFC 3339
    datacontenttype: str | None = JSON
    dataschema: str | None = None
    subject: str | None = None
    extensions: dict[str, str] = {}

    def attributes(self) -> dict[str, str]:
        """Every context attribute that is set, in its canonical text form."""
        found = {"specversion": SPECVERSION, "id": self.id, "source": self.source, "type": self.type}
        if self.time is not None:
            found["time"] = self.time
        if self.datacontenttype is not None:
            found["datacontenttype"] = self.datacontenttype
        if self.dataschema is not None:
            found["dataschema"] = self.dataschema
        if self.subject is not None:
            found["subject"] = self.subject
        if self.extensions:
            found.update(self.extensions)
        return found

    @property
    def holds_json(self) -> bool:
        """Whether the data are declared to be JSON. Nothing declared counts as JSON too."""
        return self.datacontenttype is None or is_json(self.datacontenttype)


def is_json(content_type: str) -> bool:
    """`*/json` and `*/*+json`, whatever the parameters."""
    media_type = content_type.partition(";")[0].strip().lower()
    subtype = media_type.rpartition("/")[2]
    return subtype == "json" or subtype.endswith("+json")


@lru_cache(maxsize=4_096)
def publisher_of(source: str) -> str:
    """The publisher's name in an event's source; a foreign source is its own publisher."""
    if source.startswith("/") and source.count("/") == 2:
        return source.split("/")[1]
    return source
