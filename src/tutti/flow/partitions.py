"""Which partitions are mine?

One machine for each instance of a subscriber. Instances share the partitions by leases: one record for each partition,
changed only by compare-and-set, with its owner and epoch. No clock is compared with another one.

 1. Every write changes a record's revision, and revisions grow. An owner writes (renews) every `renew` seconds.
 2. Somebody else's lease has run out when its revision was seen unchanged for `ttl` seconds on *our* clock. Until then
    nobody takes it.
 3. A lease of ours holds until the moment its last successful write was *sent*, plus `ttl`, less `margin`. Others count
    from when they saw that write, which is later; the margin is for clocks that run at different speeds.
 4. `may_run` says whether a lease holds. One that does not hold is still ours to renew, until we learn that it is not
    ours any more (`Lost`).
 5. The epoch grows by one whenever somebody takes a lease, and never otherwise.
 6. Every living member gets its fair share, ⌊P/n⌋ or ⌈P/n⌉, with as little movement as possible; everybody computes
    the same shares from the same records. Who has more drains the excess: `Drain`, then `Drained`, then `Release`.
 7. At most one write for a partition is on its way. Its answer is `Granted`, or `Denied` if it was not stored or nobody
    can tell. One without an answer for `ttl` seconds counts as denied, and an answer that comes later as unsaid. A
    grant that comes when the lease no longer holds counts as denied too. After a denial the next observation decides
    what is true.
 8. A record that is ours though we do not hold it (the answer to a claim was lost) is renewed, and held once that is
    granted.
 9. `Refused`: the partition could not be begun, because what is stored beside the lease has this epoch or a newer one.
    It is lost; should the record still be ours, it is given back and claimed again, with the next epoch.
10. `Leaving`: every partition is drained and released, and none is claimed. `gone` says when that is done.
11. An older observation than one we had is ignored. If a record stays older for `ttl` seconds, it is the truth:
    somebody restored or removed it.

An instance's id is never used again: after a restart it is another instance. `Observed` must come several times in
`ttl` seconds, and soon after a `Denied`; between, `Ticked` renews what is due.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, assert_never

import msgspec

from tutti.errors import invariant
from tutti.limits import (
    LEASE_MARGIN_SECONDS,
    LEASE_RENEW_SECONDS,
    LEASE_TTL_SECONDS,
    PARTITIONS_COUNT,
)

NOBODY: Final = ""


class LeaseRecord(msgspec.Struct, frozen=True, gc=False):
    """A lease as it is stored. `owner` "": nobody has it. `revision` 0: there is no such record."""

    partition: int
    owner: str
    epoch: int
    revision: int


# Inputs


class Observed(msgspec.Struct, frozen=True, gc=False):
    """The living members, and every lease record. `now` is when we had read them, not when we asked."""

    now: float
    members: tuple[str, ...]
    records: tuple[LeaseRecord, ...]


class Granted(msgspec.Struct, frozen=True, gc=False):
    """Our write, sent at that time, was stored as this revision."""

    partition: int
    revision: int
    sent_at: float


class Denied(msgspec.Struct, frozen=True, gc=False):
    """Our write was not stored, or nobody can tell."""

    partition: int


class Refused(msgspec.Struct, frozen=True, gc=False):
    """The answer to a `Begin` that is too old: somebody newer has been at work."""

    partition: int


class Drained(msgspec.Struct, frozen=True, gc=False):
    """Nothing of the partition runs any more, and its position is written."""

    partition: int


class Ticked(msgspec.Struct, frozen=True, gc=False):
    """Time has passed."""

    now: float


class Leaving(msgspec.Struct, frozen=True, gc=False):
    """This instance stops: hand everything back."""


Input = Observed | Granted | Denied | Refused | Drained | Ticked | Leaving


# Effects


class Claim(msgspec.Struct, frozen=True, gc=False):
    """Write ourselves as owner, with this epoch, if the revision is still the expected one."""

    partition: int
    epoch: int
    expected_revision: int


class Renew(msgspec.Struct, frozen=True, gc=False):
    """Write the same again, for a new revision."""

    partition: int
    epoch: int
    expected_revision: int


class Release(msgspec.Struct, frozen=True, gc=False):
    """Write owner "", with the same epoch."""

    partition: int
    epoch: int
    expected_revision: int


class Begin(msgspec.Struct, frozen=True, gc=False):
    """The partition is ours: take it up where it was left."""

    partition: int
    epoch: int


class Drain(msgspec.Struct, frozen=True, gc=False):
    """Finish what runs, start nothing new, write the position; then say `Drained`."""

    partition: int


class Lost(msgspec.Struct, frozen=True, gc=False):
    """What is stored says that it is not ours any more: forget it. No answer."""

    partition: int


Effect = Claim | Renew | Release | Begin | Drain | Lost


# The life of one partition, as this instance sees it


class Hold(StrEnum):
    FOREIGN = "foreign"
    CLAIMING = "claiming"
    HELD = "held"
    DRAINING = "draining"
    RELEASING = "releasing"


class Cause(StrEnum):
    CLAIM = "claim"  # it is free, or ran out, or is ours without our knowing; and it belongs to our share
    GRANT = "grant"
    DENIAL = "denial"
    EXCESS = "excess"  # it belongs to another's share, or we leave
    DRAINED = "drained"
    TAKEN = "taken"  # what is stored says that it is not ours


OURS: Final = frozenset({Hold.HELD, Hold.DRAINING})

TRANSITIONS: Final[Mapping[Hold, Mapping[Cause, Hold]]] = {
    Hold.FOREIGN: {
        Cause.CLAIM: Hold.CLAIMING,
        Cause.EXCESS: Hold.RELEASING,  # ours without our knowing, or refused when it should begin
    },
    Hold.CLAIMING: {
        Cause.GRANT: Hold.HELD,
        Cause.DENIAL: Hold.FOREIGN,
        Cause.EXCESS: Hold.RELEASING,  # granted when we were about to leave
    },
    Hold.HELD: {Cause.EXCESS: Hold.DRAINING, Cause.TAKEN: Hold.FOREIGN},
    Hold.DRAINING: {Cause.DRAINED: Hold.RELEASING, Cause.TAKEN: Hold.FOREIGN},
    Hold.RELEASING: {Cause.GRANT: Hold.FOREIGN, Cause.TAKEN: Hold.FOREIGN},
}


_Write = Claim | Renew | Release


class _Lease(msgspec.Struct):
    """What we know of one partition."""

    record: LeaseRecord  # the newest that we saw or wrote
    since: float  # when we first saw it, on our clock
    hold: Hold = Hold.FOREIGN
    holds_until: float = float("-inf")
    sent_at: float = float("-inf")  # our last write
    writing: _Write | None = None  # it is on its way
    blind: bool = False  # a write was denied: what is stored must be seen first
    older: LeaseRecord | None = None  # seen although we know a newer one
    older_since: float = 0.0
    refused_epoch: int = -1  # with this one it could not be begun


class Partitions:
    """The state is changed in place; there is one for each instance, and it is small."""

    __slots__ = ("_leases", "_leaving", "_margin", "_me", "_members", "_now", "_renew", "_ttl")

    def __init__(
        self,
        me: str,
        count: int = PARTITIONS_COUNT,
        *,
        ttl: float = LEASE_TTL_SECONDS,
        renew: float = LEASE_RENEW_SECONDS,
        margin: float = LEASE_MARGIN_SECONDS,
    ) -> None:
        invariant(me != NOBODY, "an instance needs an id")
        invariant(
            0 < renew < ttl - margin < ttl, f"leases of {ttl} s less {margin} s cannot be renewed every {renew} s"
        )
        self._me = me
        self._ttl, self._renew, self._margin = ttl, renew, margin
        never = float("-inf")
        self._leases = [_Lease(LeaseRecord(partition, NOBODY, 0, 0), never) for partition in range(count)]
        self._members: tuple[str, ...] = ()
        self._now = never
        self._leaving = False

    # Queries

    def may_run(self, partition: int, now: float) -> bool:
        """Whether our lease holds at this moment, so that a handler may be called."""
        lease = self._leases[partition]
        return now < lease.holds_until and lease.hold in OURS

    def epoch(self, partition: int) -> int | None:
        """The epoch of our lease; None if the partition is not ours."""
        lease = self._leases[partition]
        return lease.record.epoch if lease.hold in OURS else None

    def held(self) -> tuple[int, ...]:
        """The partitions that were begun, and neither lost nor handed back."""
        return tuple(p for p, lease in enumerate(self._leases) if lease.hold in OURS)

    def gone(self) -> bool:
        """We are leaving, and nothing is ours any more."""
        return self._leaving and all(
            lease.hold is Hold.FOREIGN and lease.record.owner != self._me for lease in self._leases
        )

    # Step

    def step(self, given: Input) -> list[Effect]:
        effects: list[Effect] = []
        match given:
            case Observed():
                self._hear(given.now)
                self._observe(given, effects)
            case Granted():
                self._grant(given, effects)
            case Denied():
                self._deny(self._leases[given.partition], effects)
            case Refused():
                self._refuse(self._leases[given.partition], effects)
            case Drained():
                lease = self._leases[given.partition]
                if lease.hold is Hold.DRAINING:
                    self._move(lease, Cause.DRAINED)
                    self._release(lease, effects)
            case Ticked():
                self._hear(given.now)
                self._renew_due(effects)
            case Leaving():
                self._leaving = True
                self._balance(effects)
            case _:
                assert_never(given)
        return effects

    def _hear(self, now: float) -> None:
        self._now = max(self._now, now)

    def _move(self, lease: _Lease, cause: Cause) -> None:
        lease.hold = TRANSITIONS[lease.hold][cause]

    # Observing

    def _observe(self, given: Observed, effects: list[Effect]) -> None:
        self._members = given.members
        records = {record.partition: record for record in given.records}
        for partition, lease in enumerate(self._leases):
            if lease.writing is not None and self._now - lease.sent_at >= self._ttl:
                self._deny(lease, effects)
            record = records.get(partition) or LeaseRecord(partition, NOBODY, 0, 0)
            if self._believe(lease, record):
                self._face(lease, effects)
        self._balance(effects)
        self._renew_due(effects)

    def _believe(self, lease: _Lease, record: LeaseRecord) -> bool:
        """Whether this is news, or the latest that we know. An older record is believed when it stays (rule 10)."""
        known = lease.record
        if record.revision == known.revision:
            if lease.since == float("-inf"):  # a record that is not there from the start
                lease.since = self._now
            lease.older = None
            lease.blind = False
            return True
        if record.revision < known.revision:
            if lease.older != record:
                lease.older, lease.older_since = record, self._now
            if self._now - lease.older_since < self._ttl:
                return False
            record = msgspec.structs.replace(record, epoch=max(record.epoch, known.epoch))  # an epoch never goes back
        lease.record, lease.since, lease.older = record, self._now, None
        lease.blind = False
        return True

    def _face(self, lease: _Lease, effects: list[Effect]) -> None:
        """Compare what is stored with what we hold."""
        if lease.record.owner == self._me or lease.writing is not None:
            return  # what is on its way is answered first; compare-and-set keeps it harmless
        if lease.hold in OURS:
            self._take_away(lease, effects)
        elif lease.hold is Hold.RELEASING:
            self._move(lease, Cause.TAKEN)

    def _take_away(self, lease: _Lease, effects: list[Effect]) -> None:
        self._move(lease, Cause.TAKEN)
        lease.holds_until = float("-inf")
        effects.append(Lost(lease.record.partition))

    # Balancing

    def _balance(self, effects: list[Effect]) -> None:
        """Drain what belongs to another's share, claim what belongs to ours and is free."""
        members = set(self._members) | {self._me}
        if self._leaving:
            members.discard(self._me)
        owners = {lease.record.partition: lease.record.owner for lease in self._leases if not self._is_free(lease)}
        shares = fair_shares(members, owners, len(self._leases))
        for partition, lease in enumerate(self._leases):
            mine = shares.get(partition) == self._me
            if lease.hold is Hold.HELD and not mine:
                self._move(lease, Cause.EXCESS)
                effects.append(Drain(partition))
            elif lease.hold is Hold.RELEASING:
                self._release(lease, effects)
            elif lease.hold is Hold.FOREIGN and not lease.blind and lease.since != float("-inf"):
                self._approach(lease, effects, mine=mine)

    def _approach(self, lease: _Lease, effects: list[Effect], *, mine: bool) -> None:
        record = lease.record
        ours = record.owner == self._me  # the answer to a write was lost, or an earlier one arrived late
        if mine and ours and record.epoch != lease.refused_epoch:
            self._move(lease, Cause.CLAIM)
            self._write(lease, Renew(record.partition, record.epoch, record.revision), effects)
        elif mine and self._is_free(lease):
            self._move(lease, Cause.CLAIM)
            self._write(lease, Claim(record.partition, record.epoch + 1, record.revision), effects)
        elif ours:
            self._move(lease, Cause.EXCESS)
            self._release(lease, effects)

    def _is_free(self, lease: _Lease) -> bool:
        owner = lease.record.owner
        return owner == NOBODY or (owner != self._me and self._now - lease.since >= self._ttl)

    # Writing

    def _write(self, lease: _Lease, write: _Write, effects: list[Effect]) -> None:
        lease.writing = write
        lease.sent_at = self._now
        effects.append(write)

    def _release(self, lease: _Lease, effects: list[Effect]) -> None:
        if lease.writing is None and not lease.blind:
            record = lease.record
            self._write(lease, Release(record.partition, record.epoch, record.revision), effects)

    def _renew_due(self, effects: list[Effect]) -> None:
        for lease in self._leases:
            due = lease.hold in OURS and self._now - lease.sent_at >= self._renew
            if due and lease.writing is None and not lease.blind:
                record = lease.record
                self._write(lease, Renew(record.partition, record.epoch, record.revision), effects)

    def _grant(self, given: Granted, effects: list[Effect]) -> None:
        lease = self._leases[given.partition]
        write = lease.writing
        if write is None or given.sent_at < lease.sent_at:
            return  # the answer to an earlier write, which had counted as denied
        holds_until = lease.sent_at + self._ttl - self._margin
        too_late = self._now >= holds_until and not isinstance(write, Release)
        if too_late or given.revision < lease.record.revision:  # it has perhaps, or certainly, been overwritten since
            self._deny(lease, effects)
            return
        lease.writing = None
        owner = NOBODY if isinstance(write, Release) else self._me
        lease.record = LeaseRecord(given.partition, owner, write.epoch, given.revision)
        lease.since, lease.older = self._now, None
        if isinstance(write, Release):
            self._move(lease, Cause.GRANT)
            return
        lease.holds_until = holds_until
        self._go_on(lease, effects)

    def _go_on(self, lease: _Lease, effects: list[Effect]) -> None:
        """A claim or a renewal was granted."""
        if lease.hold is Hold.CLAIMING and self._leaving:
            self._move(lease, Cause.EXCESS)
        elif lease.hold is Hold.CLAIMING:
            self._move(lease, Cause.GRANT)
            effects.append(Begin(lease.record.partition, lease.record.epoch))
        if lease.hold is Hold.RELEASING:
            self._release(lease, effects)

    def _deny(self, lease: _Lease, effects: list[Effect]) -> None:
        if lease.writing is None:
            return
        lease.blind = True
        lease.writing = None
        if lease.hold is Hold.CLAIMING:
            self._move(lease, Cause.DENIAL)
        self._face(lease, effects)

    def _refuse(self, lease: _Lease, effects: list[Effect]) -> None:
        if lease.hold in OURS:
            lease.refused_epoch = lease.record.epoch
            lease.writing = None  # if a renewal is on its way, the next observation shows what became of it
            lease.blind = True
            self._take_away(lease, effects)

    # Check

    def check(self) -> None:
        """Raises `InvariantViolated` if the state contradicts itself. For tests."""
        for partition, lease in enumerate(self._leases):
            hold, record, write = lease.hold, lease.record, lease.writing
            invariant(
                record.partition == partition, f"the record of partition {record.partition} stands at {partition}"
            )
            invariant(hold is not Hold.CLAIMING or isinstance(write, Claim | Renew), "claiming without a claim")
            invariant(hold is not Hold.FOREIGN or write is None, "a write for a partition that is not ours")
            invariant(not isinstance(write, Release) or hold is Hold.RELEASING, "a release of what is not released")
            invariant(write is None or write.partition == partition, "a write for another partition")
            invariant(lease.holds_until <= lease.sent_at + self._ttl - self._margin, "a lease holds too long")
            if hold in {Hold.HELD, Hold.DRAINING} and write is None:
                invariant(
                    record.owner == self._me, f"partition {partition} is held, and its record says {record.owner!r}"
                )


def fair_shares(members: Iterable[str], owners: Mapping[int, str], count: int) -> dict[int, str]:
    """Who should have which partition: everybody ⌊count/n⌋ or ⌈count/n⌉, and nobody gives up more than he must.
    `owners` are those of now. The same for everybody who sees the same."""
    held: dict[str, list[int]] = {member: [] for member in sorted(members)}
    if not held:
        return {}
    for partition in range(count):
        if (owner := owners.get(partition)) in held:
            held[owner].append(partition)
    least, more = divmod(count, len(held))
    ranked = sorted(held, key=lambda member: (-len(held[member]), member))  # who has most keeps the odd one
    quotas = {member: least + (rank < more) for rank, member in enumerate(ranked)}
    shares = {partition: member for member in ranked for partition in held[member][: quotas[member]]}
    free = iter([partition for partition in range(count) if partition not in shares])
    for member in ranked:
        for _ in range(quotas[member] - len(held[member])):
            shares[next(free)] = member
    return shares
