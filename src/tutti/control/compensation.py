"""In which order, and how often, is committed work undone?

One machine for each participation that has to compensate.

1. Events are undone one at a time, in the reverse order in which their handling was completed.
2. The barrier row of the resource makes each compensation happen once: the compensator of an event that was never
   handled, or is undone already, changes nothing and counts as done. So a plan may be begun again after a crash.
3. One that fails is tried again after growing pauses; when the attempts are used up it is parked for the operator, and
   the plan stands still: what came before must not be undone before what came after it.
4. The operator has it tried again, with all attempts, or lets it be: then the plan goes on with the next.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, assert_never

from tutti.control.participation.messages import (
    Compensated,
    CompensationFailed,
    CompensationResumed,
    Park,
    RunCompensator,
)
from tutti.control.table import Row, Table, follow
from tutti.errors import invariant
from tutti.limits import COMPENSATION_ATTEMPTS_COUNT, COMPENSATION_RETRY_MAX_SECONDS, COMPENSATION_RETRY_SECONDS
from tutti.model.messages import Ticked
from tutti.model.transaction import Consumed

Input = Ticked | Compensated | CompensationFailed | CompensationResumed
Effect = RunCompensator | Park


class Stage(StrEnum):
    PLANNED = "planned"
    RUNNING = "running"
    PAUSING = "pausing"
    PARKED = "parked"
    DONE = "done"


class Cause(StrEnum):
    BEGIN = "begin"
    SUCCESS = "success"
    FAILURE = "failure"
    LAST_FAILURE = "last failure"
    TIME = "time"
    RETRY = "retry"
    END = "end"


class Guard(StrEnum):
    THIS_ONE = "it is the event that is being undone"
    DUE = "the pause is over"
    USED_UP = "no attempt is left"
    NOTHING_LEFT = "everything is undone"


TRANSITIONS: Final[Table[Stage, Cause, Guard]] = {
    Stage.PLANNED: {Cause.BEGIN: Row(Stage.RUNNING), Cause.END: Row(Stage.DONE, (Guard.NOTHING_LEFT,))},
    Stage.RUNNING: {
        Cause.SUCCESS: Row(Stage.PLANNED, (Guard.THIS_ONE,)),
        Cause.LAST_FAILURE: Row(Stage.PARKED, (Guard.THIS_ONE, Guard.USED_UP)),
        Cause.FAILURE: Row(Stage.PAUSING, (Guard.THIS_ONE,)),
    },
    Stage.PAUSING: {Cause.TIME: Row(Stage.RUNNING, (Guard.DUE,))},
    Stage.PARKED: {Cause.RETRY: Row(Stage.PLANNED)},
    Stage.DONE: {},
}


class Compensation:
    """`wake_at` is the time of the next `Ticked`, or None. `begin` first."""

    __slots__ = ("_attempt", "_left", "stage", "wake_at")

    def __init__(self, completed: Iterable[Consumed]) -> None:
        self._left = list(completed)  # the last is the next to be undone
        self._attempt = 0
        self.stage = Stage.PLANNED
        self.wake_at: float | None = None

    def begin(self) -> list[Effect]:
        if self._moves(Cause.END) or not self._moves(Cause.BEGIN):
            return []
        return self._run()

    def step(self, given: Input) -> list[Effect]:
        match given:
            case Ticked():
                return self._run() if self._moves(Cause.TIME, now=given.now) else []
            case Compensated():
                return self._next() if self._moves(Cause.SUCCESS, given.event) else []
            case CompensationFailed():
                return self._fail(given)
            case CompensationResumed():
                return self._resume(skip=given.skip)
            case _:
                assert_never(given)

    def _moves(self, cause: Cause, event: Consumed | None = None, now: float = 0.0) -> bool:
        after = follow(TRANSITIONS, self.stage, cause, lambda guard: self._holds(guard, event, now))
        if after is None:
            return False
        self.stage = after
        return True

    def _holds(self, guard: Guard, event: Consumed | None, now: float) -> bool:
        match guard:
            case Guard.THIS_ONE:
                return bool(self._left) and event == self._left[-1]
            case Guard.DUE:
                return self.wake_at is not None and now >= self.wake_at
            case Guard.USED_UP:
                return self._attempt >= COMPENSATION_ATTEMPTS_COUNT
            case Guard.NOTHING_LEFT:
                return not self._left
            case _:
                assert_never(guard)

    def _run(self) -> list[Effect]:
        self.wake_at = None
        self._attempt += 1
        return [RunCompensator(self._left[-1], self._attempt)]

    def _next(self) -> list[Effect]:
        self._left.pop()
        self._attempt = 0
        return self.begin()

    def _fail(self, given: CompensationFailed) -> list[Effect]:
        if self._moves(Cause.LAST_FAILURE, given.event):
            return [Park(given.event, given.reason)]
        if self._moves(Cause.FAILURE, given.event):
            pause = COMPENSATION_RETRY_SECONDS * 2 ** (self._attempt - 1)
            self.wake_at = given.now + min(pause, COMPENSATION_RETRY_MAX_SECONDS)
        return []

    def _resume(self, *, skip: bool) -> list[Effect]:
        if not self._moves(Cause.RETRY):
            return []
        self._attempt = 0
        return self._next() if skip else self.begin()

    def check(self) -> None:
        """Raises `InvariantViolated` if the state contradicts itself. For tests."""
        invariant((self.wake_at is not None) == (self.stage is Stage.PAUSING), "a timer without a pause")
        invariant(self.stage is not Stage.DONE or not self._left, "done, and something is left")
        invariant(self._attempt <= COMPENSATION_ATTEMPTS_COUNT, "tried too often")
