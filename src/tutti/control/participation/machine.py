"""What do I owe the transaction?

One machine for each subscriber and transaction.

 1. Who joined and is not on the list of the begin, or never hears of one, behaves as if it had never joined.
 2. Events are handled one at a time, in the order of their arrival, each number once; deferred ones after the work has
    ended. An event that came before the begin waits for it.
 3. A handler that fails, an event that is gone from the log, an own time-out: the vote is no, and leaves at once; the
    work is undone without waiting. Who could vote otherwise after a crash writes the no down first (`notes`): a member
    of a group, which may begin anew, and whoever has, or may have, a yes in its log.
 4. A prepare is answered `open` if we have published what it does not count, received more than it counts, or hold
    deferred events. Events that it counts and that did not come are fetched. When everything is handled, the work is
    prepared, then the yes is written into the own log, then it is sent: in this order.
 5. Who is compensatable commits its work and its log together instead; nobody else can tell the difference.
 6. After a yes only a decision ends it. What the manager asks in a later round takes the earlier vote back: further
    work is a further branch, and may fail. A vote is never changed within its round; asked again, it is said again.
 7. The outcome for a member that is left out is abort. Committing, rolling back and compensating are tried until they
    succeed; then, and not before, the end is reported.
 8. What does not come from the manager, comes twice, late or from an older epoch, changes nothing.
 9. An operator may finish a branch in doubt. That is recorded, and compared with the decision: we go on asking for it.
10. In doubt, see `doubt`. Who is asked by a peer passes on what the manager signed.
"""

from __future__ import annotations

from typing import Final, assert_never

from tutti.control import doubt
from tutti.control.participation import finishing
from tutti.control.participation import messages as p
from tutti.control.participation.life import FINISHING, QUESTIONS, RESUMED, TRANSITIONS, Cause, Guard, Stage
from tutti.control.participation.notes import Notes
from tutti.control.participation.work import Work
from tutti.control.table import follow
from tutti.errors import invariant
from tutti.limits import DECISION_REPEAT_MAX_SECONDS
from tutti.model import messages as wire
from tutti.model.transaction import Consumed, LogState, Outcome, ParticipantRecord, member_hash

_RESOLUTION: Final[dict[Outcome, Cause]] = {"commit": Cause.RESOLVE_COMMIT, "abort": Cause.RESOLVE_ABORT}


