from __future__ import annotations

from tutti.control.compensation import Compensation, Stage
from tutti.control.participation.messages import (
    Compensated,
    CompensationFailed,
    CompensationResumed,
    Park,
    RunCompensator,
)
from tutti.limits import COMPENSATION_ATTEMPTS_COUNT, COMPENSATION_RETRY_SECONDS
from tutti.model.messages import Ticked
from tutti.model.transaction import Consumed

A, B, C = (Consumed("manager", "A", number, number) for number in (1, 2, 3))


def test_in_reverse_one_at_a_time() -> None:
    plan = Compensation([A, B, C])
    assert plan.begin() == [RunCompensator(C, 1)]
    assert plan.step(Compensated(C, 0.0)) == [RunCompensator(B, 1)]
    assert plan.step(Compensated(C, 0.0)) == [], "the answer to an earlier one"
    assert plan.step(Compensated(B, 0.0)) == [RunCompensator(A, 1)]
    assert plan.step(Compensated(A, 0.0)) == []
    assert plan.stage is Stage.DONE
    plan.check()


def test_nothing_to_undo_is_done_at_once() -> None:
    plan = Compensation([])
    assert plan.begin() == []
    assert plan.stage is Stage.DONE


def test_a_failure_is_tried_again_after_a_pause() -> None:
    plan = Compensation([A])
    plan.begin()
    assert plan.step(CompensationFailed(B, "of another one", 1.0)) == []
    assert plan.step(CompensationFailed(A, "busy", 1.0)) == []
    assert plan.step(Ticked(1.0)) == []
    assert plan.step(Ticked(1.0 + COMPENSATION_RETRY_SECONDS)) == [RunCompensator(A, 2)]
    plan.check()


def parked() -> Compensation:
    plan = Compensation([A, B])
    now, effects = 0.0, plan.begin()
    for _ in range(COMPENSATION_ATTEMPTS_COUNT):
        assert isinstance(effects[0], RunCompensator)
        effects = plan.step(CompensationFailed(B, "gone", now))
        if plan.wake_at is not None:
            now = plan.wake_at
            effects = plan.step(Ticked(now))
    assert effects == [Park(B, "gone")]
    plan.check()
    return plan


def test_when_attempts_are_used_up_it_waits_for_the_operator() -> None:
    plan = parked()
    assert plan.stage is Stage.PARKED
    assert plan.step(Ticked(1e9)) == []
    assert plan.step(CompensationResumed(1e9)) == [RunCompensator(B, 1)]


def test_the_operator_may_let_one_be() -> None:
    assert parked().step(CompensationResumed(1e9, skip=True)) == [RunCompensator(A, 1)]
