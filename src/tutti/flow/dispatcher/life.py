"""The life of one event in the dispatcher, and where it stands meanwhile. Every change is a look into `TRANSITIONS`."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from tutti.model.policy import Backoff


class Life(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    RETRYING = "retrying"  # failed, and waits for its time and then for its turn
    BURYING = "burying"  # its dead letter is being written
    ORPHANED = "orphaned"  # still runs, but its partition was revoked
    DONE = "done"
    FORGOTTEN = "forgotten"  # its partition was revoked, or is being drained: it is somebody else's now


class Cause(StrEnum):
    TURN = "turn"
    EXPIRY = "expiry"
    RETURN = "return"
    FAILURE = "failure"
    LAST_FAILURE = "last failure"
    BURIAL = "burial"
    DRAINING = "draining"
    REVOCATION = "revocation"


WAITING: Final = Life.WAITING
RUNNING: Final = Life.RUNNING
RETRYING: Final = Life.RETRYING
BURYING: Final = Life.BURYING
ORPHANED: Final = Life.ORPHANED
DONE: Final = Life.DONE
FORGOTTEN: Final = Life.FORGOTTEN

TURN: Final = Cause.TURN
EXPIRY: Final = Cause.EXPIRY
RETURN: Final = Cause.RETURN
FAILURE: Final = Cause.FAILURE
LAST_FAILURE: Final = Cause.LAST_FAILURE
BURIAL: Final = Cause.BURIAL
DRAINING: Final = Cause.DRAINING
REVOCATION: Final = Cause.REVOCATION

TRANSITIONS: Final[Mapping[Life, Mapping[Cause, Life]]] = {
    WAITING: {
        TURN: RUNNING,
        EXPIRY: DONE,
        LAST_FAILURE: BURYING,  # an earlier owner used up the attempts and could not bury it any more
        DRAINING: FORGOTTEN,
        REVOCATION: FORGOTTEN,
    },
    RUNNING: {RETURN: DONE, FAILURE: RETRYING, LAST_FAILURE: BURYING, REVOCATION: ORPHANED},
    RETRYING: {TURN: RUNNING, EXPIRY: DONE, DRAINING: FORGOTTEN, REVOCATION: FORGOTTEN},
    BURYING: {BURIAL: DONE, REVOCATION: FORGOTTEN},
    ORPHANED: {RETURN: FORGOTTEN, FAILURE: FORGOTTEN},
    DONE: {REVOCATION: FORGOTTEN},
    FORGOTTEN: {REVOCATION: FORGOTTEN},
}

BEGUN: Final = TRANSITIONS[WAITING][TURN]  # the two that nearly every event goes through, looked up once
RETURNED: Final = TRANSITIONS[RUNNING][RETURN]

USED_UP: Final = "every attempt was used up before this instance took the event over"


class Event(msgspec.Struct, gc=False):
    """No reference leads from an event back to what holds it, so it needs no garbage collection."""

    sequence: int
    partition: int
    lane: str
    priority: int
    expires_at: float | None
    attempts: int  # how often it failed
    arrived_at: float
    order: int  # of arrival, over all partitions
    up_to: int  # the position when this event and all before it are done: skipped sequences follow it
    life: Life


class Lane(msgspec.Struct):
    """A lane exists while something of it is held or waits. Its head is in the ready heap if nothing is held."""

    held: int  # its events that run, wait for a retry or are being buried
    queue: deque[Event]


NOBODY: Final[deque[Event]] = deque(maxlen=0)  # the queue of every lane where none waits: most lanes, most of the time


class Partition(msgspec.Struct):
    pending: deque[Event]  # in order of arrival, from the first that is not done
    last: int  # the highest sequence that arrived or was skipped
    floor: int  # 0: has not moved yet
    failed: dict[int, int]  # attempts of events that failed and are not done
    draining: bool

    def advance(self) -> int:
        """Drop what is done in front. Returns the position that this moves to; 0 if it does not move."""
        pending = self.pending
        position = 0
        while pending and pending[0].life is DONE:
            position = pending.popleft().up_to
        if position:
            self.floor = position
        return position


Ready = tuple[int, int, Event]  # minus priority, order of arrival
Again = tuple[int, int, list[Event]]  # the same, of the first member
Timer = tuple[float, int, list[Event]]  # due, order of arrival of the first member


def pause(backoff: Backoff, failures: int, jitter: float) -> float:
    """Seconds until the next attempt: the whole pause for jitter 0, down to half of it for jitter 1."""
    try:
        whole = min(backoff.most, backoff.first * backoff.factor ** (failures - 1))
    except OverflowError:  # the power left the floats, so it is certainly above the most
        whole = backoff.most
    return whole * (1.0 - jitter / 2.0)
