"""Each rule of the dispatcher, by an example."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tutti.flow.dispatcher import (
    Advance,
    Arrived,
    Buried,
    Bury,
    Dispatcher,
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
    check,
    machine,
)
from tutti.flow.dispatcher.life import USED_UP, pause
from tutti.model.policy import Backoff, Batch, Policy

BACKOFF = Backoff(first=1.0, factor=2.0, most=8.0)


def shown(dispatcher: Dispatcher) -> str:
    """All of its state."""
    return repr(sorted(vars(dispatcher).items()))


class Driver:
    """Feeds a dispatcher and checks its invariants after every step."""

    def __init__(self, **policy: object) -> None:
        usual: dict[str, Any] = {"attempts": 3, "backoff": BACKOFF, "concurrency": 4, "in_flight": 100}
        self.dispatcher = Dispatcher(Policy(**usual | policy))
        self.now = 0.0
        self.followed = 0  # returns that `follow` took on

    def step(self, given: Input) -> list[Effect]:
        effects = self.dispatcher.step(given)
        check(self.dispatcher)
        return effects

    def arrive(
        self,
        sequence: int,
        lane: str = "a",
        *,
        partition: int = 0,
        priority: int = 0,
        expires_at: float | None = None,
        attempts: int = 0,
    ) -> list[Effect]:
        return self.step(Arrived(sequence, partition, lane, priority, expires_at, attempts, self.now))

    def returned(self, *sequences: int) -> list[Effect]:
        """By `step`. `follow` must come to the same, wherever it takes the matter on."""
        other = copy.deepcopy(self.dispatcher)
        followed = other.follow(sequences, self.now)
        check(other)
        effects = self.step(Returned(sequences, self.now))
        if followed is None:
            return effects
        run, position = followed
        moved = [Advance(partition, position) for partition in other.positions()] if position else []
        assert effects in ([run], *([advance, run] for advance in moved))
        assert shown(other) == shown(self.dispatcher)
        self.followed += 1
        return effects

    def failed(self, *sequences: int, final: bool = False) -> list[Effect]:
        return self.step(Failed(sequences, "boom", self.now, 0.0, final))

    def tick(self, now: float) -> list[Effect]:
        self.now = now
        return self.step(Ticked(now))


def test_an_event_runs_at_once_and_moves_the_position_when_it_returned() -> None:
    drive = Driver()
    assert drive.arrive(7) == [Run((7,), 1)]
    assert (drive.dispatcher.running(), drive.dispatcher.waiting(), drive.dispatcher.idle()) == (1, 0, False)
    assert drive.returned(7) == [Advance(0, 7)]
    assert drive.dispatcher.idle()
    assert drive.dispatcher.positions() == {0: 7}


def test_a_lane_runs_one_event_at_a_time_and_in_order() -> None:
    drive = Driver()
    assert drive.arrive(1) == [Run((1,), 1)]
    assert drive.arrive(2) == []
    assert drive.arrive(3) == []
    assert drive.returned(1) == [Advance(0, 1), Run((2,), 1)]
    assert drive.returned(2) == [Advance(0, 2), Run((3,), 1)]
    assert drive.followed == 2


def test_the_quick_return_is_for_the_common_case_only() -> None:
    for others in ({"attempts": 1}, {"expires_at": 9.0}):
        drive = Driver()
        drive.arrive(1)
        drive.arrive(2, **others)
        drive.returned(1)
        assert not drive.followed
    drive = Driver(concurrency=1)
    drive.arrive(1)
    drive.arrive(2)
    drive.arrive(3, "b")
    assert drive.returned(1) == [Advance(0, 1), Run((2,), 1)]
    drive.step(Paused())
    drive.returned(2)
    assert not drive.followed


def test_lanes_run_beside_each_other_up_to_the_concurrency() -> None:
    drive = Driver(concurrency=2)
    assert drive.arrive(1, "a") == [Run((1,), 1)]
    assert drive.arrive(2, "b") == [Run((2,), 1)]
    assert drive.arrive(3, "c") == []
    assert drive.returned(2) == [Run((3,), 1)]


def test_the_position_waits_for_the_slowest_event_before_it() -> None:
    drive = Driver()
    for sequence, lane in ((1, "a"), (4, "b"), (9, "c")):
        drive.arrive(sequence, lane)
    assert drive.returned(9) == []
    assert drive.returned(1) == [Advance(0, 1)]
    assert drive.returned(4) == [Advance(0, 9)]


def test_partitions_have_positions_of_their_own() -> None:
    drive = Driver()
    drive.arrive(1, "a", partition=0)
    drive.arrive(2, "b", partition=5)
    assert drive.returned(2) == [Advance(5, 2)]
    assert drive.returned(1) == [Advance(0, 1)]


def test_skipped_sequences_move_the_position_at_once_or_with_the_event_before_them() -> None:
    drive = Driver()
    assert drive.step(Skipped(3, 0)) == [Advance(0, 3)]
    drive.arrive(4)
    assert drive.step(Skipped(6, 0)) == []
    assert drive.returned(4) == [Advance(0, 6)]
    assert drive.step(Skipped(6, 0)) == []
    assert drive.arrive(5) == [], "a sequence below what was skipped is old news"


def test_a_retry_holds_back_its_own_lane_and_no_other() -> None:
    drive = Driver()
    drive.arrive(1, "a")
    drive.arrive(2, "a")
    assert drive.failed(1) == [WakeAt(1.0)]
    assert drive.arrive(3, "b") == [Run((3,), 1)]
    assert drive.tick(0.9) == []
    assert drive.tick(1.0) == [Run((1,), 2)]
    assert drive.returned(1) == [Advance(0, 1), Run((2,), 1)]


def test_the_pause_grows_up_to_its_most_and_jitter_shortens_it() -> None:
    assert [pause(BACKOFF, n, 0.0) for n in (1, 2, 3, 4, 5)] == [1, 2, 4, 8, 8]
    assert pause(BACKOFF, 1, 0.5) == 0.75
    assert pause(Backoff(first=1.0, factor=1e300, most=8.0), 9, 0.0) == 8


def test_after_the_last_attempt_the_lane_waits_until_the_event_is_buried() -> None:
    drive = Driver(attempts=2)
    drive.arrive(1)
    drive.arrive(2)
    drive.failed(1)
    assert drive.dispatcher.attempts(0) == {1: 1}
    drive.tick(1.0)
    assert drive.failed(1) == [Bury(1, "boom", 2)]
    assert drive.tick(100.0) == []
    assert not drive.dispatcher.idle()
    assert drive.step(Buried(1)) == [Advance(0, 1), Run((2,), 1)]
    assert drive.dispatcher.attempts(0) == {}


def test_a_final_failure_is_buried_at_the_first_attempt() -> None:
    drive = Driver()
    drive.arrive(1)
    assert drive.failed(1, final=True) == [Bury(1, "boom", 1)]


def test_attempts_of_an_earlier_owner_count() -> None:
    drive = Driver(attempts=3)
    assert drive.arrive(1, attempts=2) == [Run((1,), 3)]
    assert drive.failed(1) == [Bury(1, "boom", 3)]
    assert drive.arrive(2, "b", attempts=3) == [Bury(2, USED_UP, 3)]


def test_an_expired_event_is_not_handled() -> None:
    drive = Driver(concurrency=1)
    assert drive.arrive(1, expires_at=0.0) == [Expire(1), Advance(0, 1)]
    drive.arrive(2)
    drive.arrive(3, expires_at=5.0)
    drive.arrive(4)
    drive.now = 5.0
    assert drive.returned(2) == [Advance(0, 2), Expire(3), Advance(0, 3), Run((4,), 1)]


def test_an_event_may_expire_between_attempts() -> None:
    drive = Driver()
    drive.arrive(1, expires_at=1.0)
    drive.failed(1)
    assert drive.tick(1.0) == [Expire(1), Advance(0, 1)]


def test_a_higher_priority_goes_first_but_not_within_its_lane() -> None:
    drive = Driver(concurrency=1)
    drive.arrive(1, "a")
    drive.arrive(2, "a")
    drive.arrive(3, "a", priority=9)
    drive.arrive(4, "b", priority=5)
    drive.arrive(5, "c", priority=5)
    order = []
    running = 1
    for _ in range(4):
        (run,) = (e for e in drive.returned(running) if isinstance(e, Run))
        running = run.sequences[0]
        order.append(running)
    assert order == [4, 5, 2, 3]


def test_a_retry_takes_its_turn_by_priority_too() -> None:
    drive = Driver(concurrency=1)
    drive.arrive(1, "a")
    drive.failed(1)
    assert drive.arrive(2, "b") == [Run((2,), 1)]
    drive.arrive(3, "c", priority=5)
    drive.arrive(4, "d")
    assert drive.tick(1.0) == []
    assert drive.returned(2) == [Run((3,), 1)]
    assert drive.returned(3) == [Run((1,), 2)], "it arrived before 4"


def test_a_retry_that_is_due_is_not_passed_because_nobody_ticked() -> None:
    drive = Driver(concurrency=1)
    drive.arrive(1, "a")
    drive.failed(1)
    drive.now = 1.0
    assert drive.arrive(2, "b") == [Run((1,), 2)]


def test_room_counts_what_is_in_flight() -> None:
    drive = Driver(in_flight=3, concurrency=1)
    assert drive.dispatcher.room() == 3
    for sequence in (1, 2, 3):
        drive.arrive(sequence)
    assert drive.dispatcher.room() == 0
    drive.arrive(4)
    assert drive.dispatcher.room() == 0
    drive.returned(1)
    drive.returned(2)
    assert drive.dispatcher.room() == 1


def test_room_ends_when_too_much_is_done_behind_an_unfinished_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "DONE_AHEAD_MAX_COUNT", 3)
    drive = Driver()
    drive.arrive(1, "slow")
    for sequence in (2, 3):
        drive.arrive(sequence, "quick")
        drive.returned(sequence)
    assert drive.dispatcher.room() == 0
    drive.returned(1)
    assert drive.dispatcher.room() == 3


def test_paused_starts_nothing_and_ends_what_runs() -> None:
    drive = Driver()
    drive.arrive(1, "a")
    drive.arrive(2, "b")
    assert drive.step(Paused()) == []
    assert drive.arrive(3, "c") == []
    assert drive.returned(1) == [Advance(0, 1)]
    assert drive.failed(2) == [WakeAt(1.0)]
    assert drive.tick(1.0) == []
    assert drive.step(Resumed(1.0)) == [Run((2,), 2), Run((3,), 1)]


def test_revoked_forgets_what_waits_and_ignores_what_runs() -> None:
    drive = Driver(attempts=2)
    for sequence, lane in ((1, "run"), (2, "run"), (3, "retry"), (4, "bury"), (5, "done")):
        drive.arrive(sequence, lane)
    drive.failed(3)
    drive.failed(4, final=True)
    drive.returned(5)
    assert drive.step(Revoked(0)) == []
    assert (drive.dispatcher.running(), drive.dispatcher.waiting()) == (1, 0)
    assert drive.dispatcher.attempts(0) == {}
    assert drive.dispatcher.positions() == {}
    assert drive.step(Buried(4)) == []
    assert drive.tick(1.0) == []
    assert drive.returned(1) == []
    assert drive.dispatcher.idle()


def test_a_revoked_failure_is_forgotten() -> None:
    drive = Driver(attempts=1)
    drive.arrive(1)
    drive.step(Revoked(0))
    assert drive.failed(1) == []
    assert drive.dispatcher.idle()


def test_a_partition_that_comes_back_waits_for_what_still_runs_of_its_lane() -> None:
    drive = Driver()
    drive.arrive(1)
    drive.step(Revoked(0))
    assert drive.arrive(1) == [], "the earlier call of the same lane still runs"
    assert drive.arrive(2, "b") == [Run((2,), 1)]
    assert drive.returned(1) == [Run((1,), 1)]
    assert drive.returned(1) == [Advance(0, 1)]


def test_revoking_one_partition_leaves_a_lane_of_two_partitions_in_order() -> None:
    drive = Driver(concurrency=1)
    drive.arrive(1, "x", partition=1)
    drive.arrive(2, "a", partition=0)
    drive.arrive(3, "a", partition=1)
    drive.step(Revoked(0))
    assert drive.returned(1) == [Advance(1, 1), Run((3,), 1)]


def test_a_draining_partition_ends_what_runs_and_moves_its_position_up_to_what_waits() -> None:
    drive = Driver()
    for sequence, lane in ((1, "a"), (2, "b"), (3, "a"), (4, "c")):
        drive.arrive(sequence, lane)
    assert drive.step(Draining(0)) == []
    assert (drive.dispatcher.running(), drive.dispatcher.waiting()) == (3, 0)
    assert drive.arrive(5, "d") == []
    assert drive.step(Skipped(6, 0)) == []
    assert drive.returned(1) == [Advance(0, 1)]
    assert drive.returned(2) == [Advance(0, 2)]
    assert drive.returned(4) == [], "3 was not handled: the position stays below it"
    assert drive.dispatcher.idle()
    assert drive.dispatcher.positions() == {0: 2}
    assert drive.step(Revoked(0)) == []
    assert drive.arrive(3, "a") == [Run((3,), 1)]


def test_a_failure_while_draining_counts_and_the_successor_tries_again() -> None:
    drive = Driver(attempts=2)
    drive.arrive(1, "a")
    drive.arrive(2, "b", attempts=1)
    drive.step(Draining(0))
    assert drive.failed(1) == []
    assert drive.failed(2) == [Bury(2, "boom", 2)]
    assert drive.step(Buried(2)) == []
    assert drive.dispatcher.idle()
    assert drive.dispatcher.attempts(0) == {1: 1}


@pytest.mark.parametrize(
    "given", [Returned((1,), 0.0), Failed((1,), "late", 0.0, 0.0), Buried(1), Revoked(9), Draining(9)]
)
def test_unknown_and_repeated_inputs_change_nothing(given: Input) -> None:
    drive = Driver()
    assert drive.step(given) == []
    drive.arrive(1)
    drive.returned(1)
    assert drive.step(given) == []
    assert drive.arrive(1) == []
    assert drive.dispatcher.idle()
    assert drive.dispatcher.positions() == {0: 1}


def test_a_wake_is_asked_for_once_and_again_when_an_earlier_one_is_needed() -> None:
    drive = Driver(backoff=Backoff(first=4.0, factor=1.0))
    drive.arrive(1, "a")
    drive.arrive(2, "b")
    assert drive.failed(1) == [WakeAt(4.0)]
    drive.now = 1.0
    assert drive.failed(2) == [], "the wake at 4 comes first"
    assert drive.tick(4.0) == [Run((1,), 2), WakeAt(5.0)]
    assert drive.tick(5.0) == [Run((2,), 2)]


def test_a_batch_starts_when_it_is_full() -> None:
    drive = Driver(batch=Batch(most=3, wait=0.5))
    assert drive.arrive(1, "a") == [WakeAt(0.5)]
    assert drive.arrive(2, "b") == []
    assert drive.arrive(3, "a") == [Run((1, 2, 3), 1)]
    assert drive.arrive(4, "a") == [], "its lane is held"
    assert drive.returned(1, 2, 3) == [Advance(0, 3)]


def test_a_batch_starts_when_its_oldest_event_waited_long_enough() -> None:
    drive = Driver(batch=Batch(most=3, wait=0.5))
    drive.arrive(1, "a")
    drive.now = 0.25
    drive.arrive(2, "b")
    assert drive.tick(0.5) == [Run((1, 2), 1)]


def test_a_lane_that_comes_free_brings_its_waiting_time_along() -> None:
    drive = Driver(batch=Batch(most=3, wait=5.0))
    for sequence in (1, 2, 3):
        drive.arrive(sequence, "a")
    drive.now = 1.0
    drive.arrive(4, "a")
    drive.now = 3.0
    drive.arrive(5, "b")
    drive.now = 4.0
    assert drive.returned(1, 2, 3) == [Advance(0, 3)]
    assert drive.tick(5.0) == [WakeAt(6.0)], "5 seconds after 4 arrived; the wake at 5 was for the first batch"
    assert drive.tick(6.0) == [Run((4, 5), 1)]


def test_a_batch_is_retried_and_buried_whole() -> None:
    drive = Driver(attempts=2, batch=Batch(most=2, wait=0.0))
    drive.step(Paused())
    for sequence, lane in ((1, "a"), (2, "b")):
        drive.arrive(sequence, lane)
    assert drive.step(Resumed(0.0)) == [Run((1, 2), 1)]
    assert drive.failed(1, 2) == [WakeAt(1.0)]
    assert drive.arrive(3, "c") == [Run((3,), 1)]
    assert drive.tick(1.0) == [Run((1, 2), 2)]
    assert drive.failed(1, 2) == [Bury(1, "boom", 2), Bury(2, "boom", 2)]
    assert drive.step(Buried(2)) == []
    assert drive.step(Buried(1)) == [Advance(0, 2)]


def test_an_answer_to_a_part_of_a_batch_changes_nothing() -> None:
    drive = Driver(batch=Batch(most=2, wait=9.0))
    drive.arrive(1, "a")
    drive.arrive(2, "b")
    assert drive.returned(1) == []
    assert drive.failed(2, final=True) == []
    assert drive.returned(1, 2) == [Advance(0, 2)]


def test_events_with_different_failed_attempts_do_not_share_a_batch() -> None:
    drive = Driver(batch=Batch(most=3, wait=1.0))
    drive.arrive(1, "a")
    drive.arrive(2, "b", attempts=2)
    assert drive.arrive(3, "c") == [Run((1, 3), 1)]
    assert drive.tick(1.0) == [Run((2,), 3)]


def test_an_expired_member_makes_room_in_its_batch() -> None:
    drive = Driver(batch=Batch(most=2, wait=9.0))
    drive.step(Paused())
    drive.arrive(1, "a")
    drive.arrive(2, "a", expires_at=0.0)
    drive.arrive(3, "a")
    assert drive.step(Resumed(0.0)) == [Expire(2), Run((1, 3), 1)]


def test_revoking_a_partition_takes_its_members_out_of_a_batch() -> None:
    drive = Driver(batch=Batch(most=2, wait=9.0))
    drive.arrive(1, "a", partition=0)
    drive.arrive(2, "b", partition=1)
    drive.failed(1, 2)
    drive.step(Revoked(0))
    assert drive.tick(1.0) == [Run((2,), 2)]


def test_a_partition_is_busy_while_something_of_it_runs_or_is_being_buried() -> None:
    drive = Driver()
    drive.arrive(1, "a", partition=3)
    drive.arrive(2, "a", partition=3)
    assert (drive.dispatcher.busy(3), drive.dispatcher.busy(4)) == (True, False)
    drive.step(Draining(3))
    drive.failed(1, final=True)
    assert drive.dispatcher.busy(3), "the dead letter is not durable yet"
    drive.step(Buried(1))
    assert not drive.dispatcher.busy(3)
