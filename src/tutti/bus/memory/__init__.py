"""The bus in memory: the whole port within one event loop, for tests, notebooks and the simulator.

A `MemoryCluster` stands for the servers, a `MemoryTransport` for one process's connection to them; transports that
share a cluster see the same streams, state, queues and wire. Nothing here polls: whoever waits is woken.

What can be made to go wrong, and what then happens:

    cluster.stop(), start()               nobody reaches the servers; appends wait, then are `Refused`; reads wait
    transport.cut(), mend()               the same for one connection
    cluster.full.add(stream)              its appends are `Refused`
    cluster.lose_acknowledgements(n)      the next n appends are stored, and fail with `OutcomeUnknown`
    cluster.lose(stream, sequence)        a record vanishes and no reader is told
    cluster.delete(stream)                a stream is gone, and may be made anew

Cluster and transport know each other's insides: their names with an underscore belong to this package.
"""

from __future__ import annotations

from tutti.bus.memory.clock import Clock, Timer
from tutti.bus.memory.cluster import MemoryCluster
from tutti.bus.memory.transport import MemoryTransport

__all__ = ["Clock", "MemoryCluster", "MemoryTransport", "Timer"]
