"""What becomes of a transaction?

One machine for each transaction, at its manager: in the publisher's process, as a service, or a successor.

 1. A census settles the members, or they are those of a standing group.
 2. The journal registers the transaction, with its deadline, members and keys, before anybody may work: so a successor
    can finish it. Then a census is followed by `Begin`; a group needs none.
 3. The work is open until commit is asked for, or the last event was published. Nothing is published, and no resource
    or child added, after that.
 4. Closing gives the final counts, these the prepare, that the votes, these the decision (see `closing`, `commitment`).
    A member that is still open leads back to closing.
 5. Every event must be acknowledged by the bus: a requirement on the commit.
 6. Each request of the publisher is answered exactly once: with what stands, or, after its time-out, with what is
    waited for. While no commit is asked for, none is decided.
 7. A publisher that is lost aborts, unless the proposal is at the journal already.
 8. A fenced manager sends nothing more.
 9. A successor announces the row that stands. If there is none it proposes abort: nobody can have been told otherwise.
10. Members in doubt are answered with what was said so far.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from tutti.control import census, closing, commitment
from tutti.control.table import follow
from tutti.control.transaction.life import TRANSITIONS, Cause, Stage
from tutti.control.transaction.messages import (
    Aborted,
    AbortRequested,
    Answer,
    Broken,
    CensusFailed,
    ChildBegan,
    ChildDone,
    CommitAnswer,
    CommitRequested,
    Committed,
    DecideInJournal,
    Effect,
    Enlisted,
    Fenced,
    Finished,
    Input,
    JournalDecided,
    JournalFailed,
    MemberLost,
    Met,
    NotStored,
    Opened,
    OwnFinished,
    OwnPrepared,
    OwnPrepareFailed,
    Plan,
    Publish,
    PublisherLost,
    Publishing,
    QueueStatus,
    Register,
    Registered,
    Required,
    Started,
    Stored,
    Unchecked,
)
from tutti.control.transaction.requests import Requests
from tutti.errors import invariant
from tutti.limits import JOURNAL_RETRY_SECONDS
from tutti.model.messages import (
    Begin,
    Decide,
    Dismiss,
    Done,
    Ended,
    Inquiry,
    Invite,
    Join,
    Message,
    Prepare,
    Received,
    Send,
    Tally,
    Ticked,
    To,
    Vote,
    WakeAt,
)
from tutti.model.transaction import Decision, Member, Outcome, TransactionRecord


class Transaction:
    """The state is changed in place; one for each transaction."""

    def __init__(self, plan: Plan) -> None:
        invariant((plan.census is None) == bool(plan.group), "a transaction has a census, or a group")
        self._plan, self.tx, self.scope, self.deadline = plan, plan.tx, plan.scope, plan.deadline
        self._census: census.Census | None = None
        self._members: tuple[Member, ...] = ()
        self._now = float("-inf")
        self._requests = Requests()
        self._begin: Begin | None = None
        self._record: TransactionRecord | None = None  # of a predecessor
        self._register: Register | None = None
        self._inherited: Decision | None = None
        self._retry_at: float | None = None  # of the registration
        self._early: list[commitment.Input] = []  # what came before there was anything to decide
        self._failure = ""
        self._wake: float | None = None
        self.stage = Stage.NEW
        self._assemble(plan.members, plan.minimum)
        if plan.census is not None:
            invite = Invite(
                plan.tx, plan.type, plan.data, plan.census.within, plan.scope, plan.events, deadline=plan.deadline
            )
            self._census = census.Census(plan.census, invite)

    @classmethod
    def recovered(cls, record: TransactionRecord, decision: Decision | None, epoch: int) -> Transaction:
        """The successor of a manager whose lease ran out; `epoch` is the one of the new lease."""
        self = cls(Plan.inherited(record, epoch))
        self._record, self._inherited = record, decision
        for resource in record.resources:
            self._commitment.step(Enlisted(resource))
        return self

    def _assemble(self, members: tuple[Member, ...], minimum: int) -> None:
        plan = self._plan
        self._members = members
        self._closure = closing.Closure(plan.tx, plan.epoch, members)
        self._commitment = commitment.Commitment(plan.tx, plan.epoch, members, deadline=plan.deadline, minimum=minimum)

    # Queries

    @property
    def open(self) -> bool:  # for events, resources and children
        return self.stage is Stage.WORKING

    @property
    def decision(self) -> Decision | None:
        return self._commitment.decision

    @property
    def outcome(self) -> Outcome | None:
        return self.decision.outcome if self.decision is not None else None

    @property
    def prepare(self) -> Prepare | None:
        """The prepare of the last round, once there is one: its counts are final if the transaction commits."""
        return self._commitment.prepare

    @property
    def members(self) -> tuple[Member, ...]:
        return self._members

    def waiting_for(self) -> tuple[str, ...]:
        """What keeps the decision, in words."""
        match self.stage:
            case Stage.INVITING:
                return ("the census",)
            case Stage.NEW | Stage.REGISTERING:
                return ("the journal",)
            case Stage.FENCED:
                return ("another manager, which has taken over",)
            case _ if self._commitment.stage is commitment.Stage.DECIDING:
                return ("the journal",)
            case _:
                return (*self._closure.waiting_for(), *self._commitment.waiting_for())

    # Step

    def step(self, given: Input) -> list[Effect]:
        if not isinstance(given, Enlisted | ChildBegan | Required):
            self._now = max(self._now, given.now)
        if self.stage in {Stage.ENDED, Stage.FAILED, Stage.FENCED}:
            return self._after_the_end(given)
        effects = self._take(given)
        effects += self._answer_due()
        return [*effects, *self._wake_up()]

    def _take(self, given: Input) -> list[Effect]:
        match given:
            case Started():
                return self._start()
            case Received():
                return self._receive(given)
            case Ticked():
                return self._tick(given)
            case Registered():
                return self._registered(given)
            case Publishing():
                return self._publish(given)
            case Stored():
                return self._commit(Met(f"event {given.event}", given.now))
            case NotStored():
                return self._commit(Broken(f"event {given.event}", given.reason, given.now))
            case ChildBegan():
                return self._close(closing.ChildBegan(given.child))
            case ChildDone():
                return self._close(closing.ChildDone(given.child, given.now))
            case CommitRequested():
                self._requests.wait(given.request, given.now + given.timeout)
                return self._want()
            case AbortRequested(request=request):
                self._requests.wait(request, None)
                return self._revoke(given.reason)
            case PublisherLost():
                return self._revoke("the publisher is lost")
            case JournalFailed() if self.stage is Stage.REGISTERING:
                self._retry_at, self._failure = given.now + JOURNAL_RETRY_SECONDS, given.reason
                return []
            case Fenced():
                return self._fence(given)
            case (
                Enlisted()
                | Required()
                | Met()
                | Broken()
                | OwnPrepared()
                | OwnPrepareFailed()
                | OwnFinished()
                | JournalDecided()
                | JournalFailed()
                | MemberLost()
            ):
                return self._commit(given)
            case _:
                assert_never(given)

    def _moves(self, cause: Cause) -> bool:
        after = follow(TRANSITIONS, self.stage, cause, lambda _: True)
        if after is None:
            return False
        self.stage = after
        return True

    def _receive(self, given: Received) -> list[Effect]:
        message: Message = given.message
        match message:
            case _ if message.tx != self.tx:
                return []
            case Join():
                return self._invite(given)
            case Tally() | Done():
                return self._close(given)
            case Vote() | Ended():
                return self._commit(given)
            case Inquiry():
                return [Send(known, To.INBOX, message.inbox) for known in self._said()]
            case _:
                return []  # what managers say: a predecessor's, or our own come back

    def _said(self) -> Iterable[Message]:
        """What has been announced so far."""
        row = self._commitment.decision
        if row is not None:
            yield Decide(self._plan.tx, self._plan.epoch, row.outcome, row.branch, row.reason, row.excluded)
            return
        if self._begin is not None:
            yield self._begin
        if self._commitment.stage is commitment.Stage.VOTING and self._commitment.prepare is not None:
            yield self._commitment.prepare

    def _tick(self, given: Ticked) -> list[Effect]:
        effects = self._invite(given)
        if self.stage is Stage.REGISTERING:
            return [*effects, *self._register_again()]
        if self.stage not in {Stage.NEW, Stage.INVITING, Stage.FAILED}:
            effects += self._close(given)
            effects += self._commit(given)
        return effects

    # Beginning

    def _start(self) -> list[Effect]:
        if self._record is not None:
            return self._succeed()
        if self._census is not None:
            return self._invite(census.Called(self._now)) if self._moves(Cause.CENSUS) else []
        return self._enter_journal({}) if self._moves(Cause.GROUP) else []

    def _succeed(self) -> list[Effect]:
        if not self._moves(Cause.SUCCESSION):
            return []
        if self._inherited is not None:
            return self._commit(JournalDecided(self._inherited, self._now))
        return self._commit(AbortRequested(0, "its manager is gone", self._now))

    def _invite(self, given: census.Input) -> list[Effect]:
        effects: list[Effect] = []
        for effect in self._census.step(given) if self._census is not None else ():
            match effect:
                case census.Settled():
                    self._moves(Cause.SETTLED)
                    rule = self._plan.census
                    self._assemble(effect.members, max(self._plan.minimum, rule.at_least if rule else 0))
                    effects += self._enter_journal(effect.wraps)
                case census.Unsettled():
                    effects += self._fail(effect.reason, effect.replies)
                case Send():
                    effects.append(effect)
                case _:
                    assert_never(effect)
        return effects

    def _enter_journal(self, wraps: dict[str, str]) -> list[Effect]:
        self._register = Register(self._plan.record(self._members), wraps)
        return [self._register]

    def _register_again(self) -> list[Effect]:
        if self._now >= self._plan.deadline:
            told: list[Effect] = [Send(Dismiss(self._plan.tx, self._failure), To.CANDIDATES)] if self._census else []
            return [*told, *self._fail(f"the journal cannot be reached: {self._failure}", ())]
        if self._retry_at is None or self._now < self._retry_at or self._register is None:
            return []
        self._retry_at = None
        return [self._register]

    def _registered(self, given: Registered) -> list[Effect]:
        if self._moves(Cause.REGISTERED):
            effects: list[Effect] = [Opened(self._members)]
            if self._census is not None:
                hashes = tuple(member.hash for member in self._members)
                self._begin = Begin(self._plan.tx, self._plan.epoch, hashes, self._plan.deadline, given.keys)
                effects.append(Send(self._begin, To.MEMBERS))
            effects += self._want() if self._requests else []
            early, self._early = self._early, []
            return [*effects, *(effect for news in early for effect in self._commit(news))]
        return []

    def _fail(self, reason: str, replies: tuple[Join, ...]) -> list[Effect]:
        if not self._moves(Cause.FAILURE):
            return []
        return [CensusFailed(reason, replies), *self._answer_all(Aborted(reason))]

    # Working and closing

    def _publish(self, given: Publishing) -> list[Effect]:
        invariant(self.open, f"an event of {self._plan.tx} was published while it is {self.stage}")
        number = self._closure.number_of(given.type) + 1
        self._closure.step(closing.Published(given.type))
        self._commitment.step(Required(f"event {given.event}"))
        if not given.last:
            return [Publish(given.event, given.type, number)]
        effects = self._shut(carried=True)
        prepare: Prepare | None = self._commitment.prepare
        return [Publish(given.event, given.type, number, prepare), *effects]

    def _want(self) -> list[Effect]:
        """The publisher waits for a commit."""
        if self.outcome is not None:
            return self._answer_all(self._answer())
        effects = self._commit(commitment.Wanted(wanted=True, now=self._now))
        return [*effects, *(self._shut() if self.open else [])]

    def _shut(self, *, carried: bool = False) -> list[Effect]:
        self._moves(Cause.CLOSE)
        return self._close(closing.Closing(self._now), carried=carried)

    def _close(self, given: closing.Input, *, carried: bool = False) -> list[Effect]:
        effects: list[Effect] = []
        for effect in self._closure.step(given):
            match effect:
                case closing.Closed():
                    if self._moves(Cause.CLOSED):
                        effects += self._ballot(effect, carried=carried)
                case closing.Unclosable():
                    effects += self._commit(AbortRequested(0, effect.reason, self._now))
                case closing.WorkEnded():
                    effects.append(QueueStatus("work_ended"))
                case Send():
                    effects.append(effect)
                case _:
                    assert_never(effect)
        return effects

    def _ballot(self, closed: closing.Closed, *, carried: bool) -> list[Effect]:
        plan = self._plan
        group = "" if self._census is not None else plan.group
        prepare = Prepare(plan.tx, plan.epoch, closed.round, closed.counts, plan.deadline, closed.work_ended, group)
        return self._commit(commitment.Ballot(prepare, self._now, carried))

    # Committing

    def _commit(self, given: commitment.Input) -> list[Effect]:
        effects: list[Effect] = []
        if self.stage in {Stage.NEW, Stage.INVITING, Stage.REGISTERING} and not isinstance(given, Enlisted | Required):
            self._early.append(given)
            return []
        for effect in self._commitment.step(given):
            match effect:
                case commitment.Reopened():
                    self._moves(Cause.REOPENED)
                    effects += self._close(closing.StillOpen(self._now))
                case commitment.Excluded():
                    effects += self._close(closing.Dropped(effect.member, self._now))
                case DecideInJournal():
                    self._moves(Cause.DECISION)
                    effects.append(effect)
                case Finished():
                    self._moves(Cause.FINISH)
                    effects.append(effect)
                case _:
                    effects.append(effect)
        if self.outcome is not None:
            self._moves(Cause.DECISION)
            effects = [*self._answer_all(self._answer()), *effects]
        return effects

    def _revoke(self, reason: str) -> list[Effect]:
        match self.stage:
            case Stage.INVITING:
                return self._invite(census.Withdrawn(reason))
            case _ if self.outcome is not None:
                return self._answer_all(self._answer())
            case _:
                return self._commit(AbortRequested(0, reason, self._now))

    def _fence(self, given: Fenced) -> list[Effect]:
        self._moves(Cause.FENCE)
        self._commitment.step(given)
        return self._answer_all(Unchecked(self.waiting_for()))

    # Answers

    def _answer(self) -> CommitAnswer:
        invariant(self.decision is not None, "an answer without a decision")
        return Committed() if self.outcome == "commit" else Aborted(self.decision.reason if self.decision else "")

    def _answer_all(self, answer: CommitAnswer) -> list[Effect]:
        return [*self._requests.answer_all(answer)]

    def _answer_due(self) -> list[Effect]:
        due = self._requests.give_up(self._now)
        if due and not self._requests.for_commit:
            self._commitment.step(commitment.Wanted(wanted=False, now=self._now))
        return [Answer(request, Unchecked(self.waiting_for())) for request in due]

    def _after_the_end(self, given: Input) -> list[Effect]:
        """Requests are always answered, and who asks is told, unless we are fenced."""
        match given:
            case CommitRequested() | AbortRequested() if self.stage is Stage.FAILED:
                return [Answer(given.request, Aborted("there is no such transaction"))]
            case CommitRequested() | AbortRequested() if self.stage is Stage.FENCED:
                return [Answer(given.request, Unchecked(self.waiting_for()))]
            case CommitRequested() | AbortRequested():
                return [Answer(given.request, self._answer())]
            case Received(message=Inquiry()) if self.stage is Stage.ENDED:
                return self._receive(given)
            case _:
                return []

    # Time

    def _wake_up(self) -> list[Effect]:
        wake = self._next()
        if wake == self._wake:
            return []
        self._wake = wake
        return [WakeAt(wake)]

    def _next(self) -> float | None:
        if self.stage in {Stage.ENDED, Stage.FAILED, Stage.FENCED}:
            return None
        times = [self._retry_at, self._requests.wake_at]
        if self.stage is Stage.INVITING and self._census is not None:
            times.append(self._census.wake_at)
        elif self.stage is Stage.REGISTERING:
            times.append(self._plan.deadline)
        elif self.stage is not Stage.NEW:
            times += [self._closure.wake_at, self._commitment.wake_at]
        return min((time for time in times if time is not None), default=None)

    # Check

    def check(self) -> None:
        """Raises `InvariantViolated` if the state contradicts itself. For tests."""
        if self._census is not None:
            self._census.check()
        self._closure.check()
        self._commitment.check()
        committing = {Stage.COMMITTING, Stage.ENDED, Stage.FENCED}
        invariant(self.outcome is None or self.stage in committing, f"decided while {self.stage}")
        invariant(self.outcome is None or not self._requests, "a request was not answered with the decision")
        voting = self._commitment.stage is commitment.Stage.VOTING
        invariant(not voting or self.stage in committing, f"votes are counted while {self.stage}")
