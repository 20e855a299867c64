"""How is a branch brought to its end?

1. To commit: the prepared branches are committed. Who is compensatable has nothing left to do.
2. To undo: what is at work or prepared is rolled back first; then what was committed already is compensated, in
   reverse.
3. What fails is tried again after growing pauses, for as long as it takes: there is no way back from a decision.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, assert_never

from tutti.control.compensation import Compensation
from tutti.control.compensation import Stage as Plan
from tutti.control.participation.messages import (
    CommitResources,
    Compensated,
    CompensationFailed,
    CompensationResumed,
    FinishFailed,
    Park,
    ResourcesFinished,
    RollbackResources,
    RunCompensator,
)
from tutti.control.table import Row, Table, follow
from tutti.errors import invariant
from tutti.limits import FINISH_RETRY_MAX_SECONDS, FINISH_RETRY_SECONDS
from tutti.model.messages import Ticked
from tutti.model.transaction import Consumed, Outcome

Input = Ticked | ResourcesFinished | FinishFailed | Compensated | CompensationFailed | CompensationResumed
Effect = CommitResources | RollbackResources | RunCompensator | Park


class Stage(StrEnum):
    IDLE = "idle"
    RESOURCES = "resources"
    PAUSING = "pausing"
    COMPENSATING = "compensating"
    DONE = "done"


class Cause(StrEnum):
    BEGIN = "begin"
    FAILURE = "failure"
    TIME = "time"
    FINISHED = "finished"
    UNDONE = "undone"


class Guard(StrEnum):
    SAME = "the answer to what was asked for"
    DUE = "the pause is over"
    ALL = "nothing is left to compensate"


TRANSITIONS: Final[Table[Stage, Cause, Guard]] = {
    Stage.IDLE: {Cause.BEGIN: Row(Stage.RESOURCES)},
    Stage.RESOURCES: {
        Cause.FINISHED: Row(Stage.COMPENSATING, (Guard.SAME,)),
        Cause.FAILURE: Row(Stage.PAUSING, (Guard.SAME,)),
    },
    Stage.PAUSING: {Cause.TIME: Row(Stage.RESOURCES, (Guard.DUE,))},
    Stage.COMPENSATING: {Cause.UNDONE: Row(Stage.DONE, (Guard.ALL,))},
    Stage.DONE: {},
}


class Finishing:
    """`wake_at` is the time of the next `Ticked`, or None. `committed` may still grow until the resources answered: by
    what was on its way when the end began."""

    __slots__ = ("_committed", "_pause", "_plan", "_retry_at", "_rounds", "outcome", "stage")

    def __init__(self, committed: list[Consumed]) -> None:
        self._committed = committed
        self._plan: Compensation | None = None
        self._rounds: tuple[int, ...] = ()
        self._pause = FINISH_RETRY_SECONDS
        self._retry_at: float | None = None
        self.outcome: Outcome = "abort"
        self.stage = Stage.IDLE

    @property
    def done(self) -> bool:
        return self.stage is Stage.DONE

    @property
    def compensating(self) -> bool:
        return self.stage is Stage.COMPENSATING

    @property
    def wake_at(self) -> float | None:
        return self._plan.wake_at if self._plan is not None else self._retry_at

    def begin(self, outcome: Outcome, rounds: tuple[int, ...]) -> list[Effect]:
        """`rounds`: the branches that are to be committed, or rolled back."""
        if not self._moves(Cause.BEGIN):
            return []
        self.outcome, self._rounds = outcome, rounds
        return [self._request()]

    def step(self, given: Input) -> list[Effect]:
        match given:
            case ResourcesFinished():
                return self._compensate() if self._moves(Cause.FINISHED, given.outcome) else []
            case FinishFailed():
                if self._moves(Cause.FAILURE, given.outcome):
                    self._retry_at = given.now + self._pause
                    self._pause = min(2 * self._pause, FINISH_RETRY_MAX_SECONDS)
                return []
            case Ticked() if self._plan is None:
                if not self._moves(Cause.TIME, now=given.now):
                    return []
                self._retry_at = None
                return [self._request()]
            case Ticked() | Compensated() | CompensationFailed() | CompensationResumed():
                effects: list[Effect] = list(self._plan.step(given)) if self._plan is not None else []
                self._moves(Cause.UNDONE)
                return effects
            case _:
                assert_never(given)

    def _moves(self, cause: Cause, outcome: Outcome | None = None, now: float = 0.0) -> bool:
        after = follow(TRANSITIONS, self.stage, cause, lambda guard: self._holds(guard, outcome, now))
        if after is None:
            return False
        self.stage = after
        return True

    def _holds(self, guard: Guard, outcome: Outcome | None, now: float) -> bool:
        match guard:
            case Guard.SAME:
                return outcome == self.outcome
            case Guard.DUE:
                return self._retry_at is not None and now >= self._retry_at
            case Guard.ALL:
                return self._plan is not None and self._plan.stage is Plan.DONE
            case _:
                assert_never(guard)

    def _request(self) -> Effect:
        return CommitResources(self._rounds) if self.outcome == "commit" else RollbackResources(self._rounds)

    def _compensate(self) -> list[Effect]:
        self._plan = Compensation(self._committed if self.outcome == "abort" else ())
        effects: list[Effect] = list(self._plan.begin())
        self._moves(Cause.UNDONE)
        return effects

    def check(self) -> None:
        """Raises `InvariantViolated` if the state contradicts itself. For tests."""
        if self._plan is not None:
            self._plan.check()
        invariant((self._retry_at is not None) == (self.stage is Stage.PAUSING), "a timer without a pause")
