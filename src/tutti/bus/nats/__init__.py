"""The transport over NATS JetStream, on a client of our own.

Why not the usual client, and what ours promises: `docs/adr/0002-own-nats-client.md`.
"""

from __future__ import annotations

from tutti.bus.nats.options import NatsOptions
from tutti.bus.nats.transport import NatsTransport

__all__ = ["NatsOptions", "NatsTransport"]
