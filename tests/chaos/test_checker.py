"""The checker finds each kind of broken promise, and nothing in a run in which all were kept."""

from __future__ import annotations

import msgspec
import pytest

from tests.chaos.checker import UNWRITTEN_SECONDS, check
from tests.chaos.evidence import Complaint, Evidence, InstanceKilled, Killed, ServerKilled
from tests.chaos.workload import ACCOUNTS_COUNT, PUBLISHERS, SUBSCRIBERS, Acknowledged, Counters, Handling
from tutti.limits import LEASE_TTL_SECONDS

EVENTS = 40
NORTH = PUBLISHERS[0]


def run() -> Evidence:
    """Everything went well: each event was handled by everybody, a tenth of a second after the one before."""
    numbers = range(1, EVENTS + 1)
    return Evidence(
        events=EVENTS,
        seconds=4.0,
        acknowledged=[Acknowledged(NORTH.name, n, n, duplicate=False, tries=1, time=n / 10) for n in numbers],
        handled=[handling(plan.name, n) for plan in SUBSCRIBERS for n in numbers],
        kills=[],
        counters=[],
        complaints=[],
        stored=EVENTS,
        dead_letters=0,
        crashed=[],
        left=[],
    )


def handling(subscriber: str, number: int, *, run: int = 1, time: float | None = None) -> Handling:
    when = number / 10 if time is None else time
    return Handling(subscriber, f"{subscriber}-1-{run}", NORTH.name, number, number, 1, when)


def with_more(evidence: Evidence, *handlings: Handling, kills: list[Killed] | None = None) -> Evidence:
    return msgspec.structs.replace(evidence, handled=[*evidence.handled, *handlings], kills=kills or [])


def killed(time: float, position: int | None) -> InstanceKilled:
    positions = None if position is None else {NORTH.partition: position}
    return InstanceKilled(time, "plain", "plain-1-1", positions)


def again(*numbers: int, time: float = 5.0, run: int = 2) -> list[Handling]:
    return [handling("plain", number, run=run, time=time + number / 100) for number in numbers]


def test_a_good_run_has_no_fault() -> None:
    verdict = check(run())
    assert verdict.ok
    assert verdict.handled == {plan.name: EVENTS for plan in SUBSCRIBERS}
    assert not any(verdict.duplicates.values())


def test_an_event_that_one_subscriber_never_handled() -> None:
    evidence = run()
    less = [mark for mark in evidence.handled if (mark.subscriber, mark.number) != ("keyed", 17)]
    (fault,) = check(msgspec.structs.replace(evidence, handled=less)).faults
    assert fault == "keyed never handled 1 acknowledged events: north 17 (sequence 17)"


def test_an_event_out_of_order() -> None:
    evidence = run()
    late = [
        msgspec.structs.replace(mark, time=3.35) if (mark.subscriber, mark.number) == ("plain", 30) else mark
        for mark in evidence.handled
    ]
    faults = check(msgspec.structs.replace(evidence, handled=late)).faults
    assert "plain, events of north: 30 came after 33" in faults


def test_accounts_of_the_keyed_subscriber_may_overtake_each_other_but_not_themselves() -> None:
    evidence = run()

    def delayed(number: int, time: float) -> Evidence:
        marks = [
            msgspec.structs.replace(mark, time=time) if (mark.subscriber, mark.number) == ("keyed", number) else mark
            for mark in evidence.handled
        ]
        return msgspec.structs.replace(evidence, handled=marks)

    assert check(delayed(10, 1.0 + 0.1 * (ACCOUNTS_COUNT - 1))).ok
    assert not check(delayed(10, 1.05 + 0.1 * ACCOUNTS_COUNT)).ok


