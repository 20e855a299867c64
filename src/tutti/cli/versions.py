"""`tutti version`."""

from __future__ import annotations

import platform
from importlib import metadata

import msgspec
from rich.console import RenderableType

from tutti.bus.embedded.binary import binary_version, find_binary
from tutti.errors import EmbeddedError


class Versions(msgspec.Struct, frozen=True):
    tutti: str
    python: str
    nats_server: str  # the installed one that the embedded server is made of; empty if there is none

    def __rich__(self) -> RenderableType:
        server = f"nats-server {self.nats_server}" if self.nats_server else "no nats-server installed"
        return f"tutti {self.tutti} (Python {self.python}, {server})"


def installed() -> Versions:
    try:
        server = binary_version(find_binary())
    except EmbeddedError:
        server = ""
    return Versions(metadata.version("tutti"), platform.python_version(), server)
