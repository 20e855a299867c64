"""The embedded server: a nats-server of our own, shared by all processes of a machine that name the same data folder.

How it works, and what happens when something is killed: `docs/embedded.md`; why: `docs/adr/0003-embedded-server.md`.
"""

from __future__ import annotations

from tutti.bus.embedded.folder import UserRecord, default_folder
from tutti.bus.embedded.inspection import ServerState, ailment_of, inspect
from tutti.bus.embedded.session import Embedded

__all__ = ["Embedded", "ServerState", "UserRecord", "ailment_of", "default_folder", "inspect"]
