"""What a transaction is called, who takes part, what was counted and what was decided: values only."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, Literal

import msgspec

from tutti.errors import DeclarationError

Outcome = Literal["commit", "abort"]
Status = Literal["active", "work_ended", "committed", "aborted"]
Scope = Literal["private", "public"]
Counts = dict[str, dict[str, int]]  # publisher (a member's hash, or PUBLISHER) -> event type -> how many

WHOLE: Final = "*"  # the branch of an atomic transaction: it has one decision
PUBLISHER: Final = "manager"  # who began the transaction, where counts name a publisher


def journal_of(tx: str) -> str:
    """The id of the journal that decides this transaction."""
    journal, dash, rest = tx.partition("-")
    if not (journal and dash and rest):
        raise DeclarationError(
            f"{tx!r} is no transaction id",
            hint="it looks like 339979a9-cd61ae82-2: copy it whole from `tutti tx ls --all`",
        )
    return journal


def member_hash(tx: str, pseudonym: str) -> str:
    """Names a member where others listen: it proves nothing and tells nothing about the pseudonym."""
    return hashlib.sha256(f"{tx}\x1f{pseudonym}".encode()).hexdigest()[:32]


class Member(msgspec.Struct, frozen=True):
    """One accepted participant. `key` is the public key that its join (or its enrolment in the group) carried: only
    what is signed with it counts. `name` is its identity if it gave one; `instance` sends its heartbeats."""

    hash: str
    key: str
    vital: bool = True
    name: str = ""
    instance: str = ""


class TransactionRecord(msgspec.Struct, frozen=True):
    """What the journal knows of a transaction, so that a successor of its manager can finish it. `keys` and `instances`
    (whose heartbeats tell that a member lives) stand in the order of `members`; `resources` are descriptors of what the
    publisher itself enlisted; times are the journal's."""

    tx: str
    type: str
    deadline: float
    manager: str
    epoch: int
    members: tuple[str, ...] = ()
    vital: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    scope: Scope = "private"
    group: str = ""
    minimum: int = 0  # so many members must stay for a commit
    instances: tuple[str, ...] = ()


class Decision(msgspec.Struct, frozen=True):
    """The row that decides. Members in `excluded` were dropped: they undo their work though the others commit."""

    tx: str
    outcome: Outcome
    epoch: int
    branch: str = WHOLE
    reason: str = ""
    excluded: tuple[str, ...] = ()

    def outcome_for(self, member: str) -> Outcome:
        return "abort" if member in self.excluded else self.outcome


class Offer(msgspec.Struct, frozen=True):
    """One reply to an invitation, as the publisher sees it."""

    pseudonym: str
    name: str = ""
    data: Any = None


def everybody(offer: Offer) -> bool:  # noqa: ARG001  the signature of a rule that looks at the offer
    """The default for `CensusRule.vital`."""
    return True


def is_number(value: object) -> bool:
    """Whatever a user's type checker would have said."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_names(value: object) -> bool:
    return isinstance(value, Collection) and all(isinstance(name, str) for name in value)


class CensusRule(msgspec.Struct, frozen=True):
    """Who is accepted. The first `at_most` win; the census ends when it is full, or all `named` have joined (and no
    `at_most` was set), or after `within` seconds; it fails unless then at least `at_least` joined, all `named` among
    them, and `predicate` holds for their offers. `predicate` and `vital` are pure; one that raises fails the census."""

    at_least: int = 1
    at_most: int | None = None
    within: float = 5.0
    named: Collection[str] = frozenset()
    predicate: Callable[[tuple[Offer, ...]], bool] | None = None
    vital: Callable[[Offer], bool] = everybody

    def __post_init__(self) -> None:
        if isinstance(self.named, str):
            raise DeclarationError(f"a census with named={self.named!r}", hint=f"give a set: named={{{self.named!r}}}")
        if not is_names(self.named):
            raise DeclarationError(f"a census with named={self.named!r}", hint="give a set of names")
        if not all(callable(rule) for rule in (self.vital, self.predicate or everybody)):
            raise DeclarationError("a census whose predicate or vital cannot be called", hint="give functions")
        if type(self.at_least) is not int or not (self.at_most is None or type(self.at_most) is int):
            raise DeclarationError(
                f"a census with at_least={self.at_least!r}, at_most={self.at_most!r}", hint="they are whole numbers"
            )
        if self.at_least < 0 or not is_number(self.within) or not self.within > 0:
            raise DeclarationError(
                f"a census with at_least={self.at_least}, within={self.within}",
                hint="at_least is 0 or more, within is seconds above 0",
            )
        needed = max(1, self.at_least, len(self.named))
        if self.at_most is not None and self.at_most < needed:
            raise DeclarationError(
                f"a census with at_most={self.at_most} can never succeed: {needed} are needed",
                hint="at_most is at least 1, at_least, and the number of those named",
            )


# Counting


def total(counts: Mapping[str, Mapping[str, int]]) -> int:
    return sum(number for types in counts.values() for number in types.values())


def counted(counts: Mapping[str, Mapping[str, int]], publisher: str, event_type: str) -> int:
    return counts.get(publisher, {}).get(event_type, 0)


def lacking(
    sent: Mapping[str, Mapping[str, int]], got: Mapping[str, Mapping[str, int]], types: Iterable[str]
) -> Iterable[tuple[str, str]]:
    """(publisher, type) of which fewer, or more, arrived than were sent; only the types that are handled count."""
    for event_type in sorted(types):
        for publisher in sorted({*sent, *got}):
            if counted(sent, publisher, event_type) != counted(got, publisher, event_type):
                yield publisher, event_type


# The participant's own log


class Consumed(msgspec.Struct, frozen=True):
    """One event that a participant handled: enough to find it in the log again, and to undo it."""

    publisher: str
    type: str
    number: int  # of this publisher's events of this type in the transaction; the first is 1
    sequence: int  # in the stream


LogState = Literal["working", "voted", "committed", "aborted"]


class ParticipantRecord(msgspec.Struct, frozen=True):
    """What a participant writes down before it votes, and all that it needs after a crash. `branches` are the rounds in
    which it prepared (or committed) work: one gid each. The driver keeps the secret key beside it."""

    tx: str
    pseudonym: str
    key: str
    state: LogState
    epoch: int
    round: int
    deadline: float
    compensatable: bool = False
    group: str = ""
    sent: Counts = {}
    consumed: tuple[Consumed, ...] = ()
    branches: tuple[int, ...] = ()
    version: int = 1
