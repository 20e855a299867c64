"""What a participation does to its database and its log: one operation after another, each answered before the next is
begun. It takes effect at some moment and is answered later; a crash comes before, between or after."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import assert_never

from tutti.control.participation import messages as p
from tutti.control.participation.machine import Participation
from tutti.model.transaction import Outcome, ParticipantRecord
from tutti.simulation.log import Append
from tutti.simulation.workloads import TYPES
from tutti.simulation.workplace import Workplace

Operation = (
    p.Handle
    | p.PrepareResources
    | p.CommitWork
    | p.WriteLog
    | p.CommitResources
    | p.RollbackResources
    | p.RunCompensator
    | p.CloseLog
)


class Operations:
    """`tell` takes the answers."""

    def __init__(
        self, workplace: Workplace, part: p.Part, machine: Participation, tell: Callable[[p.Input], None]
    ) -> None:
        self._at, self._part, self._machine, self._tell = workplace, part, machine, tell
        self._queue: deque[Operation] = deque()
        self._running: Operation | None = None  # begun, and not yet in effect
        self._busy = False
        self._number = 0  # of the operation: what was ended early must not go on
        self._appends = 0  # of the handler at work, not yet acknowledged
        self._refused = ""

    def takes(self, effect: p.Effect) -> bool:
        return isinstance(effect, Operation)

    def enqueue(self, operation: Operation) -> None:
        if isinstance(operation, p.RollbackResources) and isinstance(self._running, p.Handle):
            self._interrupt(self._running)
        self._queue.append(operation)
        self._go_on()

    def publish(self, effect: p.Publish) -> None:
        """By the handler at work, which waits for the acknowledgement."""
        self._appends += 1
        number = self._number
        append = Append(self._part.tx, self._machine.member, effect.type, effect.number)
        self._at.log.append(self._at, append, None, lambda reason: self._acknowledged(number, reason))

    def die(self) -> None:
        """With the process. What was begun may have taken effect."""
        running, self._running = self._running, None
        self._queue.clear()
        self._number += 1
        durable = running is not None and not (isinstance(running, p.Handle) and not running.commit)
        if not durable or running is None or self._at.up:
            return
        if self._at.ground.rng.random() < 0.5:
            self._at.ground.fired["an unfinished write of a member survives a crash"] += 1
            self._take_effect(running)
        else:
            self._at.ground.fired["an unfinished write of a member is lost in a crash"] += 1

    # One after another

    def _go_on(self) -> None:
        if self._busy or not self._queue:
            return
        self._busy = True
        self._running = operation = self._queue.popleft()
        self._number += 1
        number = self._number
        self._at.later(self._at.ground.latency(), lambda: self._begin(number, operation))

    def _begin(self, number: int, operation: Operation) -> None:
        if number != self._number:
            return
        if isinstance(operation, p.Handle):
            self._handle(operation)
        else:
            self._do(number, operation)

    def _do(self, number: int, operation: Operation) -> None:
        """It takes effect, and is answered later."""
        if number != self._number:
            return
        born = self._at.incarnation
        self._running = None
        answer = self._try(operation)
        down = self._at.ground.crash_due("member", operation, "after")
        if down is not None:
            self._at.crash(down)
        if self._at.incarnation == born:
            self._at.later(self._at.ground.latency(), lambda: self._answer(number, answer))

    def _answer(self, number: int, answer: p.Input | None) -> None:
        if number != self._number:
            return
        self._busy = False
        if answer is not None:
            self._tell(answer)
        self._go_on()

    # Handlers

    def _handle(self, handle: p.Handle) -> None:
        at, habits = self._at, self._at.habits
        self._appends, self._refused = 0, ""
        if at.ground.draw(habits.sets_abort):
            self._tell(p.AbortSet("this cannot be", at.now))
        if self._running is not handle:
            return  # ended by that
        if handle.event.type == TYPES[0] and self._machine.may_publish and at.ground.draw(habits.publishes):
            self._tell(p.Publishing("reaction", TYPES[1]))
        if self._running is handle and self._appends == 0:
            self._do(self._number, handle)

    def _acknowledged(self, number: int, reason: str) -> None:
        if number != self._number or not isinstance(self._running, p.Handle):
            return
        self._appends -= 1
        self._refused = self._refused or reason
        if self._appends == 0:
            self._do(number, self._running)

    def _interrupt(self, handle: p.Handle) -> None:
        """Rolling back ends what is still running first; that is answered too."""
        self._number += 1
        self._running, self._busy = None, True
        number = self._number
        gone = p.HandlerFailed(handle.event, "it was ended", self._at.now)
        self._at.later(self._at.ground.latency(), lambda: self._answer(number, gone))

    # Effects

    def _try(self, operation: Operation) -> p.Input | None:
        """Faults and habits first; then it takes effect."""
        at, ground, now = self._at, self._at.ground, self._at.now
        match operation:
            case p.Handle() if self._refused or ground.draw(at.habits.handler_fails):
                return p.HandlerFailed(operation.event, self._refused or "no room", now)
            case p.PrepareResources() | p.CommitWork() if ground.draw(at.habits.prepare_fails):
                return p.PrepareFailed(operation.round, "no space", now)
            case p.WriteLog() if ground.strikes(ground.faults.log_fails, "a member's log fails"):
                if ground.rng.random() < 0.5:
                    self._take_effect(operation)
                return p.LogFailed(_branch(operation.record), "nobody can tell", now)
            case p.CommitResources() | p.RollbackResources() if ground.strikes(
                ground.faults.finish_fails, "a branch cannot be finished right now"
            ):
                if ground.rng.random() < 0.5:
                    self._take_effect(operation)
                outcome: Outcome = "commit" if isinstance(operation, p.CommitResources) else "abort"
                return p.FinishFailed(outcome, "nobody can tell", now)
            case p.RunCompensator() if self._compensator_fails():
                return p.CompensationFailed(operation.event, "busy", now)
            case _:
                return self._take_effect(operation)

    def _compensator_fails(self) -> bool:
        at = self._at
        if at.habits.compensator_broken:
            return not at.mended
        return not at.ground.healed and at.ground.draw(at.habits.compensator_fails)

    def _take_effect(self, operation: Operation) -> p.Input | None:
        database, part, place, now = self._at.database, self._part, self._machine.member, self._at.now
        match operation:
            case p.Handle():
                return self._handled(operation)
            case p.PrepareResources():
                database.prepare(part.tx, place, operation.round)
                return p.Prepared(operation.round, now)
            case p.CommitWork():
                database.commit_session(part.tx, place, operation.round)
                self._at.write_record(place, operation.record)
                return p.Prepared(operation.round, now)
            case p.WriteLog():
                self._at.write_record(place, operation.record)
                return p.LogWritten(_branch(operation.record), now)
            case p.CommitResources():
                database.commit(part.tx, place, operation.rounds)
                return p.ResourcesFinished("commit", now)
            case p.RollbackResources():
                database.roll_back(part.tx, place, operation.rounds)
                return p.ResourcesFinished("abort", now)
            case p.RunCompensator():
                database.compensate(part.tx, place, operation.event)
                return p.Compensated(operation.event, now)
            case p.CloseLog():
                self._at.write_record(place, operation.record)
                return None
            case _:
                assert_never(operation)

    def _handled(self, handle: p.Handle) -> p.Input:
        at, part, place, event = self._at, self._part, self._machine.member, handle.event
        if not handle.commit:
            at.database.work(place, handle.round, event)
            return p.Handled(event, at.now)
        if not at.database.commit_event(part.tx, place, event):
            return p.HandlerFailed(event, "the barrier: it was undone before", at.now)
        before = at.records.get(place)
        record = ParticipantRecord(
            part.tx,
            part.pseudonym,
            part.key,
            "working",
            part.epoch,
            0,
            part.deadline,
            compensatable=True,
            group=part.group,
            consumed=(*(before.consumed if before is not None else ()), event),
            branches=before.branches if before is not None else (),
        )
        at.write_record(place, record)
        return p.Handled(event, at.now)


def _branch(record: ParticipantRecord) -> int:
    return max(record.branches, default=0)
