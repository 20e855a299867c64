"""Commit or abort?

One machine for each transaction, at its manager.

 1. A vote counts from a member on the list, signed with the key that its join carried, for this epoch; a yes, or an
    `open`, also only for this round; once a round. Everything else changes nothing.
 2. Commit is proposed when the prepare of this round is out and every vital member has voted yes, no other one is
    waited for, enough are left, every requirement is met, the publisher wants it, and the deadline has not passed.
 3. The no of a vital member, at any time, proposes abort at once; so do its loss before it voted, a broken requirement,
    too few members, the publisher's wish and the deadline.
 4. The no, the loss or the silence of a non-vital member excludes it: its work is undone whatever the others do. The
    decision names it.
 5. `open` takes the round back: its votes are void, and closing goes on.
 6. Proposals go to the journal. Nothing is announced before the journal has said what stands; that is announced, be it
    the proposal or not, and repeated with growing pauses until every member has ended.
 7. A member whose outcome is abort is not waited for beyond `ABORT_WAIT_SECONDS`, unless it compensates; nor once it is
    lost without a yes: who has not voted undoes its work alone, and may have lost its key; who has voted asks.
 8. The publisher's own resources are a requirement: prepared with the members, finished with the decision.
 9. A journal that does not answer is asked again. A fenced manager falls silent.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, assert_never

import msgspec

from tutti.control.table import Row, Table, follow
from tutti.control.transaction.messages import (
    AbortRequested,
    Broken,
    DecideInJournal,
    Enlisted,
    Fenced,
    Finished,
    FinishOwn,
    JournalDecided,
    JournalFailed,
    MemberLost,
    Met,
    OwnFinished,
    OwnPrepared,
    OwnPrepareFailed,
    PrepareOwn,
    RecordEnded,
    Required,
)
from tutti.errors import invariant
from tutti.limits import (
    DECISION_REPEAT_MAX_SECONDS,
    DECISION_REPEAT_SECONDS,
    JOURNAL_RETRY_SECONDS,
    PREPARE_REPEAT_SECONDS,
    SILENCE_SECONDS,
)
from tutti.model.messages import Decide, Ended, Prepare, Received, Send, Ticked, To, Vote
from tutti.model.transaction import Decision, Member, Outcome

OWN: Final = "the publisher's own resources"
ABORT_WAIT_SECONDS: Final = 4 * DECISION_REPEAT_MAX_SECONDS  # the decision was repeated a few times at the slowest pace

# Inputs, beside those of the transaction


class Ballot(msgspec.Struct, frozen=True):
    """Ask for votes. `carried`: an event takes the prepare along, so it is not sent now."""

    prepare: Prepare
    now: float
    carried: bool = False


class Wanted(msgspec.Struct, frozen=True):
    """The publisher waits for a commit, or no longer does: nothing is committed behind its back."""

    wanted: bool
    now: float


Input = (
    Ballot
    | Wanted
    | Received
    | Ticked
    | Enlisted
    | Required
    | Met
    | Broken
    | OwnPrepared
    | OwnPrepareFailed
    | OwnFinished
    | AbortRequested
    | MemberLost
    | JournalDecided
    | JournalFailed
    | Fenced
)


# Effects, beside those of the transaction


class Reopened(msgspec.Struct, frozen=True):
    """Somebody is still open: closing goes on."""


class Excluded(msgspec.Struct, frozen=True):
    """This member is not part of the transaction any more."""

    member: str
    reason: str


Effect = Send | PrepareOwn | FinishOwn | DecideInJournal | RecordEnded | Finished | Reopened | Excluded


# States


class Stage(StrEnum):
    IDLE = "idle"
    VOTING = "voting"
    DECIDING = "deciding"
    DECIDED = "decided"
    ENDED = "ended"
    FENCED = "fenced"


class Cause(StrEnum):
    BALLOT = "ballot"
    YES = "yes"
    NO = "no"
    STILL_OPEN = "still open"
    COMPLETE = "complete"
    REFUSAL = "refusal"
    ROW = "row"
    ENDING = "ending"
    ALL_ENDED = "all ended"
    FENCE = "fence"


class Guard(StrEnum):
    MEMBER = "from a member"
    KEY = "signed with its key"
    EPOCH = "for this epoch"
    ROUND = "for this round"
    FIRST = "its first in this round"
    VITAL_YES = "every vital member voted yes"
    SETTLED = "no other member is waited for"
    ENOUGH = "enough members are left"
    REQUIREMENTS = "every requirement is met"
    WANTED = "the publisher wants it"
    IN_TIME = "the deadline has not passed"
    NOBODY_LEFT = "every branch has ended"


_VOTER: Final = (Guard.MEMBER, Guard.KEY, Guard.EPOCH, Guard.FIRST)

TRANSITIONS: Final[Table[Stage, Cause, Guard]] = {
    Stage.IDLE: {
        Cause.BALLOT: Row(Stage.VOTING),
        Cause.NO: Row(Stage.IDLE, _VOTER),
        Cause.REFUSAL: Row(Stage.DECIDING),
        Cause.ROW: Row(Stage.DECIDED),  # an operator was quicker
        Cause.FENCE: Row(Stage.FENCED),
    },
    Stage.VOTING: {
        Cause.YES: Row(Stage.VOTING, (*_VOTER, Guard.ROUND)),
        Cause.NO: Row(Stage.VOTING, _VOTER),
        Cause.STILL_OPEN: Row(Stage.IDLE, (*_VOTER, Guard.ROUND)),
        Cause.COMPLETE: Row(
            Stage.DECIDING,
            (Guard.VITAL_YES, Guard.SETTLED, Guard.ENOUGH, Guard.REQUIREMENTS, Guard.WANTED, Guard.IN_TIME),
        ),
        Cause.REFUSAL: Row(Stage.DECIDING),
        Cause.ROW: Row(Stage.DECIDED),
        Cause.FENCE: Row(Stage.FENCED),
    },
    Stage.DECIDING: {Cause.ROW: Row(Stage.DECIDED), Cause.FENCE: Row(Stage.FENCED)},
    Stage.DECIDED: {
        Cause.ENDING: Row(Stage.DECIDED, (Guard.MEMBER, Guard.KEY)),
        Cause.ALL_ENDED: Row(Stage.ENDED, (Guard.NOBODY_LEFT,)),
        Cause.FENCE: Row(Stage.FENCED),
    },
    Stage.ENDED: {},
    Stage.FENCED: {},
}


class Commitment:
    """`wake_at` is the time of the next `Ticked`, or None. `decision` is the row that stands, once it does."""

    __slots__ = (
        "_asked_at",
        "_compensating",
        "_deadline",
        "_decided_at",
        "_ended",
        "_epoch",
        "_excluded",
        "_lost",
        "_members",
        "_minimum",
        "_now",
        "_open",
        "_own",
        "_own_asked",
        "_pause",
        "_prepare_at",
        "_proposal",
        "_tx",
        "_wanted",
        "_yes",
        "decision",
        "prepare",
        "stage",
        "wake_at",
    )

    def __init__(self, tx: str, epoch: int, members: Iterable[Member], *, deadline: float, minimum: int = 0) -> None:
        self._tx, self._epoch = tx, epoch
        self._members = {member.hash: member for member in members}
        self._deadline, self._minimum = deadline, minimum
        self._own = self._own_asked = self._wanted = False
        self._open: dict[str, None] = {}  # requirements
        self._yes: set[str] = set()  # of this round
        self._excluded: dict[str, str] = {}  # and why
        self._ended, self._compensating = set[str](), set[str]()
        self._lost: set[str] = set()  # without a yes in this round, and not heard of since
        self._decided_at = float("inf")
        self._proposal: Decision | None = None
        self._now = float("-inf")
        self._asked_at = float("inf")  # when the ballot of this round began
        self._prepare_at = float("inf")  # when the prepare is sent again
        self._pause = DECISION_REPEAT_SECONDS
        self.prepare: Prepare | None = None
        self.decision: Decision | None = None
        self.stage = Stage.IDLE
        self.wake_at: float | None = deadline

    # Queries

    def waiting_for(self) -> tuple[str, ...]:
        """What keeps the decision, in words."""
        voters = self._missing() if self.stage is Stage.VOTING else ()
        return (*self._open, *(f"vote of {self._members[h].name or h}" for h in voters))

    # Step

    def step(self, given: Input) -> list[Effect]:
        if not isinstance(given, Enlisted | Required):
            self._now = max(self._now, given.now)
        effects = self._take(given)
        if self.stage is Stage.IDLE:
            self.wake_at = self._deadline
        elif self.stage is Stage.VOTING:
            effects += self._count()
        if self.stage is Stage.DECIDED and self._moves(Cause.ALL_ENDED) and self.decision is not None:
            effects.append(Finished(self.decision.outcome))
        if self.stage in {Stage.ENDED, Stage.FENCED}:
            self.wake_at = None
        return effects

    def _take(self, given: Input) -> list[Effect]:
        match given:
            case Ballot():
                return self._ballot(given)
            case Wanted():
                self._wanted = given.wanted
                return []
            case Received(message=Vote() as vote):
                return self._vote(vote, given.signer)
            case Received(message=Ended() as ended):
                return self._end(ended, given.signer)
            case Received():
                return []
            case Ticked():
                return self._tick()
            case Enlisted():
                self._own = True
                self._open[OWN] = None
                return []
            case Required():
                self._open[given.name] = None
                return []
            case Met():
                self._open.pop(given.name, None)
                return []
            case Broken():
                return self._refuse(f"{given.name}: {given.reason}") if given.name in self._open else []
            case OwnPrepared():
                self._open.pop(OWN, None)
                return []
            case OwnPrepareFailed():
                return self._refuse(f"{OWN}: {given.reason}")
            case OwnFinished():
                self._own = False
                return []
            case AbortRequested():
                return self._refuse(given.reason)
            case MemberLost():
                return self._miss(given.member)
            case JournalDecided():
                return self._announce_first(given.decision)
            case JournalFailed():
                if self.stage is Stage.DECIDING:
                    self.wake_at = self._now + JOURNAL_RETRY_SECONDS
                return []
            case Fenced():
                self._moves(Cause.FENCE)
                return []
            case _:
                assert_never(given)

    def _moves(self, cause: Cause, vote: Vote | Ended | None = None, signer: str = "") -> bool:
        after = follow(TRANSITIONS, self.stage, cause, lambda guard: self._holds(guard, vote, signer))
        if after is None:
            return False
        self.stage = after
        return True

    def _holds(self, guard: Guard, vote: Vote | Ended | None, signer: str) -> bool:
        match guard:
            case Guard.MEMBER:
                return vote is not None and vote.member in self._members
            case Guard.KEY:
                known = self._members.get(vote.member) if vote is not None else None
                return signer != "" and (known is None or known.key == signer)
            case Guard.EPOCH:
                return isinstance(vote, Vote) and vote.epoch == self._epoch
            case Guard.ROUND:
                return isinstance(vote, Vote) and self.prepare is not None and vote.round == self.prepare.round
            case Guard.FIRST:
                return vote is not None and vote.member not in self._yes and vote.member not in self._excluded
            case Guard.VITAL_YES:
                return all(h in self._yes for h, member in self._members.items() if member.vital)
            case Guard.SETTLED:
                return all(h in self._yes or h in self._excluded for h, m in self._members.items() if not m.vital)
            case Guard.ENOUGH:
                return self._enough()
            case Guard.REQUIREMENTS:
                return not self._open
            case Guard.WANTED:
                return self._wanted
            case Guard.IN_TIME:
                return self._now < self._deadline
            case Guard.NOBODY_LEFT:
                return not self._own and not self._awaited()
            case _:
                assert_never(guard)

    # Voting

    def _ballot(self, given: Ballot) -> list[Effect]:
        if not self._moves(Cause.BALLOT):
            return []
        self.prepare = given.prepare
        self._yes.clear()
        self._asked_at = self._now
        self._prepare_at = self._now + PREPARE_REPEAT_SECONDS
        own: list[Effect] = [PrepareOwn()] if OWN in self._open and not self._own_asked else []
        self._own_asked = True
        return own if given.carried else [*own, Send(given.prepare, To.MEMBERS)]

    def _vote(self, vote: Vote, signer: str) -> list[Effect]:
        match vote.value:
            case "yes":
                if self._moves(Cause.YES, vote, signer):
                    self._yes.add(vote.member)
                return []
            case "no":
                moved = self._moves(Cause.NO, vote, signer)
                return self._lose(vote.member, vote.reason) if moved else []
            case "open":
                return [Reopened()] if self._moves(Cause.STILL_OPEN, vote, signer) else []
            case _:
                assert_never(vote.value)

    def _lose(self, member: str, reason: str) -> list[Effect]:
        known = self._members.get(member)
        if known is None or known.vital:
            return self._refuse(f"{known.name if known and known.name else member}: {reason}")
        if self.stage not in {Stage.IDLE, Stage.VOTING}:
            return []
        self._excluded[member] = reason
        return [Excluded(member, reason), *([] if self._enough() else self._refuse("too few members are left"))]

    def _miss(self, member: str) -> list[Effect]:
        if member not in self._members or member in self._yes:
            return []
        self._lost.add(member)
        return self._lose(member, "it does not answer any more") if member not in self._excluded else []

    def _count(self) -> list[Effect]:
        """Is the ballot over? Otherwise, when to look again."""
        if self._moves(Cause.COMPLETE):
            return self._propose("commit", "")
        silence = self._asked_at + SILENCE_SECONDS if self._quiet() else self._deadline
        repeat = self._prepare_at if self._missing() else self._deadline
        self.wake_at = min(self._deadline, silence, repeat)
        return []

    # Deciding

    def _refuse(self, reason: str) -> list[Effect]:
        return self._propose("abort", reason) if self._moves(Cause.REFUSAL) else []

    def _propose(self, outcome: Outcome, reason: str) -> list[Effect]:
        excluded = tuple(self._excluded) if outcome == "commit" else ()
        self._proposal = Decision(self._tx, outcome, self._epoch, reason=reason, excluded=excluded)
        self.wake_at = None  # until the journal fails
        return [DecideInJournal(self._proposal)]

    def _announce_first(self, decision: Decision) -> list[Effect]:
        if not self._moves(Cause.ROW):
            return []
        self.decision, self._decided_at = decision, self._now
        return [*([FinishOwn(decision.outcome)] if self._own else []), *self._announce()]

    def _announce(self) -> list[Effect]:
        row = self.decision
        if row is None or not self._awaited():
            self.wake_at = None
            return []
        self.wake_at = self._now + self._pause
        self._pause = min(2 * self._pause, DECISION_REPEAT_MAX_SECONDS)
        return [Send(Decide(self._tx, self._epoch, row.outcome, row.branch, row.reason, row.excluded), To.MEMBERS)]

    def _end(self, ended: Ended, signer: str) -> list[Effect]:
        said = self._compensating if ended.state == "compensating" else self._ended
        if ended.member in said | self._ended or not self._moves(Cause.ENDING, ended, signer):
            return []
        said.add(ended.member)
        return [RecordEnded(ended.member, ended.outcome, ended.state)]

    def _tick(self) -> list[Effect]:
        if self.stage in {Stage.IDLE, Stage.VOTING} and self._now >= self._deadline:
            return self._refuse("its deadline has passed")
        if self.wake_at is None or self._now < self.wake_at:
            return []
        match self.stage:
            case Stage.VOTING:
                return self._ask_again()
            case Stage.DECIDING if self._proposal is not None:
                self.wake_at = None
                return [DecideInJournal(self._proposal)]
            case Stage.DECIDED:
                return self._announce()
            case _:
                return []

    def _ask_again(self) -> list[Effect]:
        effects: list[Effect] = []
        if self._now >= self._asked_at + SILENCE_SECONDS:
            for member in self._quiet():
                effects += self._lose(member, "it did not vote in time")
        again = self.stage is Stage.VOTING and self._now >= self._prepare_at and self._missing()
        if again and self.prepare is not None:
            self._prepare_at = self._now + PREPARE_REPEAT_SECONDS
            effects.append(Send(self.prepare, To.MEMBERS))
        return effects

    # Leaves

    def _awaited(self) -> bool:
        """Whether the end of a branch is still to be reported."""
        row = self.decision
        late = self._now >= self._decided_at + ABORT_WAIT_SECONDS
        gone = self._lost | (self._members.keys() - self._compensating if late else set())
        left = self._members.keys() - self._ended
        return any(row is None or row.outcome_for(h) == "commit" or h not in gone for h in left)

    def _missing(self) -> tuple[str, ...]:
        return tuple(h for h in self._members if h not in self._yes and h not in self._excluded)

    def _quiet(self) -> tuple[str, ...]:
        return tuple(h for h in self._missing() if not self._members[h].vital)

    def _enough(self) -> bool:
        return len(self._members) - len(self._excluded) >= self._minimum

    # Check

    def check(self) -> None:
        """Raises `InvariantViolated` if the state contradicts itself. For tests."""
        strangers = (self._yes | self._ended | set(self._excluded)) - self._members.keys()
        invariant(not strangers, f"{strangers} are not on the list")
        invariant(not self._yes & set(self._excluded), "a member voted yes and was left out")
        invariant(all(not self._members[h].vital for h in self._excluded), "a vital member was left out")
        decided = self.stage in {Stage.DECIDED, Stage.ENDED}
        invariant(self.stage is Stage.FENCED or decided == (self.decision is not None), "a decision without a row")
        proposed = self._proposal
        if proposed is not None and proposed.outcome == "commit":
            vital = (h for h, member in self._members.items() if member.vital)
            invariant(self._yes.issuperset(vital), "a commit was proposed without every vital vote")
            invariant(not self._open, "a commit was proposed with open requirements")
        if self.stage in {Stage.IDLE, Stage.VOTING}:
            invariant(self.wake_at is not None, "nobody watches the deadline")
