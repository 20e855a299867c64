"""What is known of transactions on this host: the journal's word, and what participants here wrote down.

One `Situation` for each transaction. It is put together from what was read; nothing is asked and nothing is guessed:
where the journal is elsewhere, its part is missing, and the state is that of the participants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, assert_never

import msgspec

from tutti.journal import Dossier, Entry, Heuristic, LogRow, Parked, Resolution
from tutti.limits import JOURNAL_PAGE_MAX_COUNT
from tutti.model.messages import Ended
from tutti.model.transaction import Outcome, member_hash
from tutti.runtime.transactions.books import Books

State = Literal[
    "active",  # undecided, its manager lives
    "overdue",  # undecided, past its deadline
    "orphaned",  # undecided, and its manager is silent
    "in doubt",  # undecided, and somebody here voted yes and does not live, or the journal is elsewhere
    "committing",
    "aborting",
    "compensating",
    "committed",
    "aborted",
]
STATES: Final[tuple[State, ...]] = (
    "active",
    "overdue",
    "orphaned",
    "in doubt",
    "committing",
    "aborting",
    "compensating",
    "committed",
    "aborted",
)


PartState = Literal["working", "in doubt", "resolved", "committed", "aborted"]


class Part(msgspec.Struct, frozen=True):
    """A participant of this host. `heuristic`: how an operator had its branch finished, or wants it to be."""

    subscriber: str
    member: str  # its hash in the transaction
    state: PartState
    instance: str
    lives: bool
    resources: tuple[str, ...] = ()
    heuristic: Outcome | None = None
    parked: int = 0


class Situation(msgspec.Struct, frozen=True):
    """`age` in seconds, by the journal's clock; None where the journal is elsewhere. `waits_for` is in words.
    `heuristics` are the places that were finished by hand and are not forgotten."""

    tx: str
    type: str
    state: State
    age: float | None = None
    left: float | None = None  # seconds to the deadline, while it is undecided
    outcome: Outcome | None = None
    reason: str = ""
    manager: str = ""
    manager_lives: bool = False
    members: int = 0
    ended: int = 0
    group: str = ""
    scope: str = ""
    parts: tuple[Part, ...] = ()
    waits_for: tuple[str, ...] = ()
    heuristics: tuple[str, ...] = ()

    @property
    def open(self) -> bool:
        """Somebody still has to do something, or to forget something."""
        return self.state not in {"committed", "aborted"} or bool(self.heuristics)


class Findings(msgspec.Struct, frozen=True):
    """What the log of this host knows of all participants."""

    rows: tuple[LogRow, ...] = ()
    parked: tuple[Parked, ...] = ()
    words: tuple[Resolution, ...] = ()
    living: frozenset[str] = frozenset()


class Known(msgspec.Struct, frozen=True):
    """Of one transaction: what the log here says, and what the journal says, if it is here."""

    found: Findings
    entry: Entry | None = None
    ends: Sequence[Ended] = ()
    heuristics: tuple[Heuristic, ...] = ()


async def findings(books: Books, tx: str = "") -> Findings:
    """Of one transaction, or of all that are open."""
    log = books.log
    if log is None:
        return Findings()
    rows = await log.rows_of(tx) if tx else await log.open_rows()
    parked, words = await log.parked(), await log.resolutions()
    if tx:
        parked, words = tuple(p for p in parked if p.tx == tx), tuple(w for w in words if w.tx == tx)
    else:
        known = {(row.subscriber, row.tx) for row in rows}
        asked = {p.tx for p in parked} | {w.tx for w in words}
        for one in sorted(asked):
            rows += tuple(row for row in await log.rows_of(one) if (row.subscriber, row.tx) not in known)
    return Findings(rows, parked, words, await log.living())


async def survey(books: Books, *, every: bool = False, names: Mapping[str, str] | None = None) -> list[Situation]:
    """The oldest first: those in which somebody still has to do something or, with `every`, all that the journal and
    the log remember. `names`: pseudonyms of members that somebody else knows."""
    found = await findings(books)
    entries: dict[str, Entry] = {}
    heuristics: list[Heuristic] = []
    now = 0.0
    if books.journal is not None:
        now = await books.journal.now()
        heuristics = list(await books.journal.heuristics())
        entries = await _entries(books, every=every)
        for tx in {h.tx for h in heuristics} | {row.tx for row in found.rows}:
            if tx not in entries and books.journal_for(tx) is not None:
                dossier = await books.journal.show(tx)
                if dossier is not None:
                    entries[tx] = dossier.entry
    by_tx: dict[str, list[LogRow]] = {}
    for row in found.rows:
        by_tx.setdefault(row.tx, []).append(row)
    situations = []
    for tx in [*entries, *(tx for tx in by_tx if tx not in entries)]:
        entry = entries.get(tx)
        ends: Sequence[Ended] = ()
        if entry is not None and entry.decision is not None and books.journal is not None:
            ends = await _ends(books, tx)
        shown = tuple(h for h in heuristics if h.tx == tx)
        situations.append(situation(tx, Known(narrowed(found, tx), entry, ends, shown), now, names))
    return [one for one in situations if every or one.open]


async def _entries(books: Books, *, every: bool) -> dict[str, Entry]:
    assert books.journal is not None  # noqa: S101  for the type checker: the caller has looked
    found: dict[str, Entry] = {}
    after = 0
    while True:
        page = await books.journal.entries(unfinished=not every, after=after)
        found |= {entry.record.tx: entry for entry in page}
        if len(page) < JOURNAL_PAGE_MAX_COUNT:
            return found
        after = page[-1].number


async def _ends(books: Books, tx: str) -> tuple[Ended, ...]:
    dossier: Dossier | None = await books.journal.show(tx) if books.journal is not None else None
    return dossier.ended if dossier is not None else ()


def narrowed(found: Findings, tx: str) -> Findings:
    return Findings(
        tuple(row for row in found.rows if row.tx == tx),
        tuple(parked for parked in found.parked if parked.tx == tx),
        tuple(word for word in found.words if word.tx == tx),
        found.living,
    )


def situation(tx: str, about: Known, now: float, names: Mapping[str, str] | None = None) -> Situation:
    """`now` is the journal's; `names` are those of members, by pseudonym."""
    found, entry, ends = about.found, about.entry, about.ends
    parts = tuple(_part(row, found) for row in found.rows)
    known = {part.member: part.subscriber for part in parts}
    known |= {member_hash(tx, pseudonym): name for pseudonym, name in (names or {}).items()}
    state = _state(entry, ends, parts, now)
    shown = {known.get(h.place, h.place) for h in about.heuristics} | {
        part.subscriber for part in parts if part.heuristic
    }
    if entry is None:
        kinds = {row.type for row in found.rows if row.type}
        return Situation(
            tx=tx,
            type=min(kinds, default=""),
            state=state,
            parts=parts,
            waits_for=_waits_without_journal(state, parts),
            heuristics=tuple(sorted(shown)),
        )
    record, decision = entry.record, entry.decision
    return Situation(
        tx=tx,
        type=record.type,
        state=state,
        age=max(0.0, now - entry.registered_at),
        left=record.deadline - now if decision is None else None,
        outcome=decision.outcome if decision is not None else None,
        reason=decision.reason if decision is not None else "",
        manager=record.manager,
        manager_lives=entry.lease_until > now,
        members=len(record.members),
        ended=sum(end.state != "compensating" for end in ends),
        group=record.group,
        scope=record.scope,
        parts=parts,
        waits_for=_waits(entry, ends, parts, known, now),
        heuristics=tuple(sorted(shown)),
    )


