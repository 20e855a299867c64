"""Which events may run now?

One dispatcher for each subscription and instance. It decides; the runtime reads, calls handlers, writes and keeps time.

 1. First in, first out per *lane* (a publisher, or a publisher's key): an event starts only when every event that
    arrived before it on its lane is done. At most one call of a lane runs.
 2. Among lanes that are ready, the one whose head has the higher priority goes first, then the one whose head arrived
    first. A priority never lets an event pass another one of its own lane.
 3. At most `concurrency` calls run at once. A batch is one call.
 4. A failed event is tried again after a pause that grows. It holds back its own lane and no other.
 5. After the last attempt (or a final failure) the event is buried: the lane goes on, and the position moves, only when
    its dead letter is durable (`Buried`).
 6. An event whose time is over when its turn comes, first or later, is not handled: `Expire`, and it is done.
 7. `Advance(partition, position)`: every event of that partition that arrived at or below `position` is done. It is
    said only when the position moves. Sequences of a partition arrive rising; holes are normal.
 8. A batch takes up to `most` ready events, of several lanes and several of one lane, each lane in its order; it starts
    when `most` are ready or the oldest ready one arrived `wait` seconds ago. It fails as a whole, is tried again as a
    whole, and is buried as a whole: nothing tells which member was at fault. Only events with equally many failed
    attempts share a batch, so that nobody inherits another's last chance. A place that was counted on stays empty if
    its event turns out to be expired, or to have failed more often.
 9. `Revoked(partition)`: what waits is forgotten; what runs may finish, still holds its lane, and moves nothing.
    The same sequences may arrive again later.
10. `Draining(partition)`: it will be handed over. What waits is forgotten, and nothing more of it is taken; what runs
    or is being buried ends as usual and still moves the position. A failure counts, but the next attempt is the
    successor's. `Revoked` ends it.
11. `Paused`: nothing starts until `Resumed`. What runs, and what is being buried, ends as usual.
12. An input that is unknown, late or said twice changes nothing.
13. `WakeAt(time)` asks for an input with that time or a later one; the newest replaces those before it. A needless wake
    is harmless. All times are of one clock, and `expires_at` too.

The lane of an event is a function of the event: when it arrives again it has the same lane.

`messages`: inputs and effects. `life`: the life of one event as a table. `machine`: the state and `step`. `check`: the
invariants.
"""

from __future__ import annotations

from tutti.flow.dispatcher.check import check
from tutti.flow.dispatcher.machine import Dispatcher
from tutti.flow.dispatcher.messages import (
    Advance,
    Arrived,
    Buried,
    Bury,
    Draining,
    Effect,
    Expire,
    Failed,
    Input,
    Paused,
    Resumed,
    Returned,
    Revoked,
    Run,
    Skipped,
    Ticked,
    WakeAt,
)

__all__ = [
    "Advance",
    "Arrived",
    "Buried",
    "Bury",
    "Dispatcher",
    "Draining",
    "Effect",
    "Expire",
    "Failed",
    "Input",
    "Paused",
    "Resumed",
    "Returned",
    "Revoked",
    "Run",
    "Skipped",
    "Ticked",
    "WakeAt",
    "check",
]
