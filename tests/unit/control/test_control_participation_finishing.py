from __future__ import annotations

from tutti.control.participation.finishing import Finishing
from tutti.control.participation.messages import (
    CommitResources,
    Compensated,
    FinishFailed,
    ResourcesFinished,
    RollbackResources,
    RunCompensator,
)
from tutti.limits import FINISH_RETRY_SECONDS
from tutti.model.messages import Ticked
from tutti.model.transaction import Consumed

A1, A2 = (Consumed("manager", "A", number, number) for number in (1, 2))


def test_commit() -> None:
    finishing = Finishing([A1])
    assert finishing.begin("commit", (1, 2)) == [CommitResources((1, 2))]
    assert finishing.begin("abort", (1,)) == [], "begun once"
    assert finishing.step(ResourcesFinished("commit", 0.0)) == []
    assert finishing.done
    finishing.check()


def test_undoing_rolls_back_then_compensates_in_reverse() -> None:
    committed = [A1]
    finishing = Finishing(committed)
    assert finishing.begin("abort", (1,)) == [RollbackResources((1,))]
    committed.append(A2)  # was on its way
    assert finishing.step(ResourcesFinished("commit", 0.0)) == [], "not what was asked for"
    assert finishing.step(ResourcesFinished("abort", 0.0)) == [RunCompensator(A2, 1)]
    assert finishing.compensating
    assert finishing.step(Compensated(A2, 0.0)) == [RunCompensator(A1, 1)]
    assert not finishing.done
    finishing.step(Compensated(A1, 0.0))
    assert finishing.done


def test_what_fails_is_tried_again_for_ever() -> None:
    finishing = Finishing([])
    finishing.begin("commit", (1,))
    now = 0.0
    for _ in range(30):
        assert finishing.step(FinishFailed("commit", "no connection", now)) == []
        finishing.check()
        assert finishing.step(Ticked(now)) == []
        assert finishing.wake_at is not None
        assert finishing.wake_at >= now + FINISH_RETRY_SECONDS
        now = finishing.wake_at
        assert finishing.step(Ticked(now)) == [CommitResources((1,))]
    assert finishing.step(FinishFailed("abort", "of something else", now)) == []
    assert finishing.wake_at is None