def _part(row: LogRow, found: Findings) -> Part:
    word = next((w for w in found.words if w.subscriber == row.subscriber), None)
    by_hand = word.outcome if word is not None else None
    state: PartState
    match row.record.state:
        case "committed" | "aborted" as ended:
            state = ended
        case "voted" | "working" if word is not None or row.heuristic is not None:
            state, by_hand = "resolved", by_hand or row.heuristic
        case "voted":
            state = "in doubt"
        case "working":
            state = "working"
        case _:
            assert_never(row.record.state)
    return Part(
        subscriber=row.subscriber,
        member=member_hash(row.tx, row.record.pseudonym),
        state=state,
        instance=row.instance,
        lives=row.instance in found.living,
        resources=row.resources,
        heuristic=by_hand,
        parked=sum(parked.subscriber == row.subscriber for parked in found.parked),
    )


def _state(entry: Entry | None, ends: Sequence[Ended], parts: Sequence[Part], now: float) -> State:
    stuck = any(part.parked for part in parts) or any(end.state == "compensating" for end in ends)
    if entry is None:
        if any(part.parked for part in parts):
            return "compensating"
        if any(part.state not in {"committed", "aborted"} for part in parts):
            return "in doubt"
        return "committed" if any(part.state == "committed" for part in parts) else "aborted"
    if entry.decision is None:
        if any(part.state == "in doubt" and not part.lives for part in parts):
            return "in doubt"
        if entry.lease_until <= now:
            return "orphaned"
        return "overdue" if entry.record.deadline <= now else "active"
    if entry.decision.outcome == "abort" and stuck:
        return "compensating"
    if entry.finished:
        return "committed" if entry.decision.outcome == "commit" else "aborted"
    return "committing" if entry.decision.outcome == "commit" else "aborting"


def _waits(
    entry: Entry, ends: Sequence[Ended], parts: Sequence[Part], names: Mapping[str, str], now: float
) -> tuple[str, ...]:
    record, by_member = entry.record, {part.member: part for part in parts}
    if entry.finished:
        return ()
    if entry.lease_until <= now:
        return ("a manager that shares the journal, such as `tutti up`: its own is gone",)
    if entry.decision is None:
        if entry.delegated_to:
            return (f"the resource {entry.delegated_to}, which decides",)
        return ("its publisher",)
    over = {end.member: end.state for end in ends}
    waiting = [member for member in record.members if over.get(member) in {None, "compensating"}]
    said = [_waiting(member, over.get(member, ""), by_member, names) for member in waiting]
    if not said and record.resources:
        return tuple(f"the publisher's {resource}" for resource in record.resources)
    return tuple(said)


def _waiting(member: str, state: str, parts: Mapping[str, Part], names: Mapping[str, str]) -> str:
    name, part = names.get(member, f"member {member[:8]}"), parts.get(member)
    if part is not None and part.parked:
        return f"{name} (compensation parked)"
    if state == "compensating":
        return f"{name} (compensating)"
    if part is not None and not part.lives and part.state in {"in doubt", "resolved"}:
        return f"{name} (nobody acts for it)"
    return name


def _waits_without_journal(state: State, parts: Sequence[Part]) -> tuple[str, ...]:
    if state == "in doubt":
        return ("the journal, which is not here",)
    return tuple(f"{part.subscriber} (compensation parked)" for part in parts if part.parked)