class Participation:
    """The state is changed in place; one for each subscriber and transaction."""

    def __init__(self, part: p.Part, record: ParticipantRecord | None = None) -> None:
        self._part = part
        self.member = member_hash(part.tx, part.pseudonym)
        self.stage = Stage.NEW
        self._epoch, self._round, self._deadline = part.epoch, 0, part.deadline
        self._now = float("-inf")
        self._work = Work(part, self.member, record)
        self._later: wire.Received | None = None  # came while the vote was prepared
        self._vote: wire.Vote | None = None
        self._omitted = False
        self._notes = Notes()
        self._decision: wire.Decide | None = None
        self._finishing = finishing.Finishing(self._work.committed)
        self._forget_at: float | None = None
        self._doubt = doubt.Doubt(part.tx, self.member, part.inbox)
        self._knowledge = doubt.Knowledge(part.tx)
        self._wake: float | None = None

    @classmethod
    def recovered(cls, part: p.Part, record: ParticipantRecord) -> Participation:
        """What it was before the crash, as far as it matters. Work that was not voted for is lost."""
        self = cls(part, record)
        self._epoch, self._round, self._deadline = record.epoch, record.round, record.deadline
        self._notes.there = True
        self.stage = RESUMED[record.state]
        self._finishing.outcome = "commit" if record.state == "committed" else "abort"
        if self.stage is Stage.VOTED:
            self._vote = wire.Vote(part.tx, record.epoch, record.round, self.member, "yes")
        return self

    # Queries

    @property
    def may_publish(self) -> bool:
        """A handler is at work, and the transaction may still grow."""
        return self.stage is Stage.WORKING and self._work.receipt.running is not None

    @property
    def outcome(self) -> Outcome | None:
        """The outcome for this member, once it has ended."""
        return self._finishing.outcome if self.stage in {Stage.ENDED, Stage.RESOLVED} else None

    # Step

    def step(self, given: p.Input) -> list[p.Effect]:
        if not isinstance(given, p.Publishing):
            self._now = max(self._now, given.now)
        before = self.stage
        effects = self._take(given)
        if self.stage is not before:
            self._follow_doubt()
        return effects + self._wake_up()

    def _take(self, given: p.Input) -> list[p.Effect]:
        match given:
            case p.Accepted():
                return self._join(given)
            case p.Enrolled():
                self._moves(Cause.ENROL)
                return []
            case p.Recovered():
                return self._recover(given)
            case wire.Received():
                return self._receive(given)
            case wire.Ticked():
                return self._tick(given)
            case p.Arrived():
                return self._arrive(given)
            case p.EventGone():
                gone = f"event {given.number} of type {given.type} is not in the log any more"
                return self._refuse(gone) if self.stage is Stage.WORKING else []
            case p.Handled():
                return self._handled(given.event)
            case p.HandlerFailed():
                return self._refuse(given.reason) if self._work.receipt.finish(given.event) else []
            case p.Publishing():
                return self._publish(given)
            case p.AbortSet():
                return self._refuse(given.reason)
            case p.WorkEnded():
                return self._end_work()
            case p.Prepared():
                return self._prepared(given)
            case p.PrepareFailed() if self._holds(Guard.THIS_ROUND, given):
                self._work.fail()
                return self._refuse(given.reason)
            case p.PrepareFailed():
                return []
            case p.LogWritten() | p.LogFailed():
                return self._written(given)
            case p.Resolved():
                return self._resolve(given.outcome)
            case (
                p.ResourcesFinished()
                | p.FinishFailed()
                | p.Compensated()
                | p.CompensationFailed()
                | p.CompensationResumed()
            ):
                return self._finish(given)
            case _:
                assert_never(given)

    def _moves(self, cause: Cause, given: p.Input | None = None) -> bool:
        after = follow(TRANSITIONS, self.stage, cause, lambda guard: self._holds(guard, given))
        if after is None:
            return False
        self.stage = after
        return True

    def _holds(self, guard: Guard, given: p.Input | None = None) -> bool:
        match guard:
            case Guard.MANAGER:
                return isinstance(given, wire.Received) and given.signer == wire.MANAGER
            case Guard.LISTED:
                return p.lists(given, self.member)
            case Guard.NOT_LISTED:
                return not p.lists(given, self.member)
            case Guard.CURRENT:
                return p.asked_round(given) >= (self._epoch, self._round)
            case Guard.LATER_ROUND:
                return p.asked_round(given) > (self._epoch, self._round)
            case Guard.NEW_EVENT:
                return isinstance(given, p.Arrived) and self._work.receipt.is_new(given.event)
            case Guard.IDLE:
                return self._work.receipt.idle
            case Guard.COUNTS_AGREE:
                return self._work.agrees()
            case Guard.THIS_ROUND:
                answers = p.Prepared | p.PrepareFailed | p.LogWritten | p.LogFailed
                return isinstance(given, answers) and given.round == self._work.branch
            case Guard.DECIDED:
                return self._decision is not None
            case Guard.UNDECIDED:
                return self._decision is None
            case _:
                assert_never(guard)

    # Messages

    def _receive(self, given: wire.Received) -> list[p.Effect]:
        message = given.message
        if message.tx != self._part.tx:
            return []
        self._knowledge.remember(given)
        match message:
            case wire.Begin():
                return self._begin(given, message)
            case wire.Dismiss():
                return [p.Forget()] if self._moves(Cause.DISMISS, given) else []
            case wire.Close() | wire.Prepare():
                return self._asked(given, message)
            case wire.Decide():
                return self._decided(given, message)
            case wire.Standing():
                return self._doubtful(given)
            case wire.Inquiry() if message.member != self.member:
                known = self._knowledge.answer(message)
                return [wire.Send(known, wire.To.INBOX, message.inbox)] if known is not None else []
            case _:
                return []  # what members say to the manager

    def _join(self, given: p.Accepted) -> list[p.Effect]:
        if not self._moves(Cause.ACCEPT):
            return []
        part = self._part
        join = wire.Join(part.tx, part.pseudonym, part.key, given.offer, given.name, given.instance, given.wrap)
        return [wire.Send(join, wire.To.MANAGER)]

    def _begin(self, given: wire.Received, begin: wire.Begin) -> list[p.Effect]:
        if self._moves(Cause.OMISSION, given):
            self._omitted = True
            return [p.Forget()]
        if (
            self.stage is Stage.FORGOTTEN
            and not self._omitted
            and p.lists(given, self.member)
            and given.signer == wire.MANAGER
        ):
            self._epoch = max(self._epoch, begin.epoch)
            return [self._no("it had given up waiting for the begin")]
        if not self._moves(Cause.BEGIN, given):
            return []
        self._epoch, self._deadline = begin.epoch, begin.deadline
        self._work.release()
        return self._go_on()

    def _asked(self, given: wire.Received, asked: wire.Close | wire.Prepare) -> list[p.Effect]:
        """For counts, or for a vote."""
        cause = Cause.CLOSE if isinstance(asked, wire.Close) else Cause.PREPARE
        voted = self.stage is Stage.VOTED
        if not self._moves(cause, given):
            return self._answer_again(given, asked)
        self._epoch, self._round = asked.epoch, asked.round
        if voted:  # the manager took the vote back
            self._work.branch += 1
            self._work.release()
            self._vote = None
        self._work.ask(asked)
        self._follow_doubt()
        return self._go_on(again=True)

    def _answer_again(self, given: wire.Received, asked: wire.Close | wire.Prepare) -> list[p.Effect]:
        """In a stage in which nothing is left to consider."""
        if given.signer != wire.MANAGER:
            return []
        if self.stage in {Stage.PREPARING, Stage.LOGGING}:
            if p.asked_round(given) > (self._epoch, self._round):
                self._later = given
            return []
        if self._notes.unsaid:
            return []
        if self.stage in {Stage.REFUSING, Stage.REFUSED} or (self.stage is Stage.FORGOTTEN and not self._omitted):
            self._epoch = max(self._epoch, asked.epoch)
            return [self._no(self._vote.reason if self._vote is not None else "it had given up")]
        same = self._vote is not None and (asked.epoch, asked.round) == (self._vote.epoch, self._vote.round)
        if self.stage is Stage.VOTED and same and isinstance(asked, wire.Prepare) and self._vote is not None:
            return [wire.Send(self._vote, wire.To.MANAGER)]
        return []

    # Working

    def _arrive(self, given: p.Arrived) -> list[p.Effect]:
        if not self._moves(Cause.EVENT, given):
            return []
        self._work.receipt.take(given.event, deferred=given.deferred)
        if self.stage is not Stage.WORKING:
            return []
        self._work.release()
        self._follow_doubt()
        return self._go_on()

    def _handled(self, event: Consumed) -> list[p.Effect]:
        if not self._work.receipt.finish(event):
            return []
        if self.stage is Stage.WORKING or (self._work.early and self.stage in FINISHING):
            self._work.complete(event)
            self._notes.there = self._notes.there or self._work.early
        return self._go_on()

    def _publish(self, given: p.Publishing) -> list[p.Effect]:
        invariant(self.may_publish, f"a member of {self._part.tx} published while it was {self.stage}")
        return [self._work.publish(given.event, given.type)]

    def _end_work(self) -> list[p.Effect]:
        self._work.ended = True
        if self.stage is not Stage.WORKING:
            return []
        self._work.release()
        return self._go_on()

    def _go_on(self, *, again: bool = False) -> list[p.Effect]:
        if self.stage is not Stage.WORKING:
            return []
        effects = self._work.go_on(self._epoch, again=again)
        prepare = self._work.prepare
        if prepare is not None and self._work.contradicts():
            return [*effects, *self._refuse("the counts hold events of this member that it does not know")]
        if prepare is not None and self._moves(Cause.READY):
            return [*effects, self._get_ready(prepare)]
        return effects

    # Voting

    def _get_ready(self, prepare: wire.Prepare) -> p.Effect:
        self._deadline = prepare.deadline
        self._work.get_ready()
        branch, alone = self._work.branch, self._part.compensatable
        return p.CommitWork(branch, self._record("voted")) if alone else p.PrepareResources(branch)

    def _prepared(self, given: p.Prepared) -> list[p.Effect]:
        if self._part.compensatable and given.round == self._work.branch:
            self._work.committed[:] = self._work.consumed
            self._notes.there = True
            return self._voted() if self._moves(Cause.COMMITTED_EARLY, given) else []
        return [self._notes.write(self._record("voted"))] if self._moves(Cause.PREPARED, given) else []

    def _written(self, given: p.LogWritten | p.LogFailed) -> list[p.Effect]:
        noting = bool(self._notes.unsaid)
        reason = self._notes.answer(given, self._now)
        if noting:
            return [self._no(reason)] if reason and self.stage in {Stage.REFUSING, Stage.REFUSED} else []
        if isinstance(given, p.LogWritten):
            return self._voted() if self._moves(Cause.LOGGED, given) else []
        return self._refuse(given.reason) if self._holds(Guard.THIS_ROUND, given) else []

    def _voted(self) -> list[p.Effect]:
        self._notes.there = True
        self._vote = wire.Vote(self._part.tx, self._epoch, self._round, self.member, "yes")
        later, self._later = self._later, None
        return [wire.Send(self._vote, wire.To.MANAGER), *(self._receive(later) if later is not None else [])]

    def _no(self, reason: str) -> wire.Send:
        self._vote = wire.Vote(self._part.tx, self._epoch, self._round, self.member, "no", reason)
        return wire.Send(self._vote, wire.To.MANAGER)

    def _refuse(self, reason: str) -> list[p.Effect]:
        perhaps = self._perhaps_logged()
        if not self._moves(Cause.FAILURE):
            return []
        if not perhaps and not self._part.group:
            return [self._no(reason), *self._start_finishing("abort")]
        return [self._notes.write_no(self._record("working"), reason), *self._start_finishing("abort")]

    def _perhaps_logged(self) -> bool:
        """Whether a record of a yes may be in the log, though nobody has said so."""
        committing = self.stage is Stage.PREPARING and self._part.compensatable
        return self._notes.there or committing or self.stage is Stage.LOGGING

    # Finishing

    def _decided(self, given: wire.Received, decide: wire.Decide) -> list[p.Effect]:
        if self.stage in {Stage.ENDED, Stage.FORGOTTEN}:
            return [] if self._omitted or given.signer != wire.MANAGER else [self._ended()]
        outcome = decide.outcome_for(self.member)
        self._notes.there = self._perhaps_logged()
        alone = self.stage in {Stage.REFUSED, Stage.RESOLVED}
        joined = self.stage is Stage.JOINED
        if self._moves(Cause.LEARN, given):
            self._decision = decide
            return self._end() if alone else []
        if not self._moves(Cause.COMMIT if outcome == "commit" else Cause.ABORT, given):
            return []
        self._decision = decide
        return [self._ended(), p.Forget()] if joined else self._start_finishing(outcome)

    def _start_finishing(self, outcome: Outcome) -> list[p.Effect]:
        self._later = None
        self._work.drop_questions()
        branches = () if self._part.compensatable else self._work.branches
        if outcome == "abort":
            branches = tuple(dict.fromkeys((*branches, self._work.branch)))
            self._work.suspect()
        if outcome == "commit" and not branches:  # it was committed with the vote
            self._finishing.begin("commit", ())
            return self._finish(p.ResourcesFinished("commit", self._now))
        return list(self._finishing.begin(outcome, branches))

    def _finish(self, given: finishing.Input) -> list[p.Effect]:
        if self.stage not in FINISHING:
            return []
        was = self._finishing.compensating
        effects: list[p.Effect] = list(self._finishing.step(given))
        if self._finishing.compensating and not was:
            effects.append(wire.Send(wire.Ended(self._part.tx, self.member, "abort", "compensating"), wire.To.MANAGER))
        if not self._finishing.done:
            return effects
        if self._moves(Cause.FINISH):
            return [*effects, *self._end()]
        self._moves(Cause.FINISH_ALONE)
        self._forget_at = max(self._now, self._deadline) + 2 * DECISION_REPEAT_MAX_SECONDS
        return effects

    def _resolve(self, outcome: Outcome) -> list[p.Effect]:
        if not self._moves(_RESOLUTION[outcome]):
            return []
        return [p.RecordHeuristic(outcome, None), *self._start_finishing(outcome)]

    def _end(self) -> list[p.Effect]:
        """The branch is finished, and the decision known."""
        finished = self._finishing.outcome
        decided = self._decision.outcome_for(self.member) if self._decision is not None else finished
        odd: list[p.Effect] = [p.RecordHeuristic(finished, decided)] if decided != finished else []
        return [*odd, *self._close_log(), self._ended(), p.Forget()]

    def _ended(self) -> wire.Send:
        finished: Outcome = self._finishing.outcome if self.stage is Stage.ENDED else "abort"
        decided = self._decision.outcome_for(self.member) if self._decision is not None else finished
        state: Final = "ended" if finished == decided else "heuristic"
        return wire.Send(wire.Ended(self._part.tx, self.member, finished, state), wire.To.MANAGER)

    def _close_log(self) -> list[p.Effect]:
        if not self._notes.there:
            return []
        return [p.CloseLog(self._record("committed" if self._finishing.outcome == "commit" else "aborted"))]

    def _recover(self, given: p.Recovered) -> list[p.Effect]:
        if given.resolved is not None and self._moves(_RESOLUTION[given.resolved]):
            return self._start_finishing(given.resolved)
        if self.stage is Stage.VOTED:
            self._doubt.step(doubt.Waiting("voted", 0.0, self._now))
            return []
        if not self._moves(Cause.FAILURE):
            return []
        return [self._no("it had crashed before it voted"), *self._start_finishing("abort")]  # the log says so

    def _record(self, state: LogState) -> ParticipantRecord:
        return self._work.record(state, self._epoch, self._round, self._deadline)

    # Doubt and time

    def _follow_doubt(self) -> None:
        question = QUESTIONS.get(self.stage)
        if question is None:
            self._doubt.step(doubt.Settled())
            return
        self._doubt.step(doubt.Waiting(question, self._part.patience, self._now))

    def _doubtful(self, given: wire.Received | wire.Ticked) -> list[p.Effect]:
        effects: list[p.Effect] = []
        for effect in self._doubt.step(given):
            match effect:
                case doubt.GaveUp():
                    effects += self._give_up(effect.reason)
                case doubt.Stuck():
                    effects.append(p.Stuck(effect.reason))
                case wire.Send():
                    effects.append(effect)
                case _:
                    assert_never(effect)
        return effects

    def _give_up(self, reason: str) -> list[p.Effect]:
        if self.stage is Stage.JOINED and self._moves(Cause.SURRENDER):
            return [p.Forget()]
        return self._refuse(reason)

    def _tick(self, given: wire.Ticked) -> list[p.Effect]:
        if self.stage in {Stage.JOINED, Stage.WORKING} and self._now >= self._deadline:
            return self._give_up("the deadline has passed")
        if self._forget_at is not None and self._now >= self._forget_at and self._moves(Cause.SURRENDER):
            return [*self._close_log(), p.Forget()]
        again = self._notes.tick(self._now) if self.stage in {Stage.REFUSING, Stage.REFUSED} else []
        return [*again, *self._doubtful(given), *self._finish(given)]

    def _wake_up(self) -> list[p.Effect]:
        times = [self._doubt.wake_at]
        if self.stage in {Stage.REFUSING, Stage.REFUSED}:
            times.append(self._notes.wake_at)
        if self.stage in {Stage.JOINED, Stage.WORKING}:
            times.append(self._deadline)
        elif self.stage in FINISHING:
            times.append(self._finishing.wake_at)
        elif self.stage is Stage.REFUSED:
            times.append(self._forget_at)
        wake = min((time for time in times if time is not None), default=None)
        if wake == self._wake:
            return []
        self._wake = wake
        return [wire.WakeAt(wake)]

    # Check

    def check(self) -> None:
        """Raises `InvariantViolated` if the state contradicts itself. For tests."""
        self._doubt.check()
        self._finishing.check()
        promised = self._vote is not None and self._vote.value == "yes"
        invariant(self.stage is not Stage.VOTED or promised, "voted without a vote")
        invariant(not promised or self._notes.there, "a yes that is not written down")
        invariant(self.stage is not Stage.REFUSING or not promised, "refuses after a yes")
        work = self._work
        invariant(not work.committed or self._part.compensatable, "something was committed that cannot be undone")
        invariant(len(set(work.consumed)) == len(work.consumed), "an event was handled twice")
