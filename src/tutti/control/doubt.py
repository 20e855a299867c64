"""Whom do I ask when I have not heard, and what do I answer others?

One machine for each participation. There are three states of doubt: joined without begin, working without prepare,
voted without decision.

1. After `patience` without news the participant asks its peers; if that brings nothing, peers and the journal's
   recovery, with growing pauses.
2. Any news, also an event, begins the patience anew.
3. `undecided` from the journal is an answer: the manager lives. Who has not voted goes on waiting; nobody gives up.
4. Who has not voted yes gives up after some questions without any answer, or when the journal does not know the
   transaction. Who has voted yes never gives up; that the journal does not know the transaction is said once, for an
   operator.
5. Who is asked passes on, verbatim, what the manager signed and the asker lacks. Nothing else: a peer can invent
   nothing.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, assert_never

import msgspec

from tutti.control.table import Row, Table, follow
from tutti.errors import invariant
from tutti.limits import DOUBT_ASK_MAX_SECONDS, DOUBT_ASK_SECONDS, DOUBT_TRIES_COUNT
from tutti.model.messages import (
    MANAGER,
    Begin,
    Decide,
    DoubtState,
    Inquiry,
    Prepare,
    Received,
    Relay,
    Send,
    Standing,
    Ticked,
    To,
)
from tutti.model.transaction import Decision

# Inputs


class Waiting(msgspec.Struct, frozen=True):
    """There is news, and from now on this is what is not known. `patience` 0: ask at once."""

    state: DoubtState
    patience: float
    now: float


class Settled(msgspec.Struct, frozen=True):
    """Nothing is waited for."""


Input = Waiting | Settled | Received | Ticked


# Effects


class GaveUp(msgspec.Struct, frozen=True):
    """Nobody answers, or the journal knows nothing: not having voted, one need not wait."""

    reason: str


class Stuck(msgspec.Struct, frozen=True):
    """Voted yes, and the journal does not know the transaction."""

    reason: str


Effect = Send | GaveUp | Stuck


# States


class Stage(StrEnum):
    CONTENT = "content"
    PATIENT = "patient"
    ASKING = "asking"


class Cause(StrEnum):
    WAIT = "wait"
    SETTLE = "settle"
    TIME = "time"
    SURRENDER = "surrender"
    UNDECIDED = "undecided"
    UNKNOWN = "unknown"


class Guard(StrEnum):
    DUE = "the time has come"
    USED_UP = "asked often enough"
    NOT_VOTED = "has not voted"
    MANAGER = "signed by the manager, or its successor"


TRANSITIONS: Final[Table[Stage, Cause, Guard]] = {
    Stage.CONTENT: {Cause.WAIT: Row(Stage.PATIENT)},
    Stage.PATIENT: {
        Cause.WAIT: Row(Stage.PATIENT),
        Cause.SETTLE: Row(Stage.CONTENT),
        Cause.TIME: Row(Stage.ASKING, (Guard.DUE,)),
    },
    Stage.ASKING: {
        Cause.WAIT: Row(Stage.PATIENT),
        Cause.SETTLE: Row(Stage.CONTENT),
        Cause.TIME: Row(Stage.ASKING, (Guard.DUE,)),
        Cause.SURRENDER: Row(Stage.CONTENT, (Guard.DUE, Guard.USED_UP, Guard.NOT_VOTED)),
        Cause.UNDECIDED: Row(Stage.ASKING, (Guard.MANAGER,)),
        Cause.UNKNOWN: Row(Stage.CONTENT, (Guard.MANAGER, Guard.NOT_VOTED)),
    },
}


class Doubt:
    """`wake_at` is the time of the next `Ticked`, or None."""

    __slots__ = ("_inbox", "_member", "_said", "_state", "_tries", "_tx", "stage", "wake_at")

    def __init__(self, tx: str, member: str, inbox: str) -> None:
        self._tx, self._member, self._inbox = tx, member, inbox
        self._state: DoubtState = "joined"
        self._tries = 0
        self._said = False
        self.stage = Stage.CONTENT
        self.wake_at: float | None = None

    def step(self, given: Input) -> list[Effect]:
        match given:
            case Waiting():
                self._moves(Cause.WAIT)
                self._state, self._tries = given.state, 0
                self.wake_at = given.now + given.patience
                return []
            case Settled():
                if self._moves(Cause.SETTLE):
                    self.wake_at = None
                return []
            case Ticked():
                return self._tick(given.now)
            case Received(message=Standing() as standing):
                return self._learn(standing, given.signer)
            case Received():
                return []
            case _:
                assert_never(given)

    def _moves(self, cause: Cause, now: float = 0.0, signer: str = "") -> bool:
        after = follow(TRANSITIONS, self.stage, cause, lambda guard: self._holds(guard, now, signer))
        if after is None:
            return False
        self.stage = after
        return True

    def _holds(self, guard: Guard, now: float, signer: str) -> bool:
        match guard:
            case Guard.DUE:
                return self.wake_at is not None and now >= self.wake_at
            case Guard.USED_UP:
                return self._tries >= DOUBT_TRIES_COUNT
            case Guard.NOT_VOTED:
                return self._state != "voted"
            case Guard.MANAGER:
                return signer == MANAGER
            case _:
                assert_never(guard)

    def _tick(self, now: float) -> list[Effect]:
        if self._moves(Cause.SURRENDER, now):
            self.wake_at = None
            return [GaveUp(f"{self._state}, and nobody answers")]
        if not self._moves(Cause.TIME, now):
            return []
        self._tries += 1
        self.wake_at = now + min(DOUBT_ASK_SECONDS * 2 ** min(self._tries - 1, 10), DOUBT_ASK_MAX_SECONDS)
        question = Inquiry(self._tx, self._member, self._state, self._inbox)
        asked = (To.MEMBERS,) if self._tries == 1 else (To.MEMBERS, To.RECOVERY)
        return [Send(question, to) for to in asked]

    def _learn(self, standing: Standing, signer: str) -> list[Effect]:
        if standing.answer == "undecided":
            if self._moves(Cause.UNDECIDED, signer=signer) and self._state != "voted":
                self._tries = 1  # the manager lives: keep asking, and do not give up
            return []
        if self._moves(Cause.UNKNOWN, signer=signer):
            self.wake_at = None
            return [GaveUp(f"{self._state}, and the journal does not know the transaction")]
        if self.stage is Stage.ASKING and signer == MANAGER and not self._said:
            self._said = True
            return [Stuck("voted yes, and the journal does not know the transaction (any more)")]
        return []

    def check(self) -> None:
        """Raises `InvariantViolated` if the state contradicts itself. For tests."""
        invariant(
            (self.wake_at is None) == (self.stage is Stage.CONTENT), "a timer without doubt, or doubt without one"
        )


class Knowledge:
    """What the manager signed, as it came."""

    __slots__ = ("_begin", "_decide", "_prepare", "_tx")

    def __init__(self, tx: str) -> None:
        self._tx = tx
        self._begin = self._prepare = self._decide = b""

    def remember(self, received: Received) -> None:
        if received.signer != MANAGER or not received.verbatim:
            return
        match received.message:
            case Begin():
                self._begin = received.verbatim
            case Prepare():
                self._prepare = received.verbatim
            case Decide():
                self._decide = received.verbatim
            case _:
                pass

    def answer(self, inquiry: Inquiry) -> Relay | None:
        """What helps the asker, or None."""
        match inquiry.state:
            case "joined":
                known = (self._begin, self._prepare, self._decide)
            case "working":
                known = (b"", self._prepare, self._decide)
            case "voted":
                known = (b"", b"", self._decide)
            case _:
                assert_never(inquiry.state)
        envelopes = tuple(envelope for envelope in known if envelope)
        return Relay(self._tx, envelopes) if envelopes else None


def recovery_answer(tx: str, *, known: bool, decision: Decision | None) -> Decide | Standing:
    """What the journal's recovery says to an inquiry. No row means undecided, never aborted; when the manager's lease
    has run out, recovery takes over and decides first (`Transaction.recovered`)."""
    if decision is not None:
        return Decide(tx, decision.epoch, decision.outcome, decision.branch, decision.reason, decision.excluded)
    return Standing(tx, "undecided" if known else "unknown")
