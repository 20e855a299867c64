"""The invariants notice a broken state: each of these is one that `check` must not let pass."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tutti.errors import InvariantViolated
from tutti.flow.dispatcher import Arrived, Dispatcher, Failed, Returned, check
from tutti.flow.dispatcher.life import DONE, RUNNING
from tutti.model.policy import Policy


def busy_dispatcher() -> Dispatcher:
    """1 waits for a retry and holds back 2; 3 runs and holds back 4; 6 is done; 7 runs; 8 finds no call free."""
    dispatcher = Dispatcher(Policy(concurrency=2))
    for sequence, lane in ((1, "a"), (2, "a")):
        dispatcher.step(Arrived(sequence, 0, lane, 0, None, 0, 0.0))
    dispatcher.step(Failed((1,), "no", 0.0, 0.0))
    for sequence, lane in ((3, "b"), (4, "b"), (6, "d"), (7, "e"), (8, "c")):
        dispatcher.step(Arrived(sequence, 0, lane, 0, None, 0, 0.0))
    dispatcher.step(Returned((6,), 0.0))
    return dispatcher


def test_a_sound_state_passes() -> None:
    dispatcher = busy_dispatcher()
    check(dispatcher)
    assert (dispatcher.running(), dispatcher.waiting()) == (2, 4)


def run_all_at_once(d: Dispatcher) -> None:
    d._running[(8,)] = [d._ready[0][2]]
    d._ready[0][2].life = RUNNING


def end_without_leaving(d: Dispatcher) -> None:
    d._running[(3,)][0].life = DONE


def forget_a_lane(d: Dispatcher) -> None:
    del d._lanes["a"]


def turn_a_lane_round(d: Dispatcher) -> None:
    d._lanes["a"].queue.appendleft(d._lanes["b"].queue[0])


def pass_an_unfinished_event(d: Dispatcher) -> None:
    d._partitions[0].floor = 5


def pass_what_arrived(d: Dispatcher) -> None:
    d._partitions[0].pending[-1].up_to = 99


def forget_a_failure(d: Dispatcher) -> None:
    d._partitions[0].failed.clear()


def forget_a_retry(d: Dispatcher) -> None:
    d._timers.clear()


def miscount_what_is_held(d: Dispatcher) -> None:
    d._held += 1


def miscount_what_is_ready(d: Dispatcher) -> None:
    d._ready_count += 1


def leave_a_call_free(d: Dispatcher) -> None:
    d._concurrency = 9


BREAKS: tuple[tuple[Callable[[Dispatcher], None], str], ...] = (
    (run_all_at_once, "more calls"),
    (end_without_leaving, "running are misfiled"),
    (forget_a_lane, "without its lane"),
    (turn_a_lane_round, "out of order"),
    (pass_an_unfinished_event, "passed an event"),
    (pass_what_arrived, "passes what arrived"),
    (forget_a_failure, "failed attempts"),
    (forget_a_retry, "retrying are misfiled"),
    (miscount_what_is_held, "in flight"),
    (miscount_what_is_ready, "ready events"),
    (leave_a_call_free, "does not run"),
)


@pytest.mark.parametrize(("break_it", "words"), BREAKS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_broken_state_is_noticed(break_it: Callable[[Dispatcher], None], words: str) -> None:
    dispatcher = busy_dispatcher()
    break_it(dispatcher)
    with pytest.raises(InvariantViolated, match=words):
        check(dispatcher)
