"""What must be true of a dispatcher between any two steps."""

from __future__ import annotations

from tutti.errors import invariant
from tutti.flow.dispatcher.life import BURYING, DONE, FORGOTTEN, NOBODY, ORPHANED, RETRYING, RUNNING, WAITING, Event
from tutti.flow.dispatcher.machine import Dispatcher


def check(dispatcher: Dispatcher) -> None:
    """Raises `InvariantViolated` if the state contradicts itself. For tests: it reads everything."""
    alive = [e for home in dispatcher._partitions.values() for e in home.pending if e.life not in {DONE, FORGOTTEN}]
    orphans = [e for members in dispatcher._running.values() for e in members if e.life is ORPHANED]
    _check_counts(dispatcher, alive, orphans)
    _check_lanes(dispatcher, alive, orphans)
    for home in dispatcher._partitions.values():
        sequences = [e.sequence for e in home.pending]
        invariant(sequences == sorted(set(sequences)), "a partition's events are out of order")
        invariant(all(e.sequence <= e.up_to <= home.last for e in home.pending), "a position passes what arrived")
        invariant(not sequences or home.floor < sequences[0], "a position passed an event that is not done")
        invariant(not home.pending or home.pending[0].life is not DONE, "a position was not moved")
        failed = {e.sequence: e.attempts for e in home.pending if e.attempts and e.life is not DONE}
        invariant(failed == home.failed, "the failed attempts are miscounted")
    if not dispatcher._paused and len(dispatcher._running) < dispatcher._concurrency:
        invariant(dispatcher._ready_count < dispatcher._most, "a call is free, and what is ready does not run")
        invariant(not dispatcher._again, "a call is free, and a retry that is due does not run")


def _check_counts(dispatcher: Dispatcher, alive: list[Event], orphans: list[Event]) -> None:
    groups = [members for _, _, members in dispatcher._timers] + [members for _, _, members in dispatcher._again]
    retrying = [e.sequence for members in groups for e in members]
    running = [e.sequence for members in dispatcher._running.values() for e in members]
    orphaned = [e.sequence for e in orphans]
    for life, sequences in ((RUNNING, running), (RETRYING, retrying), (BURYING, list(dispatcher._burying))):
        expected = [e.sequence for e in alive if e.life is life] + (orphaned if life is RUNNING else [])
        invariant(sorted(sequences) == sorted(expected), f"the events that are {life} are misfiled")
    invariant(len(dispatcher._running) <= dispatcher._concurrency, "more calls than the policy allows")
    invariant(
        all(len(members) <= dispatcher._most for members in dispatcher._running.values()), "a batch above its limit"
    )
    invariant(dispatcher._held == len(alive) + len(orphans), "the events in flight are miscounted")


def _check_lanes(dispatcher: Dispatcher, alive: list[Event], orphans: list[Event]) -> None:
    heads = {}
    for name, lane in dispatcher._lanes.items():
        held = [e for e in alive + orphans if e.lane == name and e.life is not WAITING]
        waiting = sorted((e for e in alive if e.lane == name and e.life is WAITING), key=lambda e: e.order)
        invariant(lane.held == len(held), f"lane {name!r} is miscounted")
        invariant(lane.held or lane.queue, f"lane {name!r} should have been forgotten")
        invariant(list(lane.queue) == waiting, f"lane {name!r} is out of order")
        calls = [members for members in dispatcher._running.values() if any(e.lane == name for e in members)]
        invariant(len(calls) <= 1, f"two calls of lane {name!r} run")
        if not lane.held:
            heads[lane.queue[0].sequence] = len(lane.queue)
    invariant(sorted(e.sequence for _, _, e in dispatcher._ready) == sorted(heads), "the ready lanes are misfiled")
    invariant(dispatcher._ready_count == sum(heads.values()), "the ready events are miscounted")
    invariant({e.lane for e in alive + orphans} == set(dispatcher._lanes), "an event without its lane")
    invariant(not NOBODY, "the empty queue is not empty")