def test_an_event_tried_again_by_its_publisher_stands_where_it_was_stored() -> None:
    evidence = run()
    swap = {20: 21, 21: 20}
    acknowledged = [
        msgspec.structs.replace(mark, sequence=swap.get(mark.number, mark.number), tries=2 if mark.number == 20 else 1)
        for mark in evidence.acknowledged
    ]
    handled = [
        msgspec.structs.replace(
            mark, sequence=swap.get(mark.number, mark.number), time=swap.get(mark.number, mark.number) / 10
        )
        for mark in evidence.handled
    ]
    assert check(msgspec.structs.replace(evidence, acknowledged=acknowledged, handled=handled)).ok
    first_try = [msgspec.structs.replace(mark, tries=1) for mark in acknowledged]
    assert not check(msgspec.structs.replace(evidence, acknowledged=first_try, handled=handled)).ok


def test_duplicates_behind_the_position_of_a_killed_instance_are_explained() -> None:
    verdict = check(with_more(run(), *again(38, 39, 40), kills=[killed(4.5, position=37)]))
    assert verdict.ok
    assert verdict.duplicates["plain"] == 3
    assert verdict.causes == {"the instance was killed before it wrote its position": 3}
    assert verdict.takeover_seconds == pytest.approx(0.88)


def test_a_step_back_behind_a_written_position_is_a_fault() -> None:
    (fault,) = check(with_more(run(), *again(38, 39, 40), kills=[killed(4.5, position=38)])).faults
    assert fault.endswith("plain-1-1 had written position 38 before it was killed")


def test_a_duplicate_that_nobody_was_killed_for_is_a_fault() -> None:
    (fault,) = check(with_more(run(), *again(40))).faults
    assert "plain-1-1, which had it first, was not killed, nor was the server away" in fault


def test_without_a_position_only_the_last_moments_may_be_repeated() -> None:
    kills: list[Killed] = [ServerKilled(4.0, 6.0, 1), killed(4.5, position=None)]
    assert check(with_more(run(), *again(30, 40, time=7), kills=kills)).ok
    first = int((4.0 - UNWRITTEN_SECONDS) * 10) - 1
    (fault,) = check(with_more(run(), *again(first, time=7), kills=kills)).faults
    assert "time enough to write its position" in fault


def test_an_outage_explains_that_a_lease_moved_and_came_back() -> None:
    outage: list[Killed] = [ServerKilled(4.1, 4.1 + LEASE_TTL_SECONDS, 1)]
    verdict = check(with_more(run(), *again(39, 40, time=8, run=1), kills=outage))
    assert verdict.ok
    assert verdict.causes == {"the server was away, and the lease moved": 2}
    faults = check(with_more(run(), *again(39, 40, time=8, run=1))).faults
    assert "plain, events of north: plain-1-1 went back from sequence 40 to 39 by itself" in faults


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"stored": EVENTS + 1}, "the log holds 41 records of 40"),
        ({"events": EVENTS + 1}, "40 of 41 events were acknowledged"),
        ({"dead_letters": 2}, "2 events were dead-lettered"),
        ({"crashed": ["plain-1-1 ended by itself with 1"]}, "ended by itself"),
        ({"left": ["process 7: nats-server"]}, "left behind"),
        ({"complaints": [Complaint("ERROR", "tutti.feed", 1.0, "no!")]}, "error in a log (tutti.feed): no!"),
        ({"counters": [Counters("plain-1-1", 1, 0, 0, "ok", [])]}, "reports 1 events missing"),
        ({"counters": [Counters("plain-1-1", 0, 0, 3, "ok", [])]}, "3 attempts failed"),
        ({"counters": [Counters("plain-1-1", 0, 0, 0, "degraded", ["KeyError: 7"])]}, "KeyError: 7"),
    ],
)
def test_other_faults(change: dict[str, object], words: str) -> None:
    (fault,) = check(msgspec.structs.replace(run(), **change)).faults
    assert words in fault


def test_an_event_that_is_stored_twice() -> None:
    evidence = run()
    acknowledged = [
        msgspec.structs.replace(mark, sequence=99) if mark.number == 5 else mark for mark in evidence.acknowledged
    ]
    faults = check(msgspec.structs.replace(evidence, acknowledged=acknowledged)).faults
    assert len(faults) == len(SUBSCRIBERS)
    assert all("it is stored twice" in fault for fault in faults)
