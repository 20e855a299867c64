"""Who takes part?

One machine for each census, at the manager of the transaction.

1. The invitation is sent once. A join counts if it is signed with the key that it carries, if neither its pseudonym nor
   its key has joined before, and if there is room.
2. The first `at_most` win; a place is kept for each `named` participant that has not joined yet.
3. It is over when no place is left, or, without `at_most`, when the last of the `named` has joined and the rule is
   fulfilled; at the latest after `within` seconds.
4. The rule is fulfilled if at least `at_least` joined, all `named` among them, and the predicate holds for their
   offers. Then they are the members; otherwise the census has failed, and whoever joined is told. A rule that raises
   is not fulfilled.
5. What comes later changes nothing: who is late learns from the begin that it is not on the list.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, assert_never

import msgspec

from tutti.control.table import Row, Table, follow
from tutti.errors import invariant
from tutti.model.messages import Dismiss, Invite, Join, Received, Send, Ticked, To
from tutti.model.transaction import CensusRule, Member, Offer, member_hash

# Inputs


class Called(msgspec.Struct, frozen=True):
    """Hold the census now."""

    now: float


class Withdrawn(msgspec.Struct, frozen=True):
    """The publisher gives up, or is gone."""

    reason: str


Input = Called | Received | Ticked | Withdrawn


# Effects


class Settled(msgspec.Struct, frozen=True):
    """These are the members, in the order of their joins."""

    members: tuple[Member, ...]
    wraps: dict[str, str]


class Unsettled(msgspec.Struct, frozen=True):
    """There will be no transaction."""

    reason: str
    replies: tuple[Join, ...]


Effect = Send | Settled | Unsettled


# States


class Stage(StrEnum):
    IDLE = "idle"
    INVITING = "inviting"
    SETTLED = "settled"
    FAILED = "failed"


class Cause(StrEnum):
    CALL = "call"
    JOIN = "join"
    FULFILMENT = "fulfilment"
    FAILURE = "failure"


class Guard(StrEnum):
    SIGNED = "signed with the key that it carries"
    FRESH = "neither pseudonym nor key has joined"
    ROOM = "a place is left"
    ENOUGH = "at least so many as wanted"
    NAMED = "all named have joined"
    PREDICATE = "the predicate holds"


TRANSITIONS: Final[Table[Stage, Cause, Guard]] = {
    Stage.IDLE: {Cause.CALL: Row(Stage.INVITING), Cause.FAILURE: Row(Stage.FAILED)},
    Stage.INVITING: {
        Cause.JOIN: Row(Stage.INVITING, (Guard.SIGNED, Guard.FRESH, Guard.ROOM)),
        Cause.FULFILMENT: Row(Stage.SETTLED, (Guard.ENOUGH, Guard.NAMED, Guard.PREDICATE)),
        Cause.FAILURE: Row(Stage.FAILED),
    },
    Stage.SETTLED: {},
    Stage.FAILED: {},
}


class Census:
    """`wake_at` is the time of the next `Ticked`, or None."""

    __slots__ = ("_invite", "_joins", "_rule", "stage", "wake_at")

    def __init__(self, rule: CensusRule, invite: Invite) -> None:
        self._rule = rule
        self._invite = invite
        self._joins: dict[str, Join] = {}
        self.stage = Stage.IDLE
        self.wake_at: float | None = None

    # Step

    def step(self, given: Input) -> list[Effect]:
        match given:
            case Called():
                return self._call(given.now)
            case Received(message=Join() as join):
                return self._join(join, given.signer)
            case Received():
                return []
            case Ticked():
                return self._end() if self.wake_at is not None and given.now >= self.wake_at else []
            case Withdrawn():
                return self._fail(given.reason)
            case _:
                assert_never(given)

    def _moves(self, cause: Cause, join: Join | None = None, signer: str = "") -> bool:
        after = follow(TRANSITIONS, self.stage, cause, lambda guard: self._holds(guard, join, signer))
        if after is None:
            return False
        self.stage = after
        if after is not Stage.INVITING:
            self.wake_at = None
        return True

    def _holds(self, guard: Guard, join: Join | None, signer: str) -> bool:
        match guard:
            case Guard.SIGNED:
                return join is not None and join.key == signer != ""
            case Guard.FRESH:
                return join is not None and all(
                    join.pseudonym != other.pseudonym and join.key != other.key for other in self._joins.values()
                )
            case Guard.ROOM:
                return join is not None and self._room(join.name)
            case Guard.ENOUGH:
                return len(self._joins) >= self._rule.at_least
            case Guard.NAMED:
                return not self._absent()
            case Guard.PREDICATE:
                return self._rule.predicate is None or self._rule.predicate(self._offers())
            case _:
                assert_never(guard)

    def _call(self, now: float) -> list[Effect]:
        if not self._moves(Cause.CALL):
            return []
        self.wake_at = now + self._rule.within
        return [Send(self._invite, To.CANDIDATES)]

    def _join(self, join: Join, signer: str) -> list[Effect]:
        if join.tx != self._invite.tx or not self._moves(Cause.JOIN, join, signer):
            return []
        self._joins[join.pseudonym] = join
        if len(self._joins) == self._rule.at_most:
            return self._end()
        if self._rule.at_most is None and self._rule.named and not self._absent():
            return self._settle()
        return []

    def _end(self) -> list[Effect]:
        return self._settle() or self._fail(self._shortfall())

    def _settle(self) -> list[Effect]:
        try:
            vital = {pseudonym: self._rule.vital(_offer(join)) for pseudonym, join in self._joins.items()}
            if not self._moves(Cause.FULFILMENT):
                return []
        except Exception as error:  # noqa: BLE001  predicate and vital are the publisher's code
            return self._fail(f"the rule of the census raised {type(error).__name__}: {error}")
        hashes = {pseudonym: member_hash(self._invite.tx, pseudonym) for pseudonym in self._joins}
        members = tuple(
            Member(hashes[p], join.key, vital[p], join.name, join.instance) for p, join in self._joins.items()
        )
        return [Settled(members, {hashes[p]: join.wrap for p, join in self._joins.items() if join.wrap})]

    def _fail(self, reason: str) -> list[Effect]:
        invited = self.stage is Stage.INVITING
        if not self._moves(Cause.FAILURE):
            return []
        told: list[Effect] = [Send(Dismiss(self._invite.tx, reason), To.CANDIDATES)] if invited else []
        return [*told, Unsettled(reason, tuple(self._joins.values()))]

    # Leaves

    def _absent(self) -> frozenset[str]:
        return frozenset(self._rule.named) - {join.name for join in self._joins.values()}

    def _room(self, name: str) -> bool:
        if self._rule.at_most is None:
            return True
        kept = self._absent() - {name}
        return len(self._joins) + len(kept) < self._rule.at_most

    def _offers(self) -> tuple[Offer, ...]:
        return tuple(_offer(join) for join in self._joins.values())

    def _shortfall(self) -> str:
        if not self._holds(Guard.ENOUGH, None, ""):
            return f"{len(self._joins)} joined, {self._rule.at_least} were wanted"
        if absent := self._absent():
            return f"these did not join: {', '.join(sorted(absent))}"
        return "the condition on the offers does not hold"

    # Check

    def check(self) -> None:
        """Raises `InvariantViolated` if the state contradicts itself. For tests."""
        rule, count = self._rule, len(self._joins)
        invariant(rule.at_most is None or count <= rule.at_most, f"{count} joined where {rule.at_most} may")
        invariant(len({join.key for join in self._joins.values()}) == count, "two members share a key")
        invariant(self.stage is not Stage.SETTLED or count >= rule.at_least, "settled with too few")
        invariant((self.wake_at is not None) == (self.stage is Stage.INVITING), "a timer without a census")


def _offer(join: Join) -> Offer:
    return Offer(join.pseudonym, join.name, join.offer)
