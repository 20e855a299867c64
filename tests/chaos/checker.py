"""Was every promise kept? Looks at the evidence of a run; what it cannot explain is a fault, said in a sentence.

1. *Nothing acknowledged is lost*: every subscriber handled every acknowledged event; the log holds each once.
2. *Order*: of each publisher (and account, for the keyed subscriber) first handlings come in the order of the numbers,
   which is the order in the log. An event that its publisher had to try again stands where it was stored in the end.
3. *Steps back*: an instance handles the events of a publisher (and account) in the order of the log. It may step back
   only after an outage of the server, in which it can have lost its lease and got it back.
4. *Duplicates*: an event that is handled again was handled before
   - by an instance that was killed in between, and stood behind the position that this one had left in the state
     (everything up to a position is acknowledged: a successor never goes back behind it); where nobody could read that
     position in time, the handling was at most `UNWRITTEN_SECONDS` of a present server before the kill;
   - or by an instance that lived on, and an outage of the server lies in between or at most `UNWRITTEN_SECONDS` before:
     its position could not be written, its lease ran out, somebody else took over.
   Everything else is unexplained.
5. *No gap unnoticed*: nothing was lost here, so nothing may be reported missing.
6. No dead letter, no failed attempt, no error in a log, no process that crashed, no process left behind.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from tests.chaos.evidence import Evidence, InstanceKilled, ServerKilled
from tests.chaos.workload import SUBSCRIBERS, Handling, account_of
from tutti.limits import LEASE_TTL_SECONDS, POSITION_FLUSH_SECONDS
from tutti.model.subjects import partition_of

UNWRITTEN_SECONDS: Final = POSITION_FLUSH_SECONDS + 2.0  # until a position is written by a process that hardly gets on
LEASE_SECONDS: Final = LEASE_TTL_SECONDS + 2.0  # until everybody knows whose a lease is, once the server is back
AT_WORK_SECONDS: Final = 1.0  # an instance that handled an event of a publisher so shortly before had its partition
SHOWN_MAX_COUNT: Final = 5

Lane = tuple[str, str, str]  # subscriber, publisher, account where that matters


class Verdict(msgspec.Struct):
    faults: list[str]
    handled: dict[str, int]  # distinct events, by subscriber
    duplicates: dict[str, int]  # by subscriber
    causes: dict[str, int]  # duplicates, by what explains them
    retried: int  # events that a publisher tried more than once
    recognised: int  # of those, the ones that had been stored by an earlier try
    takeover_seconds: float  # the longest time until somebody went on where a killed instance had been at work

    @property
    def ok(self) -> bool:
        return not self.faults


def check(evidence: Evidence) -> Verdict:
    verdict = Verdict([], {}, {}, {}, 0, 0, 0.0)
    verdict.retried = sum(mark.tries > 1 for mark in evidence.acknowledged)
    verdict.recognised = sum(mark.duplicate for mark in evidence.acknowledged)
    verdict.takeover_seconds = max((_takeover(kill, evidence) for kill in _instance_kills(evidence)), default=0.0)
    verdict.faults += [*_publishing(evidence), *_processes(evidence)]
    retried = {(mark.publisher, mark.number) for mark in evidence.acknowledged if mark.tries > 1}
    for plan in SUBSCRIBERS:
        marks = sorted((mark for mark in evidence.handled if mark.subscriber == plan.name), key=lambda m: m.time)
        firsts = {(mark.publisher, mark.number): mark for mark in reversed(marks)}
        verdict.handled[plan.name] = len(firsts)
        verdict.duplicates[plan.name] = len(marks) - len(firsts)
        verdict.faults += _lost(plan.name, firsts, evidence)
        for lane, handlings in _lanes(marks, keyed=plan.keyed).items():
            verdict.faults += _order(lane, handlings, retried)
            verdict.faults += _steps_back(lane, handlings, evidence)
    causes = Counter(_cause(before, again, evidence) for before, again in _repeats(evidence.handled))
    verdict.causes = {cause: count for cause, count in sorted(causes.items()) if not cause.startswith("!")}
    verdict.faults += _some(cause[1:] for cause in sorted(causes) if cause.startswith("!"))
    return verdict


# Nothing acknowledged is lost


def _publishing(evidence: Evidence) -> Iterator[str]:
    acknowledged = {(mark.publisher, mark.number) for mark in evidence.acknowledged}
    if len(acknowledged) != evidence.events:
        yield f"{len(acknowledged)} of {evidence.events} events were acknowledged: a publisher did not come to its end"
    if evidence.stored != len(acknowledged):
        yield f"the log holds {evidence.stored} records of {len(acknowledged)} acknowledged events"


def _lost(subscriber: str, firsts: dict[tuple[str, int], Handling], evidence: Evidence) -> Iterator[str]:
    missing = [mark for mark in evidence.acknowledged if (mark.publisher, mark.number) not in firsts]
    if missing:
        shown = ", ".join(f"{m.publisher} {m.number} (sequence {m.sequence})" for m in missing[:SHOWN_MAX_COUNT])
        yield f"{subscriber} never handled {len(missing)} acknowledged events: {shown}"
    for mark in evidence.acknowledged:
        first = firsts.get((mark.publisher, mark.number))
        if first is not None and mark.sequence and first.sequence != mark.sequence:
            yield (
                f"{subscriber} handled {mark.publisher} {mark.number} from sequence {first.sequence}, "
                f"but it was acknowledged at {mark.sequence}: it is stored twice"
            )


# Order


def _lanes(marks: Iterable[Handling], *, keyed: bool) -> dict[Lane, list[Handling]]:
    lanes: dict[Lane, list[Handling]] = defaultdict(list)
    for mark in marks:
        lanes[mark.subscriber, mark.publisher, account_of(mark.number) if keyed else ""].append(mark)
    return lanes


def _order(lane: Lane, handlings: list[Handling], retried: set[tuple[str, int]]) -> Iterator[str]:
    seen: set[int] = set()
    number = sequence = 0
    for mark in handlings:
        if mark.number in seen:
            continue
        seen.add(mark.number)
        if mark.sequence < sequence:
            yield f"{_title(lane)}: {mark.number} (sequence {mark.sequence}) came after sequence {sequence}"
        if mark.number < number and (mark.publisher, mark.number) not in retried:
            yield f"{_title(lane)}: {mark.number} came after {number}"
        number, sequence = max(number, mark.number), max(sequence, mark.sequence)


def _steps_back(lane: Lane, handlings: list[Handling], evidence: Evidence) -> Iterator[str]:
    last: dict[str, Handling] = {}
    for mark in handlings:
        before = last.get(mark.run)
        if before is not None and mark.sequence <= before.sequence and not _outage(before.time, mark.time, evidence):
            yield f"{_title(lane)}: {mark.run} went back from sequence {before.sequence} to {mark.sequence} by itself"
        last[mark.run] = mark


def _title(lane: Lane) -> str:
    subscriber, publisher, account = lane
    return f"{subscriber}, events of {publisher}{f' for {account}' if account else ''}"


# Duplicates


def _repeats(handled: list[Handling]) -> Iterator[tuple[Handling, Handling]]:
    """Each repeated handling with the one before it."""
    last: dict[tuple[str, str, int], Handling] = {}
    for mark in sorted(handled, key=lambda m: m.time):
        before = last.get((mark.subscriber, mark.publisher, mark.number))
        if before is not None:
            yield before, mark
        last[mark.subscriber, mark.publisher, mark.number] = mark


def _cause(before: Handling, again: Handling, evidence: Evidence) -> str:
    """What explains that an event was handled again; with a `!`, why nothing does."""
    what = f"{again.subscriber} handled {again.publisher} {again.number} (sequence {again.sequence}) again"
    kill = next((k for k in _instance_kills(evidence) if k.run == before.run and k.time <= again.time), None)
    if kill is None:
        if _outage(before.time, again.time, evidence):
            return "the server was away, and the lease moved"
        return f"!{what}: {before.run}, which had it first, was not killed, nor was the server away"
    if kill.positions is not None:
        position = kill.positions[partition_of(again.publisher)]
        if again.sequence > position:
            return "the instance was killed before it wrote its position"
        return f"!{what}: {before.run} had written position {position} before it was killed"
    if before.time >= _present_before(kill.time, evidence) - UNWRITTEN_SECONDS:
        return "the instance was killed while the server was away"
    return f"!{what}: {before.run} was killed {kill.time - before.time:.1f} s later, time enough to write its position"


def _outage(start: float, end: float, evidence: Evidence) -> bool:
    return any(
        kill.time - UNWRITTEN_SECONDS <= end and start <= kill.back + LEASE_SECONDS
        for kill in evidence.kills
        if isinstance(kill, ServerKilled)
    )


def _present_before(time: float, evidence: Evidence) -> float:
    """The last moment up to `time` at which the server was there."""
    away = [k for k in evidence.kills if isinstance(k, ServerKilled) and k.time <= time <= k.back + UNWRITTEN_SECONDS]
    return min((kill.time for kill in away), default=time)


def _instance_kills(evidence: Evidence) -> Iterator[InstanceKilled]:
    return (kill for kill in evidence.kills if isinstance(kill, InstanceKilled))


def _takeover(kill: InstanceKilled, evidence: Evidence) -> float:
    """Seconds until each publisher that the killed instance had is handled again; 0 if another kill interfered."""
    had = {m.publisher for m in evidence.handled if m.run == kill.run and kill.time - m.time < AT_WORK_SECONDS}
    later: dict[str, float] = {}
    for mark in evidence.handled:
        if mark.subscriber == kill.subscriber and mark.publisher in had and mark.time > kill.time:
            later[mark.publisher] = min(mark.time, later.get(mark.publisher, mark.time))
    end = max(later.values(), default=kill.time)
    others = (other for other in evidence.kills if other is not kill and kill.time - LEASE_SECONDS <= other.time <= end)
    if any(isinstance(other, ServerKilled) or other.subscriber == kill.subscriber for other in others):
        return 0.0
    return end - kill.time


# The rest


def _processes(evidence: Evidence) -> Iterator[str]:
    yield from evidence.crashed
    yield from (f"left behind: {left}" for left in evidence.left)
    if evidence.dead_letters:
        yield f"{evidence.dead_letters} events were dead-lettered"
    for counters in evidence.counters:
        if counters.missing:
            yield f"{counters.run} reports {counters.missing} events missing, but nothing was lost"
        if counters.failures or counters.dead:
            yield f"{counters.run}: {counters.failures} attempts failed, {counters.dead} events were given up"
        yield from (f"{counters.run}: a task of the bus failed: {broken}" for broken in counters.broken)
    yield from _some(f"error in a log ({c.logger}): {c.text}" for c in evidence.complaints if c.level == "ERROR")


def _some(faults: Iterable[str]) -> list[str]:
    found = list(faults)
    more = len(found) - SHOWN_MAX_COUNT
    return found[:SHOWN_MAX_COUNT] + ([f"… and {more} more of the kind"] if more > 0 else [])
